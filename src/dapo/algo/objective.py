"""DAPO's objective (eq. 8), whole, for one micro-batch; its neighbours are the same with other functions and numbers.

    J = E [ 1/sum_i L_i  sum_i sum_t  min( r_it A_i, clip(r_it, 1 - eps_low, 1 + eps_high) A_i ) ]
    subject to 0 < #correct < G                       (collect.py admits only such groups)

    r_it = pi_theta(o_it) / pi_old(o_it),   A_i = (R_i - mean R) / std R,   R = correctness + length punishment

Shapes: B sequences, T response tokens (padded to the longest; mask_BT is 1 on the tokens that enter the loss).
The weights come from `reduce.py` and belong to the whole mini-batch, so the losses of micro-batches are *added*.
Left out: advantages (advantages.py, smooth.py), the filter (filters.py), the punishment (length.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dapo.algo.bounds import Bound, fixed_bounds
from dapo.algo.clip import Surrogate, clipped_loss, dual_clipped_loss
from dapo.algo.diagnostics import Observed, observe
from dapo.algo.kl import k3
from dapo.algo.ratio import token_log_ratio


@dataclass(frozen=True)
class Objective:
    """The numbers of the objective and the functions on its axes; the defaults are DAPO's and GRPO's.

    bounds: bounds.py; ratio: ratio.py; action: clip.py; kl: kl.py; correction: correction.py, None is off. `dual_clip`
    None and `kl_coef` 0 (the term in the loss) are off. `rho_low`, `rho_high`: limits of the correction.
    """

    eps_low: float
    eps_high: float
    dual_clip: float | None = None
    kl_coef: float = 0.0
    bounds: Callable[[Tensor, float, float], tuple[Bound, Bound]] = fixed_bounds
    ratio: Callable[[Tensor, Tensor, Tensor], Tensor] = token_log_ratio
    action: Callable[[Tensor, Tensor, Tensor, Bound, Bound, Tensor], Surrogate] = clipped_loss
    kl: Callable[[Tensor, Tensor], Tensor] = k3
    correction: Callable[[Tensor, Tensor, Tensor, float, float], Tensor] | None = None
    rho_low: float = 0.0
    rho_high: float = 2.0


def policy_loss(
    logp_BT: Tensor,
    logp_old_BT: Tensor,
    advantage_B: Tensor,
    mask_BT: Tensor,
    weight_B: Tensor,
    objective: Objective,
    logp_ref_BT: Tensor | None = None,
    logp_gen_BT: Tensor | None = None,
) -> tuple[Tensor, Observed]:
    """The micro-batch's part of the loss to minimise, and what was seen on the way (token sums, never means).

    Masked positions may hold anything, NaN included. `logp_ref_BT` is needed when `kl_coef` is not 0, `logp_gen_BT` when
    there is a correction.
    """
    mask_BT = mask_BT.bool()
    logp_BT = torch.where(mask_BT, logp_BT, 0.0)
    logp_old_BT = torch.where(mask_BT, logp_old_BT, 0.0)
    advantage_B1 = advantage_B[:, None]

    log_ratio_BT = objective.ratio(logp_BT, logp_old_BT, mask_BT)
    low, high = objective.bounds(logp_old_BT, objective.eps_low, objective.eps_high)
    surrogate_BT, free_BT = objective.action(log_ratio_BT, logp_BT, advantage_B1, low, high, mask_BT)
    if objective.dual_clip is not None:
        surrogate_BT = dual_clipped_loss(surrogate_BT, advantage_B1, objective.dual_clip)
    loss_BT, kl_BT, rho_BT = surrogate_BT, None, None
    if objective.correction is not None:
        assert logp_gen_BT is not None, "a correction needs the log-probabilities of the engine"
        rho_BT = objective.correction(logp_old_BT, logp_gen_BT, mask_BT, objective.rho_low, objective.rho_high)
        loss_BT = loss_BT * rho_BT
    if objective.kl_coef:
        assert logp_ref_BT is not None, "kl_coef needs the log-probabilities of the reference model"
        kl_BT = objective.kl(logp_BT, torch.where(mask_BT, logp_ref_BT, 0.0))
        loss_BT = loss_BT + objective.kl_coef * kl_BT

    loss = (loss_BT * mask_BT * weight_B[:, None]).sum()
    ratio_BT = log_ratio_BT.detach().exp()
    seen = observe(
        surrogate_BT, free_BT, ratio_BT, logp_BT, logp_old_BT, advantage_B, mask_BT, objective.eps_low, kl_BT, rho_BT
    )
    return loss, seen
