"""Smooth advantage standardisation: a prompt's rewards against all its visits (DCPO, arXiv 2509.02333; ALGORITHMS 4).

The i-th time that a prompt is rolled out its rewards are standardised twice, by their own mean and deviation and by those of
all i visits; two blends of both are made, and each response takes the one with the smaller magnitude. On the first visit this
is GRPO's advantage with the population standard deviation and no epsilon, bit for bit. Visits count as equals, whatever the
number of their responses, and i counts the visits of the prompt, not steps.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

TIE = 1e-9  # two blends of one magnitude and opposite signs are told apart by rounding alone: the second one is taken


@dataclass(frozen=True)
class Visits:
    """What is remembered of a prompt: how often it was visited, and mean and population variance of its rewards."""

    count: int = 0
    mean: float = 0.0
    var: float = 0.0


def standardise(reward_G: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """(R - mean) / sqrt(var), and 0 where the variance is 0."""
    return (reward_G - mean) / var.sqrt() if float(var) > 0 else torch.zeros_like(reward_G)


def population(reward_G: Tensor) -> tuple[Tensor, Tensor]:
    """(mean, population variance); the variance of equal rewards is exactly 0, which rounding would not give."""
    if bool(reward_G.max() == reward_G.min()):
        return reward_G[0], torch.zeros_like(reward_G[0])
    return reward_G.mean(), reward_G.var(unbiased=False)


def merge(before: Visits, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance over all visits, this one (mean, var) included, without keeping a reward."""
    i = before.count + 1
    gap = before.mean - mean
    total_mean = (mean + before.count * before.mean) / i
    total_var = (var + before.count * before.var + before.count / i * gap * gap) / i
    return total_mean, total_var


def smooth_advantages(reward_G: Tensor, before: Visits) -> tuple[Tensor, Visits]:
    """(advantage_G, the visits with this one added). Errors: ValueError on an empty group."""
    if not reward_G.numel():
        raise ValueError("a visit needs at least one graded response")
    mean, var = population(reward_G)
    total_mean, total_var = merge(before, mean, var)
    i = before.count + 1
    new_G, total_G = standardise(reward_G, mean, var), standardise(reward_G, total_mean, total_var)
    by_new_G = (i - 1) / i * new_G + 1 / i * total_G
    by_total_G = 1 / i * new_G + (i - 1) / i * total_G
    smaller_G = by_new_G.abs() < by_total_G.abs() * (1 - TIE)
    advantage_G = torch.where(smaller_G, by_new_G, by_total_G)
    return advantage_G, Visits(i, float(total_mean), float(total_var))
