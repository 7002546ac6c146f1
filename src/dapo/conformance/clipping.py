"""Clauses about the ratio and its bounds, from the gradients that were seen alive and dead (events, not configuration).

An update records, by bins of the old probability, the extremes of the ratios whose gradient was alive and of those whose
gradient was dead (algo/diagnostics.py). Between the two lies the bound that really acted; here it is compared with a
formula that shares no code with the trainer's.
"""

import math
from collections.abc import Callable

from dapo.conformance.evidence import Evidence, Json

Result = tuple[str, str]  # (pass | fail | not shown, evidence)
Judge = Callable[[Evidence], Result]
Formula = Callable[[float], tuple[float, float]]  # old probability -> (low, high)
TOLERANCE = 1e-6
ROUNDING = 1e-4  # of a float32 ratio against a bound in float64
EDGES = (0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)  # of the bins; events hold one value for each bin


def needs_updates(judge: Judge) -> Judge:
    """Nothing is shown where no update was made."""

    def guarded(e: Evidence) -> Result:
        return judge(e) if e.updates else ("not shown", "no update")

    return guarded


def fixed(eps_low: float, eps_high: float) -> Formula:
    """1 - eps_low and 1 + eps_high, whatever the probability."""
    return lambda p: (1 - eps_low, 1 + eps_high)


def adaptive(eps_low: float, eps_high: float) -> Formula:
    """The larger root of |r - 1| r p = eps on either side; from 1/2 to 10 (DCPO, ALGORITHMS section 4)."""

    def bounds(p: float) -> tuple[float, float]:
        p = max(p, 1e-9)
        low = (1 + math.sqrt(max(1 - 4 * eps_low / p, 0))) / 2
        return low, min((1 + math.sqrt(1 + 4 * eps_high / p)) / 2, 10.0)

    return bounds


def _eps(update: Json) -> tuple[float, float]:
    return update["objective"]["eps_low"], update["objective"]["eps_high"]


def _contradiction_above(update: Json, formula: Formula) -> str | None:
    """A live gradient above the upper bound, or a dead one below it; bounds fall with the probability."""
    for a, b, alive, dead in zip(EDGES, EDGES[1:], update["passed_high"], update["cut_high"], strict=False):
        if alive > formula(a)[1] * (1 + ROUNDING):
            return f"a token with ratio {alive:.4f} kept its gradient above the upper bound {formula(a)[1]:.4f}"
        if dead is not None and dead < formula(b)[1] * (1 - ROUNDING):
            return f"a token with ratio {dead:.4f} lost its gradient below the upper bound {formula(b)[1]:.4f}"
    return None


def _contradiction_below(update: Json, formula: Formula) -> str | None:
    """A live gradient below the lower bound, or a dead one above it; bounds rise with the probability."""
    for a, b, alive, dead in zip(EDGES, EDGES[1:], update["passed_low"], update["cut_low"], strict=False):
        if alive is not None and alive < formula(a)[0] * (1 - ROUNDING):
            return f"a token with ratio {alive:.4f} kept its gradient below the lower bound {formula(a)[0]:.4f}"
        if dead > formula(b)[0] * (1 + ROUNDING):
            return f"a token with ratio {dead:.4f} lost its gradient above the lower bound {formula(b)[0]:.4f}"
    return None


def _first(e: Evidence, look: Callable[[Json, Formula], str | None], formula: Callable[[float, float], Formula]) -> str:
    return next((found for u in e.updates if (found := look(u, formula(*_eps(u))))), "")


@needs_updates
def upper_bound_is_raised(e: Evidence) -> Result:
    """Clip-Higher: the upper bound is farther from 1 than the lower one, acted, and where it says."""
    symmetric = [u for u in e.updates if _eps(u)[1] <= _eps(u)[0] + TOLERANCE]
    if symmetric:
        return "fail", f"eps_low {_eps(symmetric[0])[0]:g}, eps_high {_eps(symmetric[0])[1]:g}: not raised"
    if wrong := _first(e, _contradiction_above, fixed):
        return "fail", wrong
    between, clipped = e.total("between"), e.total("clip_high")
    if not between:
        beyond = f"; {clipped:.0f} were clipped above" if clipped else ""
        return "not shown", f"no token's ratio lay between the symmetric and the raised bound{beyond}"
    largest = max(max(u["passed_high"]) for u in e.updates)
    return "pass", (
        f"{between:.0f} tokens were trained at ratios that a symmetric clip would have cut; {clipped:.0f} tokens were "
        f"clipped above; largest ratio with a live gradient {largest:.4f}"
    )


def lower_bound_holds(e: Evidence) -> Result:
    """Tokens with A < 0 are clipped below 1 - eps_low, and nowhere else."""
    if wrong := _first(e, _contradiction_below, fixed):
        return "fail", wrong
    clipped = e.total("clip_low")
    if not clipped:
        return "not shown", "no token's ratio went below the lower bound"
    return "pass", f"{clipped:.0f} tokens were clipped below"


@needs_updates
def symmetric_clip(e: Evidence) -> Result:
    """GRPO: 1 - eps to 1 + eps, and where it says."""
    uneven = [u for u in e.updates if abs(_eps(u)[0] - _eps(u)[1]) > TOLERANCE]
    if uneven:
        return "fail", f"eps_low {_eps(uneven[0])[0]:g}, eps_high {_eps(uneven[0])[1]:g}: not symmetric"
    if wrong := _first(e, _contradiction_above, fixed) or _first(e, _contradiction_below, fixed):
        return "fail", wrong
    clipped = e.total("clip_high") + e.total("clip_low")
    if not clipped:
        return "not shown", "no token's ratio left the bounds"
    return "pass", f"{clipped:.0f} tokens were clipped, all outside 1 - eps to 1 + eps"


@needs_updates
def bounds_follow_the_probability(e: Evidence) -> Result:
    """DCPO: rare tokens have wider bounds, by the formula."""
    if wrong := _first(e, _contradiction_above, adaptive) or _first(e, _contradiction_below, adaptive):
        return "fail", wrong
    widest = max(max(u["passed_high"]) for u in e.updates)
    lowest = min((x for u in e.updates for x in u["passed_low"] if x is not None), default=1.0)
    likely = adaptive(*_eps(e.updates[0]))(1.0)
    if widest <= likely[1] and lowest >= likely[0]:
        return "not shown", "no token kept its gradient beyond the bounds of a certain token: they never differed"
    clipped = e.total("clip_high") + e.total("clip_low")
    return "pass", (
        f"live gradients at ratios from {lowest:.3f} to {widest:.3f}, dead ones of {clipped:.0f} tokens, all on their side of "
        f"the bound for their probability"
    )


def clip_values(rule: str, low: float, high: float) -> Judge:
    """The numbers of the paper, as every update used them."""

    @needs_updates
    def judge(e: Evidence) -> Result:
        for u in e.updates:
            seen = (u["objective"]["bounds"], *_eps(u))
            if seen[0] != rule or abs(seen[1] - low) > TOLERANCE or abs(seen[2] - high) > TOLERANCE:
                return (
                    "fail",
                    f"{seen[0]} with eps {seen[1]:g} / {seen[2]:g}; the paper has {rule} with {low:g} / {high:g}",
                )
        return "pass", f"{rule} with eps {low:g} / {high:g} in {len(e.updates)} updates"

    return judge


def ratio_of_each_token(e: Evidence) -> Result:
    """Within a response the pulls on its tokens differ, as token ratios do; a sequence's ratio pulls all alike."""
    moved = [u for u in e.updates if u["moved"] > TOLERANCE]
    if not moved:
        return "not shown", "no response had two tokens with a gradient and ratios other than 1"
    spread = max(u["spread"] for u in moved)
    if spread <= TOLERANCE:
        return "fail", "all tokens of a response were pulled by one weight: the ratio is not the token's"
    return "pass", f"weights of tokens within one response differed by up to {spread:.3f}"


@needs_updates
def no_other_clip(e: Evidence) -> Result:
    """The clip acts for A > 0 above and for A < 0 below, nowhere else."""
    dual, far = e.total("clip_dual"), e.total("clip_far")
    if dual or far:
        return "fail", f"{dual:.0f} tokens with A < 0 were cut above (dual clip), {far:.0f} with A > 0 below"
    return "pass", "no token with A < 0 was cut above, none with A > 0 below"


def cap_for_negative_advantages(limit: float) -> Judge:
    """The ratio of tokens with A < 0 is capped at `limit`, neither above nor below it."""

    def judge(e: Evidence) -> Result:
        lowest = min((u["cut_dual"] for u in e.updates if u["cut_dual"] is not None), default=math.inf)
        if lowest < limit * (1 - ROUNDING):
            return "fail", f"a token with A < 0 and ratio {lowest:.3f} lost its gradient below {limit:g}"
        largest = max((u["passed_dual"] for u in e.updates), default=0.0)
        if largest > limit * (1 + ROUNDING):
            return "fail", f"a token with A < 0 and ratio {largest:.3f} kept its gradient above {limit:g}"
        if e.total("clip_far"):
            return "fail", f"{e.total('clip_far'):.0f} tokens with A > 0 were cut below"
        if not e.total("clip_dual"):
            return "not shown", f"no token with A < 0 reached a ratio of {limit:g}; the largest was {largest:.3f}"
        return "pass", f"{e.total('clip_dual'):.0f} tokens with A < 0 were capped at {limit:g}"

    return judge


def no_correction(e: Evidence) -> Result:
    """Token losses are not weighed by pi_old / pi_engine."""
    tokens, corrected = e.total("tokens"), e.total("corrected")
    if not tokens:
        return "not shown", "no update"
    if corrected:
        mean = e.total("rho") / tokens
        return (
            "fail",
            f"{corrected:.0f} of {tokens:.0f} tokens were weighed by pi_old / pi_engine, {mean:.4f} on average",
        )
    return "pass", f"no weights in the losses of {tokens:.0f} tokens"
