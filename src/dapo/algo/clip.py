"""The clipped surrogate per token (DAPO eq. 8 with Clip-Higher; PPO's minimum; dual clip)."""

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0  # guards exp() against overflow; the reference code does the same


def log_ratio(logp_BT: Tensor, logp_old_BT: Tensor) -> Tensor:
    """log(pi_theta / pi_old) per token, limited to +-20 before any exponential."""
    return (logp_BT - logp_old_BT).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def clipped_loss(ratio_BT: Tensor, advantage_B1: Tensor, low: float, high: float) -> Tensor:
    """-min(r A, clip(r, low, high) A), token by token; the gradient is exactly 0 where the clip binds.

    It binds for A > 0 where r > high, and for A < 0 where r < low.
    """
    return torch.maximum(-advantage_B1 * ratio_BT, -advantage_B1 * ratio_BT.clamp(low, high))


def dual_clipped_loss(loss_BT: Tensor, advantage_B1: Tensor, c: float) -> Tensor:
    """Bounds the loss of negative advantages by -A c (dual-clip PPO). Not in the paper; in the reproduction's script."""
    return torch.where(advantage_B1 < 0, torch.minimum(loss_BT, -advantage_B1 * c), loss_BT)
