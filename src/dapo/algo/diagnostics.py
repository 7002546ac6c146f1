"""What an update showed, as sums over tokens: sums of micro-batches add up to those of the batch, means would not.

The judge relies on these. Whether a token's gradient was alive is read off the loss itself (it is -r A, and nothing else),
so an objective that does not clip where it says so is seen here, whatever its configuration.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dapo.algo.objective import Objective


@dataclass(frozen=True)
class Observed:
    """Sums over the tokens of an update. `+` adds two; `passed_max`, `passed_min` and `deviation` combine as extremes.

    tokens: tokens in the loss. clip_high: tokens with A > 0 whose gradient was cut. clip_low: the same with A < 0 and
    r < 1. clip_dual: with A < 0 and r > 1, by the dual clip. passed_max / passed_min: the largest ratio with A > 0 and the
    smallest with A < 0 whose gradient was alive. between: tokens with A > 0 and r > 1 + eps_low, alive only because the
    upper bound is raised. prob_clip_high: sum of pi_old over clip_high. kl_old: sum of logp_old - logp. kl_ref: sum of the
    KL term. deviation: largest |r - 1|.
    """

    tokens: float = 0.0
    clip_high: float = 0.0
    clip_low: float = 0.0
    clip_dual: float = 0.0
    between: float = 0.0
    prob_clip_high: float = 0.0
    prob: float = 0.0
    kl_old: float = 0.0
    kl_ref: float = 0.0
    passed_max: float = 0.0
    passed_min: float = float("inf")
    deviation: float = 0.0

    def __add__(self, other: Observed) -> Observed:
        combine = {"passed_max": _largest, "passed_min": _smallest, "deviation": _largest}
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return Observed(**{name: combine.get(name, operator.add)(a, b) for name, (a, b) in pairs.items()})


def _largest(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


def _smallest(a: float, b: float) -> float:
    return -_largest(-a, -b)


def _extreme(x_BT: Tensor, where_BT: Tensor, largest: bool, empty: float) -> float:
    if not where_BT.any():
        return empty
    chosen = x_BT[where_BT]
    return float(chosen.max() if largest else chosen.min())


@torch.no_grad()
def observe(
    surrogate_BT: Tensor,
    ratio_BT: Tensor,
    logp_BT: Tensor,
    logp_old_BT: Tensor,
    advantage_B: Tensor,
    mask_BT: Tensor,
    objective: Objective,
    kl_BT: Tensor | None,
) -> Observed:
    """Count what happened to the tokens of one micro-batch (mask_BT: bool; surrogate_BT: their losses without KL)."""
    positive_BT = (advantage_B > 0)[:, None] & mask_BT
    negative_BT = (advantage_B < 0)[:, None] & mask_BT
    alive_BT = surrogate_BT == -advantage_B[:, None] * ratio_BT
    high_BT = positive_BT & ~alive_BT
    low_BT = negative_BT & ~alive_BT & (ratio_BT < 1)
    dual_BT = negative_BT & ~alive_BT & (ratio_BT > 1)
    between_BT = positive_BT & alive_BT & (ratio_BT > 1 + objective.eps_low)
    prob_BT = logp_old_BT.exp()
    return Observed(
        tokens=float(mask_BT.sum()),
        clip_high=float(high_BT.sum()),
        clip_low=float(low_BT.sum()),
        clip_dual=float(dual_BT.sum()),
        between=float(between_BT.sum()),
        prob_clip_high=float(prob_BT[high_BT].sum()),
        prob=float(prob_BT[mask_BT].sum()),
        kl_old=float((logp_old_BT - logp_BT)[mask_BT].sum()),
        kl_ref=float(kl_BT[mask_BT].sum()) if kl_BT is not None else 0.0,
        passed_max=_extreme(ratio_BT, positive_BT & alive_BT, True, 0.0),
        passed_min=_extreme(ratio_BT, negative_BT & alive_BT, False, float("inf")),
        deviation=_extreme((ratio_BT - 1).abs(), mask_BT, True, 0.0),
    )
