"""Weights against the mismatch of sampler and trainer: rho = pi_old / pi_engine (ALGORITHMS section 6). Not in DAPO.

All functions: logp_old_BT (trainer), logp_gen_BT (engine), mask_BT, low, high -> weight_BT, which multiplies the token
losses. No gradient flows through it, and it changes no denominator.
"""

import torch
from torch import Tensor

from dapo.algo.ratio import LOG_RATIO_LIMIT


def _log_rho(logp_old_BT: Tensor, logp_gen_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return torch.where(mask_BT, logp_old_BT - logp_gen_BT, 0.0)


def truncated_per_token(logp_old_BT: Tensor, logp_gen_BT: Tensor, mask_BT: Tensor, low: float, high: float) -> Tensor:
    """min(rho_t, high): truncated importance sampling."""
    del low
    return _log_rho(logp_old_BT, logp_gen_BT, mask_BT).clamp(max=LOG_RATIO_LIMIT).exp().clamp(max=high)


def truncated_per_sequence(
    logp_old_BT: Tensor, logp_gen_BT: Tensor, mask_BT: Tensor, low: float, high: float
) -> Tensor:
    """min(prod_t rho_t, high), the same at all tokens of a response."""
    del low
    total_B1 = _log_rho(logp_old_BT, logp_gen_BT, mask_BT).sum(1, keepdim=True)
    return total_B1.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp().clamp(max=high).expand_as(logp_old_BT)


def masked_per_token(logp_old_BT: Tensor, logp_gen_BT: Tensor, mask_BT: Tensor, low: float, high: float) -> Tensor:
    """rho_t where low <= rho_t <= high, and 0 elsewhere: masked importance sampling."""
    rho_BT = _log_rho(logp_old_BT, logp_gen_BT, mask_BT).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    return torch.where((rho_BT >= low) & (rho_BT <= high), rho_BT, 0.0)
