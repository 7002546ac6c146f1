"""What the bounds do to a token: the surrogate losses.

All actions: (log_ratio_BT, logp_BT, advantage_B1, low, high, mask_BT) -> (loss_BT, free_BT). `free_BT` is the pull on the
log-probability, -dloss / dlogp / A, that the token would feel if no bound existed; diagnostics.py compares it with the
pull that it does feel. Masked places hold 0 in log_ratio_BT and logp_BT.
"""

import torch
from torch import Tensor

from dapo.algo.bounds import Bound

Surrogate = tuple[Tensor, Tensor]


def _within(x_BT: Tensor, low: Bound, high: Bound) -> Tensor:
    return torch.clamp(x_BT, low, high)  # type: ignore[arg-type]  # both numbers, or both tensors


def clipped_loss(
    log_ratio_BT: Tensor, logp_BT: Tensor, advantage_B1: Tensor, low: Bound, high: Bound, mask_BT: Tensor
) -> Surrogate:
    """-min(r A, clip(r, low, high) A), token by token; the gradient is exactly 0 where the clip binds (DAPO eq. 8).

    It binds for A > 0 where r > high, and for A < 0 where r < low.
    """
    del logp_BT, mask_BT
    ratio_BT = log_ratio_BT.exp()
    loss_BT = torch.maximum(-advantage_B1 * ratio_BT, -advantage_B1 * _within(ratio_BT, low, high))
    return loss_BT, ratio_BT.detach()


def weight_clipped_loss(
    log_ratio_BT: Tensor, logp_BT: Tensor, advantage_B1: Tensor, low: Bound, high: Bound, mask_BT: Tensor
) -> Surrogate:
    """-sg(clip(r, low, high)) A log pi: the weight is bounded and every token keeps a gradient.

    CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4 and 5) bounds it from above only.
    """
    del mask_BT
    ratio_BT = log_ratio_BT.detach().exp()
    return -advantage_B1 * _within(ratio_BT, low, high) * logp_BT, ratio_BT


def masked_loss(
    log_ratio_BT: Tensor, logp_BT: Tensor, advantage_B1: Tensor, low: Bound, high: Bound, mask_BT: Tensor
) -> Surrogate:
    """-r A inside the bounds and nothing outside, on both sides and whatever the sign of A.

    A mask that depends on the sign of A (DPPO) has the gradient of `clipped_loss`.
    """
    del logp_BT, mask_BT
    ratio_BT = log_ratio_BT.exp()
    inside_BT = ratio_BT.detach() == _within(ratio_BT.detach(), low, high)
    return torch.where(inside_BT, -advantage_B1 * ratio_BT, 0.0), ratio_BT.detach()


def geometric_loss(
    log_ratio_BT: Tensor, logp_BT: Tensor, advantage_B1: Tensor, low: Bound, high: Bound, mask_BT: Tensor
) -> Surrogate:
    """-A exp(mean_t of the pessimistically clipped log ratios), the same at all tokens of a response (GMPO, eq. 4 and 5).

    A clipped token contributes a constant to the mean, so its gradient is exactly 0.
    """
    del logp_BT
    sign_B1 = advantage_B1.sign()
    log_low, log_high = (
        torch.as_tensor(bound, dtype=log_ratio_BT.dtype, device=log_ratio_BT.device).log() for bound in (low, high)
    )
    clipped_BT = log_ratio_BT.clamp(log_low, log_high)
    kept_BT = sign_B1 * torch.minimum(sign_B1 * log_ratio_BT, sign_B1 * clipped_BT)
    mean_B1 = (kept_BT * mask_BT).sum(1, keepdim=True) / mask_BT.sum(1, keepdim=True).clamp(min=1)
    weight_BT = mean_B1.exp().expand_as(log_ratio_BT)
    return -advantage_B1 * weight_BT, weight_BT.detach()


def plain_loss(
    log_ratio_BT: Tensor, logp_BT: Tensor, advantage_B1: Tensor, low: Bound, high: Bound, mask_BT: Tensor
) -> Surrogate:
    """-A log pi: REINFORCE, without a ratio and so without bounds (RLOO)."""
    del low, high, mask_BT
    return -advantage_B1 * logp_BT, torch.ones_like(log_ratio_BT)


def dual_clipped_loss(loss_BT: Tensor, advantage_B1: Tensor, c: float) -> Tensor:
    """Bounds the loss of negative advantages by -A c: for A < 0 the ratio is capped at c, without gradient beyond.

    Dual-clip PPO, c 10 in the reproduction's script and not in DAPO's paper; DCPO's cap of 10 for A < 0 is the same.
    """
    return torch.where(advantage_B1 < 0, torch.minimum(loss_BT, -advantage_B1 * c), loss_BT)
