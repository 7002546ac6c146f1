"""DAPO's objective (eq. 8), whole, for one micro-batch; GRPO's is the same with other numbers.

    J = E [ 1/sum_i L_i  sum_i sum_t  min( r_it A_i, clip(r_it, 1 - eps_low, 1 + eps_high) A_i ) ]
    subject to 0 < #correct < G                       (collect.py admits only such groups)

    r_it = pi_theta(o_it) / pi_old(o_it),   A_i = (R_i - mean R) / std R,   R = correctness + length punishment

Shapes: B sequences, T response tokens (padded to the longest; mask_BT is 1 on the tokens that enter the loss).
The weights come from `reduce.py` and belong to the whole mini-batch, so the losses of micro-batches are *added*.
Left out: advantages (advantages.py), the filter (filters.py), the punishment (length.py), the KL term's reference.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dapo.algo.clip import clipped_loss, dual_clipped_loss, log_ratio
from dapo.algo.diagnostics import Observed, observe
from dapo.algo.kl import k3


@dataclass(frozen=True)
class Objective:
    """The numbers of the objective. `dual_clip` None and `kl_coef` 0 are off."""

    eps_low: float
    eps_high: float
    dual_clip: float | None = None
    kl_coef: float = 0.0


def policy_loss(
    logp_BT: Tensor,
    logp_old_BT: Tensor,
    advantage_B: Tensor,
    mask_BT: Tensor,
    weight_B: Tensor,
    objective: Objective,
    logp_ref_BT: Tensor | None = None,
) -> tuple[Tensor, Observed]:
    """The micro-batch's part of the loss to minimise, and what was seen on the way (token sums, never means).

    Masked positions may hold anything, NaN included. `logp_ref_BT` is needed when `kl_coef` is not 0.
    """
    mask_BT = mask_BT.bool()
    logp_BT = torch.where(mask_BT, logp_BT, 0.0)
    logp_old_BT = torch.where(mask_BT, logp_old_BT, 0.0)
    advantage_B1 = advantage_B[:, None]

    ratio_BT = log_ratio(logp_BT, logp_old_BT).exp()
    loss_BT = clipped_loss(ratio_BT, advantage_B1, 1 - objective.eps_low, 1 + objective.eps_high)
    if objective.dual_clip is not None:
        loss_BT = dual_clipped_loss(loss_BT, advantage_B1, objective.dual_clip)
    surrogate_BT, kl_BT = loss_BT.detach(), None
    if objective.kl_coef:
        assert logp_ref_BT is not None, "kl_coef needs the log-probabilities of the reference model"
        kl_BT = k3(logp_BT, torch.where(mask_BT, logp_ref_BT, 0.0))
        loss_BT = loss_BT + objective.kl_coef * kl_BT

    loss = (loss_BT * mask_BT * weight_B[:, None]).sum()
    return loss, observe(surrogate_BT, ratio_BT, logp_BT, logp_old_BT, advantage_B, mask_BT, objective, kl_BT)
