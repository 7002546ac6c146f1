"""Importance ratios pi_theta / pi_old, per token or per sequence, as logarithms.

All functions: logp_BT, logp_old_BT, mask_BT (bool; masked places hold 0) -> log_ratio_BT. Limited to +-20, so that no
exponential overflows; the reference code does the same.
"""

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0


def token_log_ratio(logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """log r_it of each token (DAPO eq. 8, GRPO eq. 3)."""
    del mask_BT  # one signature for all levels
    return (logp_BT - logp_old_BT).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def sequence_log_ratio(logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """log s_i = (1/L_i) sum_t log r_it, the same at all tokens of a response (GSPO, arXiv 2507.18071, eq. 7).

    As all tokens of a response weigh the same in the loss, its gradient is GSPO's under every aggregation.
    """
    total_B1 = ((logp_BT - logp_old_BT) * mask_BT).sum(1, keepdim=True)
    mean_B1 = total_B1 / mask_BT.sum(1, keepdim=True).clamp(min=1)
    return torch.where(mask_BT, mean_B1.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT), 0.0)
