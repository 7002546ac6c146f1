"""Advantages of the responses of one group (ALGORITHMS 1.1; DAPO eq. 9, GRPO section 4.1.2).

Left out: everything that needs more than one group. Where groups lose a response that could not be graded, the baseline
is that of the responses that remain.
"""

from torch import Tensor

EPSILON = 1e-6  # the reference code adds it to the standard deviation


def group_std_advantages(reward_G: Tensor) -> Tensor:
    """(R - mean R) / (std R + 1e-6) with the unbiased standard deviation, as the reference code computes it.

    reward_G: shaped rewards of the responses of one group. A group of one has no baseline: advantage 0.
    """
    if reward_G.numel() < 2:
        return reward_G * 0
    return (reward_G - reward_G.mean()) / (reward_G.std(unbiased=True) + EPSILON)


def group_mean_advantages(reward_G: Tensor) -> Tensor:
    """R - mean R, without the scale (Dr.GRPO). A group of one has no baseline: advantage 0."""
    return reward_G - reward_G.mean()
