"""Intervals: what they cover, what they refuse."""

import pytest

from dapo.stats import Estimate, clustered_mean


def test_the_mean_is_of_values_and_the_interval_of_clusters():
    estimate = clustered_mean([1.0, 1.0, 1.0, 0.0], ["a", "a", "a", "b"])
    assert estimate == Estimate(0.75, 0.0, 1.0)  # two clusters: a resample holds either one or both


def test_more_clusters_narrow_the_interval():
    wide = clustered_mean([0.0, 1.0] * 4, [str(i) for i in range(8)])
    narrow = clustered_mean([0.0, 1.0] * 64, [str(i) for i in range(128)])
    assert narrow.mean == wide.mean == 0.5
    assert 2.5 < (wide.high - wide.low) / (narrow.high - narrow.low) < 6  # about the root of 16
    assert clustered_mean([0.3] * 5, list("abcde")) == Estimate(0.3, pytest.approx(0.3), pytest.approx(0.3))


def test_a_seed_fixes_the_draws():
    values, clusters = [0.1 * i for i in range(10)], [str(i) for i in range(10)]
    assert clustered_mean(values, clusters, 1) == clustered_mean(values, clusters, 1)
    assert clustered_mean(values, clusters, 1) != clustered_mean(values, clusters, 2)


@pytest.mark.parametrize(("values", "clusters"), [([], []), ([1.0], []), ([1.0], ["a", "b"])])
def test_what_has_no_interval(values, clusters):
    with pytest.raises(ValueError, match="one cluster for each value"):
        clustered_mean(values, clusters)
