"""Intervals. No figure of the system is printed without one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


def clustered_mean(values: Sequence[float], clusters: Sequence[str], seed: int = 0) -> Estimate:
    """Mean of `values` with a percentile bootstrap over clusters (all values of a cluster are drawn together).

    Use one value per problem (its mean over k samples): samples of one problem, and problems with the same numbers,
    are not independent. Errors: ValueError on empty or unequal input.
    """
    if not values or len(values) != len(clusters):
        raise ValueError(f"need one cluster for each value and at least one, got {len(values)} and {len(clusters)}")
    _, index = np.unique(np.asarray(clusters), return_inverse=True)
    total = np.bincount(index, weights=np.asarray(values, dtype=float))
    count = np.bincount(index).astype(float)
    draws = np.random.default_rng(seed).integers(0, len(total), (RESAMPLES, len(total)))
    means = total[draws].sum(1) / count[draws].sum(1)
    low, high = np.percentile(means, [2.5, 97.5])
    return Estimate(float(np.mean(values)), float(low), float(high))
