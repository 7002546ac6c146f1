"""Bounds on the ratio as a function of the old probability.

All functions: logp_old_BT, eps_low, eps_high -> (low, high), numbers or tensors (B, T). No gradient flows through them.
"""

import math

import torch
from torch import Tensor

Bound = Tensor | float
ADAPTIVE_FLOOR = 0.5
ADAPTIVE_CEILING = 10.0


def fixed_bounds(logp_old_BT: Tensor, eps_low: float, eps_high: float) -> tuple[Bound, Bound]:
    """1 - eps_low and 1 + eps_high, whatever the probability (DAPO eq. 8; symmetric in GRPO eq. 3)."""
    del logp_old_BT
    return 1 - eps_low, 1 + eps_high


def log_bounds(logp_old_BT: Tensor, eps_low: float, eps_high: float) -> tuple[Bound, Bound]:
    """exp(-eps_low) and exp(eps_high): the bounds are on the log ratio (GMPO, arXiv 2507.20673)."""
    del logp_old_BT
    return math.exp(-eps_low), math.exp(eps_high)


def total_variation_bounds(logp_old_BT: Tensor, eps_low: float, eps_high: float) -> tuple[Bound, Bound]:
    """-eps_low <= pi - pi_old <= eps_high, so 1 - eps_low / p_old and 1 + eps_high / p_old: the *probability* may
    change by so much, as in DPPO's binary total variation. A lower bound of 0 never acts."""
    inverse_BT = (-logp_old_BT.detach()).exp()
    return (1 - eps_low * inverse_BT).clamp(min=0), 1 + eps_high * inverse_BT


def adaptive_bounds(logp_old_BT: Tensor, eps_low: float, eps_high: float) -> tuple[Bound, Bound]:
    """Dynamic adaptive clipping: |r - 1| pi_theta <= eps, with pi_theta = r p_old, solved for r (DCPO, arXiv 2509.02333):

    low = 1/2 + 1/2 sqrt(max(1 - 4 eps_low / p_old, 0)), high = min(1/2 + 1/2 sqrt(1 + 4 eps_high / p_old), 10).
    """
    inverse_BT = (-logp_old_BT.detach()).exp()
    low_BT = ADAPTIVE_FLOOR + 0.5 * torch.sqrt((1 - 4 * eps_low * inverse_BT).clamp(min=0))
    high_BT = (0.5 + 0.5 * torch.sqrt(1 + 4 * eps_high * inverse_BT)).clamp(max=ADAPTIVE_CEILING)
    return low_BT, high_BT
