"""Run directories made up from scratch: three steps of DAPO, GRPO or DCPO that keep every clause, and hooks to break one.

Nothing is trained. Advantages and weights come from the definitions, all at once and without the package's functions.
"""

import json
from statistics import fmean, pvariance, stdev

import pyarrow as pa
import pyarrow.parquet as pq

from dapo.config import build_recipe, to_toml
from dapo.record.provenance import make_manifest
from dapo.record.rollouts import SCHEMA

STEPS, N, G = 3, 4, 4
L_MAX, L_CACHE = 40, 10
BINS = 9
FATES = ("trained", "filtered", "surplus", "cancelled", "failed")
REWARDS = {"dapo": (1.0, -1.0, -1.0), "grpo": (1.0, -1.0, -1.0), "dcpo": (1.0, 0.0, -1.0)}
BOUNDS = {"dapo": "fixed_bounds", "grpo": "fixed_bounds", "dcpo": "adaptive_bounds"}
EPS = {"dapo": (0.2, 0.28), "grpo": (0.2, 0.2), "dcpo": (0.16, 0.2)}
BIN = 2  # old probabilities from 0.03 to 0.1
SEEN = {  # alive above, dead above, alive below, dead below
    "dapo": (1.25, 1.31, 0.85, 0.75), "grpo": (1.15, 1.25, 0.85, 0.75), "dcpo": (1.9, 3.3, 0.55, 0.45),
}  # fmt: skip
AGGREGATION = {"dapo": "token-mean", "grpo": "sequence-mean", "dcpo": "only-token-mean"}
PATTERNS = [(1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 0), (0, 1, 0, 1)]  # right and wrong answers of the trained groups


def punishment(base, length):
    return max(-1.0, min(0.0, (L_MAX - L_CACHE - length) / L_CACHE)) if base == "dapo" else 0.0


def make_row(base, step, position, sample, correct, length, fate):
    right, wrong, missing = REWARDS[base]
    extracted = None if sample == 3 and not correct else "7"
    return {
        "step": step, "position": position, "group": position, "sample": sample, "carried": False,
        "problem_id": f"p{position % 6}", "family": "f", "problem": "?", "answer": "7", "text": "Answer: 7",
        "outcome": "correct" if correct else "incorrect", "extracted": extracted, "why": "",
        "reward": right if correct else missing if extracted is None else wrong,
        "punishment": punishment(base, length), "kl_penalty": None, "advantage": None, "length": length,
        "finish": "length" if length >= L_MAX else "stop", "fate": fate, "fate_why": "", "version": step - 1,
        "token_ids": [3] * length, "logp_gen": [-1.0] * length, "logp_old": None,
    }  # fmt: skip


def make_rows(base):
    """Rows of all steps: N trained groups, and behind them the groups of the dropped ones (DAPO)."""
    rows = []
    for step in range(1, STEPS + 1):
        patterns = [(p, "trained") for p in PATTERNS]
        if base == "dapo":
            patterns += [((0, 0, 0, 0), "filtered"), ((1, 1, 1, 1), "filtered")]
        elif step == 2:  # all answers alike, trained all the same
            patterns[3] = ((1, 1, 1, 1), "trained")
        for position, (pattern, fate) in enumerate(patterns):
            for sample, correct in enumerate(pattern):
                length = (
                    40 if (position, sample) == (2, 3) else 36 if (fate, sample) == ("filtered", 1) else 5 + 3 * sample
                )
                rows.append(make_row(base, step, position, sample, correct, length, fate))
    return rows


def groups_of(rows):
    out = {}
    for r in rows:
        out.setdefault((r["step"], r["position"]), []).append(r)
    return out


def shaped(r):
    return r["reward"] + r["punishment"] - (r["kl_penalty"] or 0.0)


def group_normalised(rows):
    values = [shaped(r) for r in rows]
    return [(v - fmean(values)) / (stdev(values) + 1e-6) for v in values]


def standard(values, of):
    var = pvariance(of) if len(set(of)) > 1 else 0.0
    return [(v - fmean(of)) / var**0.5 if var else 0.0 for v in values]


def smooth(rows, earlier):
    """DCPO's advantage from all rewards of all visits, without any running statistic."""
    values = [shaped(r) for r in rows]
    earlier.append(values)
    i = len(earlier)
    new, total = standard(values, values), standard(values, [v for visit in earlier for v in visit])
    blends = [((i - 1) / i * a + b / i, a / i + (i - 1) / i * b) for a, b in zip(new, total, strict=True)]
    return [min(pair, key=abs) for pair in blends]


def set_advantages(base, rows):
    visits = {}
    for group in groups_of(rows).values():
        earlier = visits.setdefault(group[0]["problem_id"], [])
        values = (
            smooth(group, earlier) if base == "dcpo" else group_normalised(group)
        )  # a filtered group is a visit too
        for r, a in zip(group, values, strict=True):
            r["advantage"] = a if r["fate"] == "trained" else None


def make_update(base, rows, first):
    lengths = [r["length"] for r in rows]
    tokens, n = sum(lengths), len(rows)
    weights = {"dapo": [1 / tokens] * n, "grpo": [1 / (x * n) for x in lengths], "dcpo": [1 / x for x in lengths]}[base]
    alive_high, dead_high, alive_low, dead_low = SEEN[base]
    one = range(BINS)
    return {
        "loss": 0.0, "grad_norm": 1.0, "applied": True, "lr": 1e-4, "entropy": 0.5,
        "objective": {
            "eps_low": EPS[base][0], "eps_high": EPS[base][1], "dual_clip": 10.0 if base == "dcpo" else None,
            "kl_coef": 0.04 if base == "grpo" else 0.0, "bounds": BOUNDS[base], "ratio": "token_log_ratio",
            "action": "clipped_loss", "kl": "k3", "correction": None, "rho_low": 0.5, "rho_high": 2.0,
        },
        "kl_coef": 0.04 if base == "grpo" else 0.0, "aggregation": AGGREGATION[base], "groups": 2, "responses": n,
        "denominator_responses": n,
        "denominator_tokens": tokens, "weight_min": min(weights), "weight_max": max(weights), "micro_batches": 1,
        "computed_tokens": tokens, "tokens": float(tokens), "clip_high": 2.0, "clip_low": 3.0,
        "clip_dual": 1.0 if base == "dcpo" else 0.0, "clip_far": 0.0, "between": 4.0, "prob_clip_high": 0.2, "prob": 30.0,
        "kl_old": 0.1, "kl_ref": 0.5 if base == "grpo" else 0.0, "rho": float(tokens), "corrected": 0.0,
        "deviation": 0.0 if first else 0.3,
        "spread": 0.0 if first else 0.2, "moved": 0.0 if first else 0.3,
        "passed_dual": 9.0, "cut_dual": 12.0 if base == "dcpo" else None,
        "passed_high": [alive_high if b == BIN else 0.0 for b in one],
        "cut_high": [dead_high if b == BIN else None for b in one],
        "passed_low": [alive_low if b == BIN else None for b in one],
        "cut_low": [dead_low if b == BIN else 0.0 for b in one],
    }  # fmt: skip


def make_events(base, rows, updates):
    events = [{"kind": "start", "time": 0.0, "step": 0, "problems": 6}]
    for step in range(1, STEPS + 1):
        mine = [r for r in rows if r["step"] == step]
        groups = [g for (s, _), g in groups_of(rows).items() if s == step]
        trained = [g for g in groups if g[0]["fate"] == "trained"]
        cuts = [trained[i * len(trained) // updates : (i + 1) * len(trained) // updates] for i in range(updates)]
        ledger = {f: {"groups": 0, "responses": 0, "tokens": 0, "seconds": 0.0} for f in ("generated", *FATES)}
        for g in groups:
            for fate in ("generated", g[0]["fate"]):
                ledger[fate]["groups"] += 1
                ledger[fate]["responses"] += len(g)
                ledger[fate]["tokens"] += sum(r["length"] for r in g)
        alike = [{r["outcome"] for r in g} for g in groups]
        events.append({
            "kind": "step", "time": float(step), "step": step,
            "groups": {
                "offered": len(groups), "finished": len(groups), "kept": len(trained), "carried": 0,
                "all_right": alike.count({"correct"}), "all_wrong": alike.count({"incorrect"}),
            },
            "ledger": {**ledger, "carried_in": {"groups": 0, "responses": 0, "tokens": 0, "seconds": 0.0}},
            "first_ratio_deviation": 0.0, "kl_penalised": 0, "accuracy": fmean(r["outcome"] == "correct" for r in mine),
            "updates": [make_update(base, [r for g in cut for r in g], i == 0) for i, cut in enumerate(cuts)],
        })  # fmt: skip
    events.append({"kind": "eval", "time": 4.0, "step": STEPS, "suites": [
        {"suite": "held", "k": 8, "problems": 10, "accuracy": 0.5, "low": 0.4, "high": 0.6},
    ]})  # fmt: skip
    return events


def fabricate(path, base, overrides=None, updates=2, before=None, rows_hook=None, events_hook=None):
    """A run directory. before(rows): ahead of the advantages; rows_hook, events_hook: on what is then written."""
    raw = {
        "model": {"path": "m"}, "data": {"source": "s.jsonl"}, "algo": {"base": base}, "train": {"steps": STEPS},
        "sampling": {"max_new_tokens": L_MAX}, "rollout": {"prompts_per_step": N, "group_size": G},
    }  # fmt: skip
    if base == "dapo":
        raw["algo"] |= {"L_max": L_MAX, "L_cache": L_CACHE}
    recipe = build_recipe(raw, overrides or {})
    rows = make_rows(base)
    if before:
        before(rows)
    set_advantages(base, rows)
    events = make_events(base, rows, updates)
    if rows_hook:
        rows_hook(rows)
    if events_hook:
        events_hook(events)
    (path / "rollouts").mkdir(parents=True)
    (path / "recipe.toml").write_text(to_toml(recipe))
    (path / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    verifier = {"name": "dapo_math", "version": "dapo 0", "source_sha256": "0" * 64}
    data = {"source": "s.jsonl", "fingerprint": "1" * 64, "problems": 6}
    (path / "manifest.json").write_text(json.dumps(make_manifest(recipe, data, verifier, "m", "cpu", "float32")))
    for step in range(1, STEPS + 1):
        table = pa.Table.from_pylist([r for r in rows if r["step"] == step], schema=SCHEMA)
        pq.write_table(table, path / "rollouts" / f"step-{step:06d}.parquet")
    return path
