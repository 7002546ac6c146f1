"""What anyone who claims an algorithm should publish beside the result, as Markdown: `dapo check --card RUN`.

It reads the run directory only: the manifest for what was used, the events for what was observed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dapo.conformance.evidence import Evidence
from dapo.conformance.judge import Judgement
from dapo.record.events import token_fates

Json = Mapping[str, Any]


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines]


def _short(value: str | None) -> str:
    return f"`{value[:16]}`" if value else "none"


def _hashes(files: Json) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in files.items()) or "not a local folder"


def _settings(m: Json) -> Iterator[tuple[str, str]]:
    a, reward = m["algorithm"], m["reward"]
    clip = a["clip"]
    changed = ", ".join(f"{k} = {v['here']} (not {v['preset']})" for k, v in a["deviations"].items())
    yield "algorithm", f"{a['base'].upper()}; departures set in the recipe: {changed or 'none'}"
    yield "clip bounds", f"{clip['rule']}, eps_low {clip['eps_low']:g}, eps_high {clip['eps_high']:g}"
    yield "dual clip", f"{clip['dual_clip']:g}" if clip["dual_clip"] else "off"
    yield "importance ratio", f"{a['ratio']}; outside the bounds: {a['outside']}"
    yield "group size", f"{a['group_size']} responses to a prompt, {a['prompts_per_step']} prompts a step"
    yield "updates a step", f"{a['updates_per_step']}"
    yield "loss aggregation", a["loss_aggregation"] + ("" if a["token_level_reading"] else ", not token-level")
    yield "advantage", a["advantage"]
    yield "filter", a["filter"]
    length = a["length"]
    limits = f", L_max {length['L_max']}, L_cache {length['L_cache']}" if length["rule"] == "soft-punishment" else ""
    yield "length", length["rule"] + limits
    kl = a["kl"]
    yield "KL", f"{kl['estimator']} in the {kl['in']}, coefficient {kl['coef']:g}" if kl["coef"] else "none"
    yield "sampler correction", a["correction"]
    verifier = ", ".join(f"{k} {_short(v) if 'sha' in k else v}" for k, v in reward["verifier"].items())
    yield (
        "reward",
        (
            f"{reward['correct']:g} correct, {reward['incorrect']:g} wrong, {reward['no_answer']:g} no answer; "
            f"verifier: {verifier}"
        ),
    )
    t = m["training"]
    yield (
        "optimiser",
        (
            f"AdamW, lr {t['lr']:g}, {t['schedule']}, warm-up {t['warmup_steps']} steps, weight decay {t['weight_decay']:g}, "
            f"betas {t['beta1']:g} and {t['beta2']:g}, gradient norm at most {t['grad_clip']:g}"
        ),
    )


def _origins(m: Json, resumed: Sequence[Json]) -> Iterator[tuple[str, str]]:
    code = m["code"]
    yield (
        "code",
        f"dapo {code['version']}, revision {_short(code['git_revision'])}, source {_short(code['source_sha256'])}",
    )
    yield "uncommitted changes", _short(code["git_diff_sha256"])
    others = {r["code"]["source_sha256"]: r for r in resumed if r["code"] != code or r["libraries"] != m["libraries"]}
    for resume in others.values():
        source, revision = _short(resume["code"]["source_sha256"]), _short(resume["code"]["git_revision"])
        torch = resume["libraries"]["torch"]
        yield (
            "resumed with other code",
            f"after step {resume['step']}: revision {revision}, source {source}, torch {torch}",
        )
    yield "data", f"{m['data']['source']}, {m['data']['problems']} problems, {_short(m['data']['fingerprint'])}"
    yield "model", f"{m['model']['path']}, {m['model']['dtype']}; {_hashes(m['model']['weights_sha256'])}"
    yield "tokenizer", _hashes(m["model"]["tokenizer_sha256"])
    yield "libraries", ", ".join(f"{k} {v}" for k, v in m["libraries"].items()) + f", python {m['python']}"
    yield "seed", m["seed"]
    hardware = m["hardware"]
    yield (
        "hardware",
        f"{hardware['cpu']}, {hardware['cores']} cores, device {hardware['device']}, {hardware['platform']}",
    )


def _results(e: Evidence) -> list[str]:
    evaluations = [x for x in e.events if x["kind"] == "eval"]
    rows = [
        (
            x["step"],
            s["suite"],
            f"avg@{s['k']}",
            s["problems"],
            f"{s['accuracy']:.1%}",
            f"{s['low']:.1%} to {s['high']:.1%}",
        )
        for x in evaluations
        for s in x["suites"]
    ]
    return _table(("step", "suite", "metric", "problems", "accuracy", "95 % interval"), rows) if rows else ["None."]


def _tokens(e: Evidence) -> list[str]:
    fates = token_fates(e.events)
    total = fates["generated"]["tokens"] or 1
    rows = [
        (name, *(f"{part[unit]:.0f}" for unit in ("groups", "responses", "tokens")), f"{part['tokens'] / total:.1%}")
        for name, part in fates.items()
        if part["groups"] or name != "carried_in"
    ]
    return _table(("fate", "groups", "responses", "tokens", "share"), rows)


def card(e: Evidence, judgement: Judgement, others: Sequence[Judgement]) -> str:
    """The card of a run. Errors: ValueError if its manifest cannot be read."""
    path = e.path / "manifest.json"
    resumed = [x for x in e.events if x["kind"] == "resume"]
    try:
        manifest = json.loads(Path(path).read_text())
        settings, origins = list(_settings(manifest)), list(_origins(manifest, resumed))
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} cannot be read as a manifest of this version: {error!r}") from None
    clauses = [(f.clause.number, f.clause.part, f.verdict, f.evidence) for f in judgement.findings]
    lines = [
        f"## What was trained: {judgement.sentence}",
        "",
        f"Judged by `dapo check` from what was observed in {len(e.steps)} steps and {len(e.updates)} updates.",
        *(f"As {other.algorithm.upper()}: {other.sentence}." for other in others),
        "",
        "### Settings",
        "",
        *_table(("what", "value"), settings),
        "",
        "### Clauses",
        "",
        *_table(("clause", "part", "verdict", "observed"), clauses),
        "",
        "### Results on held-out problems",
        "",
        *_results(e),
        "",
        "### Where the generated tokens went",
        "",
        *_tokens(e),
        "",
        "### Origins",
        "",
        *_table(("what", "value"), origins),
    ]
    return "\n".join(lines)
