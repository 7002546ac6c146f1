"""What an update showed, as sums over tokens: sums of micro-batches add up to those of the batch, means would not.

The judge relies on these. What a bound did to a token is read off the gradient itself: the *pull* on its log-probability is
-dloss / dlogp / A, so an objective that does not clip where it says so is seen here, whatever its configuration.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

P_EDGES = (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)  # between the bins of the old probability
BINS = len(P_EDGES) + 1
SAME = 1e-4  # relative; pulls are float32 quotients
NONE_HIGH, NONE_LOW = (0.0,) * BINS, (math.inf,) * BINS


@dataclass(frozen=True)
class Observed:
    """Sums over the tokens of an update; `+` adds two, and combines extremes as extremes.

    tokens: tokens in the loss. Tokens on which a bound acted (their pull is not what it would be without bounds), by the
    sign of A and the side of 1 on which their ratio lies: clip_high (A > 0, r > 1), clip_low (A < 0, r < 1), clip_dual
    (A < 0, r > 1), clip_far (A > 0, r < 1). between: tokens with A > 0 and r > 1 + eps_low and a live gradient, which
    a symmetric clip would have cut. prob, prob_clip_high: sums of pi_old, over all and over clip_high. kl_old: sum of
    logp_old - logp. kl_ref: sum of the KL term. deviation: largest |r - 1|. moved, spread: over responses
    with two live tokens or more, the largest |r - 1| of those, and the largest difference of two pulls within a response,
    which is 0 if the ratio belongs to the sequence. rho: sum of the correction's weights (1 without one);
    corrected: tokens whose weight is not 1.

    By bins of the old probability (P_EDGES), the bounds as they acted, in ratios: passed_high, cut_high: the largest alive
    and the smallest dead with A > 0 and r > 1; passed_low, cut_low: the smallest alive and the largest dead with A < 0 and
    r < 1. passed_dual, cut_dual: the largest alive and the smallest dead with A < 0 and r > 1, whatever the probability. A
    bin without such a token holds 0 (largest) or inf (smallest).
    """

    tokens: float = 0.0
    clip_high: float = 0.0
    clip_low: float = 0.0
    clip_dual: float = 0.0
    clip_far: float = 0.0
    between: float = 0.0
    prob_clip_high: float = 0.0
    prob: float = 0.0
    kl_old: float = 0.0
    kl_ref: float = 0.0
    rho: float = 0.0
    corrected: float = 0.0
    deviation: float = 0.0
    moved: float = 0.0
    spread: float = 0.0
    passed_dual: float = 0.0
    cut_dual: float = math.inf
    passed_high: tuple[float, ...] = NONE_HIGH
    cut_high: tuple[float, ...] = NONE_LOW
    passed_low: tuple[float, ...] = NONE_LOW
    cut_low: tuple[float, ...] = NONE_HIGH

    def __add__(self, other: Observed) -> Observed:
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return Observed(**{name: COMBINE.get(name, operator.add)(a, b) for name, (a, b) in pairs.items()})


def _largest(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


def _smallest(a: float, b: float) -> float:
    return -_largest(-a, -b)


def _largest_of_each(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(map(_largest, a, b))


def _smallest_of_each(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(map(_smallest, a, b))


COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "deviation": _largest, "moved": _largest, "spread": _largest, "passed_dual": _largest, "cut_dual": _smallest,
    "passed_high": _largest_of_each, "cut_high": _smallest_of_each, "passed_low": _smallest_of_each,
    "cut_low": _largest_of_each,
}  # fmt: skip


def pull_of(surrogate_BT: Tensor, logp_BT: Tensor, advantage_B: Tensor, mask_BT: Tensor) -> Tensor:
    """-dloss / dlogp / A of each token, by differentiating the loss that is used; 0 where A is 0."""
    assert surrogate_BT.requires_grad, "the log-probabilities must carry a gradient, or nothing can be observed"
    (gradient_BT,) = torch.autograd.grad((surrogate_BT * mask_BT).sum(), logp_BT, retain_graph=True)
    advantage_B1 = advantage_B[:, None]
    return torch.where(advantage_B1 != 0, -gradient_BT / advantage_B1, 0.0)


@torch.no_grad()
def _by_probability(x_BT: Tensor, where_BT: Tensor, bin_BT: Tensor, largest: bool) -> tuple[float, ...]:
    out_b = torch.full((BINS,), 0.0 if largest else math.inf, dtype=x_BT.dtype, device=x_BT.device)
    reduce = "amax" if largest else "amin"
    return tuple(out_b.scatter_reduce(0, bin_BT[where_BT], x_BT[where_BT], reduce).tolist())


def observe(
    surrogate_BT: Tensor,
    free_BT: Tensor,
    ratio_BT: Tensor,
    logp_BT: Tensor,
    logp_old_BT: Tensor,
    advantage_B: Tensor,
    mask_BT: Tensor,
    eps_low: float,
    kl_BT: Tensor | None,
    rho_BT: Tensor | None,
) -> Observed:
    """Count what happened to the tokens of one micro-batch.

    mask_BT: bool. surrogate_BT: the token losses before correction and KL; free_BT: the pull without bounds; ratio_BT: what
    the bounds apply to.
    """
    pull_BT = pull_of(surrogate_BT, logp_BT, advantage_B, mask_BT)
    with torch.no_grad():
        positive_BT, negative_BT = (advantage_B > 0)[:, None] & mask_BT, (advantage_B < 0)[:, None] & mask_BT
        acted_BT = (pull_BT - free_BT).abs() > SAME * free_BT
        alive_BT = pull_BT != 0
        above_BT, below_BT = ratio_BT > 1, ratio_BT < 1
        high_BT = positive_BT & acted_BT & above_BT
        prob_BT = logp_old_BT.exp()
        bin_BT = torch.bucketize(prob_BT, torch.tensor(P_EDGES, dtype=prob_BT.dtype, device=prob_BT.device))
        live_BT = alive_BT & (positive_BT | negative_BT)
        live_BT = live_BT & (live_BT.sum(1, keepdim=True) > 1)
        most_B = torch.where(live_BT, pull_BT, -math.inf).amax(1)
        least_B = torch.where(live_BT, pull_BT, math.inf).amin(1)
        spread_B = torch.where(live_BT.any(1), most_B - least_B, 0.0)
        dual_BT, cut_dual_BT = negative_BT & alive_BT & above_BT, negative_BT & ~alive_BT & above_BT
        return Observed(
            tokens=float(mask_BT.sum()),
            clip_high=float(high_BT.sum()),
            clip_low=float((negative_BT & acted_BT & below_BT).sum()),
            clip_dual=float((negative_BT & acted_BT & above_BT).sum()),
            clip_far=float((positive_BT & acted_BT & below_BT).sum()),
            between=float((positive_BT & alive_BT & (ratio_BT > 1 + eps_low)).sum()),
            prob_clip_high=float(prob_BT[high_BT].sum()),
            prob=float(prob_BT[mask_BT].sum()),
            kl_old=float((logp_old_BT - logp_BT)[mask_BT].sum()),
            kl_ref=float(kl_BT[mask_BT].sum()) if kl_BT is not None else 0.0,
            rho=float((rho_BT[mask_BT] if rho_BT is not None else mask_BT).sum()),
            corrected=float((rho_BT[mask_BT] != 1).sum()) if rho_BT is not None else 0.0,
            deviation=float((ratio_BT - 1).abs()[mask_BT].max()) if mask_BT.any() else 0.0,
            moved=float((ratio_BT - 1).abs()[live_BT].max()) if live_BT.any() else 0.0,
            spread=float(spread_B.max()) if spread_B.numel() else 0.0,
            passed_dual=float(ratio_BT[dual_BT].max()) if dual_BT.any() else 0.0,
            cut_dual=float(ratio_BT[cut_dual_BT].min()) if cut_dual_BT.any() else math.inf,
            passed_high=_by_probability(ratio_BT, positive_BT & alive_BT & above_BT, bin_BT, True),
            cut_high=_by_probability(ratio_BT, positive_BT & ~alive_BT & above_BT, bin_BT, False),
            passed_low=_by_probability(ratio_BT, negative_BT & alive_BT & below_BT, bin_BT, False),
            cut_low=_by_probability(ratio_BT, negative_BT & ~alive_BT & below_BT, bin_BT, True),
        )
