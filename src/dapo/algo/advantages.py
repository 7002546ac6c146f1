"""Advantages of responses from their rewards: a baseline and a scale.

reward_G: shaped rewards of the graded responses of one group, in float64. A group of one has no baseline: advantage 0.
Where a group lost a response that could not be graded, the baseline is that of the responses that remain.
Left out: DCPO's smooth standardisation, which remembers earlier visits (smooth.py).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

EPSILON = 1e-6  # the reference code adds it to the standard deviation


def group_std_advantages(reward_G: Tensor) -> Tensor:
    """(R - mean R) / (std R + 1e-6) with the unbiased standard deviation, as the reference code has it (DAPO eq. 9)."""
    if reward_G.numel() < 2:
        return reward_G * 0
    return group_mean_advantages(reward_G) / (reward_G.std(unbiased=True) + EPSILON)


def group_mean_advantages(reward_G: Tensor) -> Tensor:
    """R - mean R, without the scale (Dr.GRPO, arXiv 2503.20783).

    Exactly 0 where all rewards are equal, which rounding would not give: an optimiser that divides by the size of the
    gradient turns 1e-10 into a whole step.
    """
    if not reward_G.numel() or bool(reward_G.max() == reward_G.min()):
        return torch.zeros_like(reward_G)
    return reward_G - reward_G.mean()


def leave_one_out_advantages(reward_G: Tensor) -> Tensor:
    """R_i - mean of the others (RLOO, arXiv 2402.14740, eq. 8)."""
    n = reward_G.numel()
    return group_mean_advantages(reward_G) * (n / (n - 1)) if n > 1 else reward_G * 0


def batch_std_advantages(reward_PG: Sequence[Tensor]) -> list[Tensor]:
    """(R - group mean) / (std of all rewards of the batch + 1e-6) (Lite PPO, arXiv 2508.08221)."""
    every = torch.cat(list(reward_PG))
    scale = every.std(unbiased=True) + EPSILON if every.numel() > 1 else torch.ones(())
    return [group_mean_advantages(reward_G) / scale for reward_G in reward_PG]


def batch_whitened_advantages(reward_PG: Sequence[Tensor]) -> list[Tensor]:
    """R - group mean, then divided by the standard deviation of these over the batch, + 1e-6 (REINFORCE++ baseline,
    arXiv 2501.03262). Their mean over the batch is 0 already, as it is in each group."""
    centred = [group_mean_advantages(reward_G) for reward_G in reward_PG]
    every = torch.cat(centred)
    scale = every.std(unbiased=True) + EPSILON if every.numel() > 1 else torch.ones(())
    return [centred_G / scale for centred_G in centred]
