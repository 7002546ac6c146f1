"""Draws tokens by inverting the cumulative distribution with one uniform number per row.

The number comes from the row's own stream (seed, position), so a response does not depend on its neighbours or on the
batch. `torch.multinomial` costs twenty times as much on a CPU.
"""

import numpy as np
import torch
from torch import Tensor

from dapo.types import Sampling

_BITS = 23  # so that u * total < total in float32, and a token of probability 0 is never drawn


def uniform(seed_N: np.ndarray, position_N: np.ndarray) -> np.ndarray:
    """A number in [0, 1) for each (seed, position): splitmix64's output function over a Weyl sequence."""
    with np.errstate(over="ignore"):
        z = seed_N.astype(np.uint64) + (position_N.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    u_N: np.ndarray = (z >> np.uint64(64 - _BITS)).astype(np.float32) / np.float32(2**_BITS)
    return u_N


def _restrict(probability_NV: Tensor, sampling: Sampling) -> Tensor:
    """Zero what top-k and then top-p exclude. The most probable token always stays; ties at the edge of top-k stay."""
    if sampling.top_k:
        k = min(sampling.top_k, probability_NV.shape[-1])
        edge_N1 = probability_NV.topk(k, dim=-1).values[:, -1:]
        probability_NV = torch.where(probability_NV >= edge_N1, probability_NV, 0.0)
    if sampling.top_p < 1:
        ordered, index = probability_NV.sort(dim=-1, descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered
        keep = before < sampling.top_p * ordered.sum(-1, keepdim=True)
        probability_NV = torch.zeros_like(ordered).scatter(1, index, torch.where(keep, ordered, 0.0))
    return probability_NV


def draw(logits_NV: Tensor, sampling: Sampling, u_N: Tensor) -> tuple[Tensor, Tensor]:
    """Token ids (N) and their log-probabilities (N) at the sampling temperature, before top-k and top-p.

    Temperature 0 takes the most probable token and reports its log-probability at temperature 1.
    """
    if sampling.temperature not in (0, 1):
        logits_NV = logits_NV.float() / sampling.temperature
    probability_NV = torch.softmax(logits_NV, -1, dtype=torch.float32)
    if sampling.temperature == 0:
        token_N = logits_NV.argmax(-1)
    else:
        cumulative_NV = _restrict(probability_NV, sampling).cumsum(-1)
        goal_N1 = u_N[:, None] * cumulative_NV[:, -1:]
        token_N = torch.searchsorted(cumulative_NV, goal_N1, right=True)[:, 0].clamp_max(logits_NV.shape[-1] - 1)
    return token_N, probability_NV.gather(1, token_N[:, None])[:, 0].log()
