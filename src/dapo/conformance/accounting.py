"""Clauses about the loss as a whole: denominators, the KL term, updates, the ledger; from events, checked on rollouts."""

import math

from dapo.config import TOKEN_LEVEL
from dapo.conformance.clipping import TOLERANCE, Judge, Result, needs_updates
from dapo.conformance.evidence import Evidence


@needs_updates
def token_level(e: Evidence) -> Result:
    """Tokens weigh the same, whatever their response; which reading of "token-level" it was."""
    readings = {u["aggregation"] for u in e.updates}
    if others := readings - set(TOKEN_LEVEL):
        return "fail", f"losses were aggregated as {', '.join(sorted(others))}"
    for u in e.updates:
        tokens = u["denominator_tokens"]
        uneven = u["weight_max"] - u["weight_min"] > TOLERANCE * u["weight_max"]
        if tokens != u["tokens"] or (u["aggregation"] == "token-mean" and uneven):
            return "fail", (
                f"token weights from {u['weight_min']:.3g} to {u['weight_max']:.3g}, {u['tokens']:.0f} tokens in the loss, "
                f"{tokens} in the denominator"
            )
        if tokens and u["weight_max"] * tokens < 1 - 1e-4:
            return "fail", f"the largest weight {u['weight_max']:.6g} is less than 1 / {tokens} tokens"
        if tokens and u["weight_min"] * tokens > 1 + 1e-4:
            return "fail", f"the smallest weight {u['weight_min']:.6g} is more than 1 / {tokens} tokens"
    if readings != {"token-mean"}:
        return "pass", f"reading of token-level: {', '.join(sorted(readings))}"
    return "pass", f"reading token-mean: equal weights 1 / (tokens of the mini-batch) in {len(e.updates)} updates"


def weights_follow_length(kind: str, meaned: bool) -> Judge:
    """Token weights are 1 / length of the response; `meaned`: over the number of responses too.

    The largest and smallest weights that a step used are compared with its recorded lengths.
    """

    def judge(e: Evidence) -> Result:
        kinds = {u["aggregation"] for u in e.updates}
        if kinds - {kind}:
            return "fail", f"losses were aggregated as {', '.join(sorted(kinds))}"
        checked = False
        for s in (s for s in e.recorded_steps if s["updates"]):
            masked = e.recipe.algo.length == "mask-truncated"
            rows = [r for g in e.of(s) if g.has("trained") for r in g.in_loss if r["length"] > 0]
            lengths = [r["length"] for r in rows if not (masked and r["finish"] == "length")]
            each = [(u["denominator_responses"] if meaned else 1, u) for u in s["updates"] if u["weight_max"] > 0]
            if not lengths or not each:
                continue
            seen = (max(n * u["weight_max"] for n, u in each), min(n * u["weight_min"] for n, u in each))
            expected = (1 / min(lengths), 1 / max(lengths))
            if not all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(seen, expected, strict=True)):
                return "fail", f"step {s['step']}: weights {seen} are not 1 / length, {expected}"
            checked |= min(lengths) < max(lengths)
        if not checked:
            return "not shown", "no recorded step had responses of different lengths"
        return "pass", f"token weights are 1 / length of the response{', over the responses' if meaned else ''}"

    return judge


def denominators_match_rollouts(e: Evidence) -> Result:
    """Every token of every trained response is in the loss, truncated or not."""
    for s in e.recorded_steps:
        rows = [r for g in e.of(s) if g.has("trained") for r in g.graded]
        used, there = sum(u["denominator_tokens"] for u in s["updates"]), sum(r["length"] for r in rows)
        if used != there:
            return "fail", f"step {s['step']}: {used} tokens in the losses, {there} in trained responses"
    cut = sum(r["finish"] == "length" for g in e.trained for r in g.in_loss)
    if not cut:
        return "not shown", "no truncated response was trained"
    return "pass", f"every trained token is in the loss, those of {cut} truncated responses included"


@needs_updates
def no_kl(e: Evidence) -> Result:
    """No divergence from a reference model, neither in the loss nor in the reward."""
    used = [u for u in e.updates if u["kl_coef"] != 0]
    if used:
        return "fail", f"a KL term with coefficient {used[0]['kl_coef']:g} was in {len(used)} updates"
    taken = sum(s["kl_penalised"] for s in e.steps) + sum(r["kl_penalty"] is not None for r in e.graded)
    if taken:
        return "fail", "a KL divergence was taken from rewards"
    if any(u["kl_ref"] for u in e.updates):
        return "fail", f"a KL term of {e.total('kl_ref'):.3g} nats was added up, whatever its coefficient"
    return "pass", f"no KL term in {len(e.updates)} updates, none in the rewards"


@needs_updates
def kl_in_loss(e: Evidence) -> Result:
    """GRPO: k3 in the loss, beta 0.04."""
    used = {(u["kl_coef"], u["objective"]["kl"]) for u in e.updates}
    if used != {(0.04, "k3")}:
        seen = ", ".join(f"{kind} with coefficient {c:g}" for c, kind in sorted(used))
        return "fail", f"the loss had {seen}; the paper has k3 with 0.04"
    return "pass", f"k3 with 0.04; it added up to {e.total('kl_ref'):.3g} nats over {e.total('tokens'):.0f} tokens"


def several_updates(e: Evidence) -> Result:
    """More than one update on the samples of a step: on the first, r is 1 and no clip can act."""
    counts = [sum(u["applied"] for u in s["updates"]) for s in e.steps]
    if not any(counts):
        return "not shown", "no update"
    if max(counts) < 2:
        return "fail", "one update a step: the ratio is always 1 and no clip can act (the paper makes 16)"
    return "pass", f"{min(counts)} to {max(counts)} updates a step"


def old_policy_is_the_trainers(e: Evidence) -> Result:
    """r is exactly 1 on the first update of a step."""
    first = [s["first_ratio_deviation"] for s in e.steps if s["first_ratio_deviation"] is not None]
    if not first:
        return "not shown", "no step whose first update used its own samples only"
    if max(first) > TOLERANCE:  # NaN is written as null and is an update that was not applied
        return "fail", f"|r - 1| was {max(first):.3g} on the first update of a step"
    return "pass", f"|r - 1| <= {max(first):.1g} on the first update of {len(first)} steps"


def ledger_adds_up(e: Evidence) -> Result:
    """Every generated group, response and token has one fate."""
    fates = ("trained", "filtered", "surplus", "cancelled", "failed")
    for s in e.steps:
        for unit in ("groups", "responses", "tokens"):
            total, made = sum(s["ledger"][fate][unit] for fate in fates), s["ledger"]["generated"][unit]
            if total != made:
                return "fail", f"step {s['step']}: {total} {unit} have a fate, {made} were generated"
    for s in e.recorded_steps:
        rows = [r for g in e.of(s) for r in g.rows if not r["carried"]]
        for fate in fates:
            mine = [r["length"] for r in rows if r["fate"] == fate]
            said = (s["ledger"][fate]["responses"], s["ledger"][fate]["tokens"])
            if said != (len(mine), sum(mine)):
                return "fail", f"step {s['step']}: {said[0]} responses are said to be {fate}, {len(mine)} were recorded"
    return "pass", f"generated = trained + filtered + surplus + cancelled + failed in {len(e.steps)} steps"
