"""What an update showed, as sums over tokens: sums of micro-batches add up to those of the batch, means would not.

The judge relies on these: that the clip was live, on which side, and between which bounds, is seen here and not read
from a configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dapo.algo.objective import Objective


@dataclass(frozen=True)
class Observed:
    """Sums over the tokens of an update. `+` adds two; `ratio_max`, `ratio_min` and `deviation` combine as extremes.

    tokens: tokens in the loss. clip_high / clip_low: tokens with A > 0 above, or A < 0 below, the bounds (gradient 0).
    clip_dual: tokens bounded by the dual clip. passed_max / passed_min: the largest ratio with A > 0 and the smallest
    with A < 0 whose gradient was alive. between: tokens with A > 0, 1 + eps_low < r <= 1 + eps_high, alive only
    because the upper bound is raised. prob_clip_high: sum of pi_old over clip_high. kl_old: sum of logp_old - logp.
    kl_ref: sum of the KL term. deviation: largest |r - 1|.
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
        combine = {"passed_max": max, "passed_min": min, "deviation": max}
        return Observed(
            **{
                f.name: combine.get(f.name, lambda a, b: a + b)(getattr(self, f.name), getattr(other, f.name))
                for f in fields(self)
            }
        )


def _extreme(x_BT: Tensor, where_BT: Tensor, largest: bool, empty: float) -> float:
    if not where_BT.any():
        return empty
    chosen = x_BT[where_BT]
    return float(chosen.max() if largest else chosen.min())


@torch.no_grad()
def observe(
    ratio_BT: Tensor,
    logp_BT: Tensor,
    logp_old_BT: Tensor,
    advantage_B: Tensor,
    mask_BT: Tensor,
    objective: Objective,
    kl_BT: Tensor | None,
) -> Observed:
    """Count what happened to the tokens of one micro-batch (mask_BT: bool)."""
    positive_BT = (advantage_B > 0)[:, None] & mask_BT
    negative_BT = (advantage_B < 0)[:, None] & mask_BT
    high_BT = positive_BT & (ratio_BT > 1 + objective.eps_high)
    low_BT = negative_BT & (ratio_BT < 1 - objective.eps_low)
    dual_BT = torch.zeros_like(mask_BT)
    if objective.dual_clip is not None:
        dual_BT = negative_BT & (ratio_BT > objective.dual_clip)
    between_BT = positive_BT & (ratio_BT > 1 + objective.eps_low) & ~high_BT
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
        passed_max=_extreme(ratio_BT, positive_BT & ~high_BT, True, 0.0),
        passed_min=_extreme(ratio_BT, negative_BT & ~low_BT, False, float("inf")),
        deviation=_extreme((ratio_BT - 1).abs(), mask_BT, True, 0.0),
    )
