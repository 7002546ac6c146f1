"""The clauses: what DAPO is, and what GRPO is, each as something that a run's record can show or contradict.

A clause judges what was *observed*: tokens really clipped, groups really dropped and replaced, denominators really used.
"not shown" is for a clause that the run gave no occasion to observe. A failed core clause means "not that algorithm", and so
does one that every run shows and this record does not; any other failed clause is a departure that the verdict names.
Section numbers: DAPO, arXiv 2503.14476; GRPO, arXiv 2402.03300.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Literal

from dapo.algo.filters import is_informative
from dapo.algo.length import soft_overlong_punishment
from dapo.conformance.evidence import Evidence, GroupRows

Result = tuple[Literal["pass", "fail", "not shown"], str]
TOLERANCE = 1e-6
READINGS = {"token-mean", "prompt-mean", "token-mean-legacy"}


@dataclass(frozen=True)
class Clause:
    """`number` is stable; `part` is the short name that verdicts use. `occasional`: a run may give no occasion to see it."""

    number: str
    part: str
    rule: str
    source: str
    core: bool
    judge: Callable[[Evidence], Result]
    occasional: bool = False


def _bounds(e: Evidence) -> set[tuple[float, float]]:
    return {(round(u["bounds"][0], 9), round(u["bounds"][1], 9)) for u in e.updates}


def _upper_bound_is_raised(e: Evidence) -> Result:
    if not e.updates:
        return "not shown", "no update"
    symmetric = [b for b in _bounds(e) if b[1] - 1 <= 1 - b[0] + TOLERANCE]
    if symmetric:
        return "fail", f"bounds {symmetric[0]} are symmetric in {len(e.updates)} updates"
    beyond = [u for u in e.updates if u["passed_max"] > u["bounds"][1] + TOLERANCE]
    if beyond:
        return "fail", f"a token with ratio {beyond[0]['passed_max']:.4f} kept its gradient above the upper bound"
    between, clipped = e.total("between"), e.total("clip_high")
    if not between and not clipped:
        return "not shown", "no token's ratio went above 1 + eps_low: the bound never acted"
    return "pass", (
        f"{between:.0f} tokens were trained at ratios that a symmetric clip would have cut; {clipped:.0f} tokens were "
        f"clipped above; largest ratio with a live gradient {max(u['passed_max'] for u in e.updates):.4f}"
    )


def _lower_bound_holds(e: Evidence) -> Result:
    below = [u for u in e.updates if u["passed_min"] is not None and u["passed_min"] < u["bounds"][0] - TOLERANCE]
    if below:
        return "fail", f"a token with ratio {below[0]['passed_min']:.4f} kept its gradient below the lower bound"
    clipped = e.total("clip_low")
    if not clipped:
        return "not shown", "no token's ratio went below the lower bound"
    return "pass", f"{clipped:.0f} tokens were clipped below"


def _clip_values(low: float, high: float) -> Callable[[Evidence], Result]:
    def judge(e: Evidence) -> Result:
        if not e.updates:
            return "not shown", "no update"
        seen = _bounds(e)
        wrong = [b for b in seen if abs(b[0] - (1 - low)) > TOLERANCE or abs(b[1] - (1 + high)) > TOLERANCE]
        if wrong:
            return "fail", f"bounds were {wrong[0]}, the paper's are ({1 - low:g}, {1 + high:g})"
        return "pass", f"bounds {next(iter(seen))} in {len(e.updates)} updates"

    return judge


def _needs_groups(judge: Callable[[Evidence], Result]) -> Callable[[Evidence], Result]:
    def guarded(e: Evidence) -> Result:
        return judge(e) if e.groups else ("not shown", "no rollouts were recorded")

    return guarded


def _is_mixed(group: GroupRows) -> bool:
    return is_informative(group.n_correct, len(group.graded))


def _needs_resampling(judge: Callable[[Evidence], Result]) -> Callable[[Evidence], Result]:
    def guarded(e: Evidence) -> Result:
        if e.recipe.algo.filter != "resample":
            return "fail", f"the run filtered nothing (algo.filter = {e.recipe.algo.filter!r})"
        return judge(e)

    return guarded


def _only_mixed_groups_are_trained(e: Evidence) -> Result:
    bad = [g for g in e.trained if not _is_mixed(g)]
    if bad:
        g = bad[0]
        return "fail", (
            f"{len(bad)} of {len(e.trained)} trained groups had all answers alike, first in step {g.step} "
            f"({g.n_correct} of {len(g.graded)} correct)"
        )
    if not e.trained:
        return "not shown", "no group was trained"
    return "pass", f"all {len(e.trained)} trained groups had 0 < correct < graded"


def _dropped_groups_are_replaced(e: Evidence) -> Result:
    n = e.recipe.rollout.prompts_per_step
    dropped = sum(s["groups"]["all_right"] + s["groups"]["all_wrong"] for s in e.steps)
    short = [s for s in e.steps if s["groups"]["kept"] < n]
    if short:
        s = short[0]
        return (
            "fail",
            f"{len(short)} steps trained on fewer than {n} groups, first step {s['step']}: {s['groups']['kept']}",
        )
    if not dropped:
        return "not shown", "no group had all answers alike: nothing was to be replaced"
    offered = sum(s["groups"]["offered"] for s in e.steps)
    return "pass", f"{dropped} groups dropped; {offered} prompts offered for {len(e.steps)} full batches of {n}"


def _filter_sees_correctness_only(e: Evidence) -> Result:
    wrong = [g for g in e.filtered if _is_mixed(g)]
    if wrong:
        return "fail", f"{len(wrong)} groups with right and wrong answers were dropped, first in step {wrong[0].step}"
    phantom = [g for g in e.trained if not _is_mixed(g) and len(g.shaped) > 1]
    if phantom:
        return (
            "fail",
            f"{len(phantom)} groups were kept for their shaped rewards alone, first in step {phantom[0].step}",
        )
    telling = [g for g in e.filtered if len(g.shaped) > 1]
    if not telling:
        return "not shown", f"none of {len(e.filtered)} dropped groups had rewards that differ by length"
    return "pass", f"{len(telling)} of {len(e.filtered)} dropped groups had rewards that differ by length only"


def _token_level(e: Evidence) -> Result:
    readings = {u["aggregation"] for u in e.updates}
    if not readings:
        return "not shown", "no update"
    if not readings <= READINGS:
        return "fail", f"losses were aggregated as {', '.join(sorted(readings - READINGS))}"
    if readings != {"token-mean"}:
        return "pass", f"reading of token-level: {', '.join(sorted(readings))}"
    for u in e.updates:
        tokens = u["denominator_tokens"]
        if tokens != u["tokens"] or abs(u["weight_max"] - u["weight_min"]) > TOLERANCE * u["weight_max"]:
            return "fail", f"token weights from {u['weight_min']:.3g} to {u['weight_max']:.3g} over {tokens} tokens"
        if tokens and abs(u["weight_max"] * tokens - 1) > 1e-4:
            return "fail", f"weight {u['weight_max']:.6g} is not 1 / {tokens} tokens"
    return "pass", f"reading token-mean: equal weights 1 / (tokens of the mini-batch) in {len(e.updates)} updates"


def _denominators_match_rollouts(e: Evidence) -> Result:
    trained: dict[int, int] = {}
    for g in e.trained:
        lengths = [r["length"] for r in g.rows if r["advantage"] is not None]
        trained[g.step] = trained.get(g.step, 0) + sum(lengths)
    for s in (s for s in e.steps if s["step"] in e.recorded):
        used = sum(u["denominator_tokens"] for u in s["updates"])
        if used != trained.get(s["step"], 0):
            return (
                "fail",
                f"step {s['step']}: {used} tokens in the losses, {trained.get(s['step'], 0)} in trained responses",
            )
    cut = sum(r["finish"] == "length" for g in e.trained for r in g.rows if r["advantage"] is not None)
    if not cut:
        return "not shown", "no truncated response was trained"
    return "pass", f"every trained token is in the loss, those of {cut} truncated responses included"


def _punishment_follows_the_formula(e: Evidence) -> Result:
    r = e.recipe
    if r.algo.length != "soft-punishment":
        return "fail", f"long responses were not punished (algo.length = {r.algo.length!r})"
    expected = [soft_overlong_punishment(row["length"], r.L_max, r.L_cache) for row in e.graded]
    for row, p in zip(e.graded, expected, strict=True):
        if abs(row["punishment"] - p) > TOLERANCE:
            return "fail", (
                f"a response of {row['length']} tokens was given {row['punishment']:g}; with L_max = {r.L_max}, "
                f"L_cache = {r.L_cache} the formula gives {p:g}"
            )
    punished = sum(p < 0 for p in expected)
    if not punished:
        return "not shown", f"no response was longer than L_max - L_cache = {r.L_max - r.L_cache} tokens"
    return "pass", f"{punished} of {len(expected)} responses punished, all by the formula"


def _no_punishment(e: Evidence) -> Result:
    punished = sum(row["punishment"] != 0 for row in e.graded)
    if punished:
        return "fail", f"{punished} responses were punished for their length"
    return "pass", f"none of {len(e.graded)} responses was punished"


def _no_kl(e: Evidence) -> Result:
    if not e.updates:
        return "not shown", "no update"
    used = [u for u in e.updates if u["kl_coef"] != 0]
    if used:
        return "fail", f"a KL term with coefficient {used[0]['kl_coef']:g} was in {len(used)} updates"
    return "pass", f"no KL term in {len(e.updates)} updates"


def _kl_in_loss(e: Evidence) -> Result:
    coefficients = {u["kl_coef"] for u in e.updates}
    if coefficients != {0.04}:
        return (
            "fail",
            f"KL coefficient {', '.join(f'{c:g}' for c in sorted(coefficients)) or 'none'}, the paper's is 0.04",
        )
    return (
        "pass",
        f"coefficient 0.04; the divergence added up to {e.total('kl_ref'):.3g} nats over {e.total('tokens'):.0f} tokens",
    )


def _advantages_are_group_normalised(e: Evidence) -> Result:
    checked = 0
    for g in e.trained:
        rows = [r for r in g.graded if r["advantage"] is not None]
        if len(rows) < 2:
            continue
        rewards = [r["reward"] + r["punishment"] for r in rows]
        center, scale = mean(rewards), stdev(rewards) + 1e-6
        for row, reward in zip(rows, rewards, strict=True):
            if not math.isclose(row["advantage"], (reward - center) / scale, rel_tol=1e-4, abs_tol=1e-5):
                return (
                    "fail",
                    f"step {g.step}: advantage {row['advantage']:.6f}, expected {(reward - center) / scale:.6f}",
                )
            checked += 1
    if not checked:
        return "not shown", "no trained group"
    return "pass", f"{checked} advantages equal (R - mean) / (std + 1e-6) of their group"


def _rewards_are_plus_minus_one(e: Evidence) -> Result:
    values = {row["reward"] for row in e.graded}
    if not values <= {1.0, -1.0}:
        return "fail", f"rewards were {sorted(values)[:5]}"
    wrong = [r for r in e.graded if (r["reward"] == 1.0) != (r["outcome"] == "correct")]
    if wrong:
        return "fail", f"{len(wrong)} rewards contradict their verdicts"
    return "pass", f"{len(e.graded)} rewards are +1 for correct, -1 for incorrect"


def _old_policy_is_the_trainers(e: Evidence) -> Result:
    first = [s["first_ratio_deviation"] for s in e.steps if s["first_ratio_deviation"] is not None]
    if not first:
        return "not shown", "no step whose first update used its own samples only"
    if max(first) > TOLERANCE:  # NaN is written as null and is an update that was not applied
        return "fail", f"|r - 1| was {max(first):.3g} on the first update of a step"
    return "pass", f"|r - 1| <= {max(first):.1g} on the first update of {len(first)} steps"


def _several_updates(e: Evidence) -> Result:
    counts = {len(s["updates"]) for s in e.steps}
    if not counts:
        return "not shown", "no step"
    if max(counts) < 2:
        return "fail", "one update a step: the ratio is always 1 and no clip can act (the paper makes 16)"
    return "pass", f"{max(counts)} updates a step"


def _samples_are_current(e: Evidence) -> Result:
    rows = [(g.step, r) for g in e.trained for r in g.rows]
    old = [r for step, r in rows if r["version"] != step - 1]
    if old:
        return "fail", f"{len(old)} trained responses came from an earlier policy"
    return "pass", f"all {len(rows)} trained responses came from the policy of their step"


def _ledger_adds_up(e: Evidence) -> Result:
    fates = ("trained", "filtered", "surplus", "cancelled", "failed")
    for s in e.steps:
        for unit in ("groups", "responses", "tokens"):
            total = sum(s["ledger"][fate][unit] for fate in fates)
            if total != s["ledger"]["generated"][unit]:
                return (
                    "fail",
                    f"step {s['step']}: {total} {unit} have a fate, {s['ledger']['generated'][unit]} were generated",
                )
    return "pass", f"generated = trained + filtered + surplus + cancelled + failed in {len(e.steps)} steps"


def _symmetric_clip(e: Evidence) -> Result:
    raised = [b for b in _bounds(e) if abs((b[1] - 1) - (1 - b[0])) > TOLERANCE]
    if raised:
        return "fail", f"bounds {raised[0]} are not symmetric"
    return ("pass", f"symmetric bounds {next(iter(_bounds(e)))}") if e.updates else ("not shown", "no update")


def _no_filter(e: Evidence) -> Result:
    if e.filtered:
        return "fail", f"{len(e.filtered)} groups were dropped for having all answers alike"
    alike = [g for g in e.trained if not _is_mixed(g)]
    if not alike:
        return "not shown", "no group had all answers alike"
    return "pass", f"{len(alike)} groups with all answers alike were trained"


def _sequence_mean(e: Evidence) -> Result:
    kinds = {u["aggregation"] for u in e.updates}
    if kinds - {"sequence-mean"}:
        return "fail", f"losses were aggregated as {', '.join(sorted(kinds))}"
    if not any(u["weight_max"] > u["weight_min"] * (1 + 1e-3) for u in e.updates):
        return "not shown", "all responses of each update had the same length"
    return "pass", "token weights follow 1 / length of the response"


_SHARED = (
    ("advantage", "A = (R - mean) / std within the group", _needs_groups(_advantages_are_group_normalised), True),
    ("old policy", "the ratio is 1 on the first update of a step", _old_policy_is_the_trainers, False),
    ("on-policy samples", "responses come from the step's policy", _needs_groups(_samples_are_current), False),
    ("ledger", "every generated token has one fate", _ledger_adds_up, False),
)  # fmt: skip

DAPO = (
    Clause("D1", "Clip-Higher", "the upper clip bound is raised, and holds", "3.1, eq. 8", True,
           _upper_bound_is_raised, occasional=True),
    Clause("D2", "lower clip", "tokens with A < 0 are clipped below 1 - eps_low", "3.1, eq. 8", False,
           _lower_bound_holds, occasional=True),
    Clause("D3", "clip values", "eps_low 0.2, eps_high 0.28", "4.1", False, _clip_values(0.2, 0.28)),
    Clause("D4", "Dynamic Sampling: filter", "groups with 0 or G correct are not trained", "3.2, eq. 11", True,
           _needs_groups(_only_mixed_groups_are_trained)),
    Clause("D5", "Dynamic Sampling: refill", "dropped groups are replaced until the batch is full", "3.2", True,
           _needs_resampling(_dropped_groups_are_replaced), occasional=True),
    Clause("D6", "Dynamic Sampling: criterion", "the filter sees correctness, not the shaped reward", "3.2, eq. 11",
           True, _needs_resampling(_filter_sees_correctness_only), occasional=True),
    Clause("D7", "token-level loss", "tokens weigh the same, whatever their response", "3.3, eq. 8", True,
           _token_level),
    Clause("D8", "no overlong filtering", "truncated responses stay in the loss", "3.4", False,
           _needs_groups(_denominators_match_rollouts), occasional=True),
    Clause("D9", "Soft Overlong Punishment", "the reward falls over the last L_cache tokens", "3.4, eq. 13", True,
           _punishment_follows_the_formula, occasional=True),
    Clause("D10", "no KL term", "no divergence from a reference model", "2.3", True, _no_kl),
    Clause("D11", "rule-based reward", "+1 if the answer is equivalent, else -1", "2.4, eq. 7", False,
           _needs_groups(_rewards_are_plus_minus_one)),
    Clause("D12", "several updates", "several updates a step, so that the clip can act", "4.1", False, _several_updates),
    *(Clause(f"D{13 + i}", part, rule, "eq. 9; Algorithm 1", core, judge)
      for i, (part, rule, judge, core) in enumerate(_SHARED)),
)  # fmt: skip

GRPO = (
    Clause("G1", "symmetric clip", "1 - eps to 1 + eps", "eq. 3", True, _symmetric_clip),
    Clause("G2", "no filter", "every group is trained", "4.1", True, _needs_groups(_no_filter), occasional=True),
    Clause("G3", "sequence-level loss", "token mean in each response, then mean over responses", "eq. 3", True,
           _sequence_mean, occasional=True),
    Clause("G4", "no length punishment", "the reward is for the answer alone", "4.1", True, _needs_groups(_no_punishment)),
    Clause("G5", "KL term", "k3 in the loss, beta 0.04", "eq. 3 and 4", False, _kl_in_loss),
    Clause("G6", "clip values", "eps 0.2", "4.2", False, _clip_values(0.2, 0.2)),
    *(Clause(f"G{7 + i}", part, rule, "4.1", core, judge) for i, (part, rule, judge, core) in enumerate(_SHARED)),
)  # fmt: skip

SPECS: dict[str, tuple[Clause, ...]] = {"dapo": DAPO, "grpo": GRPO}
