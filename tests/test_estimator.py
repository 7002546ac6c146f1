"""Advantages of a step, by kind, and the memory of smooth standardisation."""

import json
import math
from dataclasses import replace

import pytest
import torch
from test_train import WRONG, groups

from dapo.algo.smooth import Visits, smooth_advantages
from dapo.train.estimator import AdvantageEstimator


def test_each_kind_is_its_function():
    some = groups(n=2)  # one right of four, two right of four
    assert AdvantageEstimator("group-mean")(some) == [[1.5, -0.5, -0.5, -0.5], [1.0, 1.0, -1.0, -1.0]]
    assert AdvantageEstimator("leave-one-out")(some)[0] == pytest.approx([2.0, -2 / 3, -2 / 3, -2 / 3])
    assert AdvantageEstimator("group-std")(some)[1] == pytest.approx(
        [math.sqrt(3) / 2] * 2 + [-math.sqrt(3) / 2] * 2, rel=1e-5
    )
    deviation = math.sqrt((3 * 1.25**2 + 5 * 0.75**2) / 7)  # rewards of the batch: mean -1/4
    assert AdvantageEstimator("batch-std")(some)[1] == pytest.approx(
        [1 / deviation] * 2 + [-1 / deviation] * 2, rel=1e-5
    )
    deviation = math.sqrt((1.5**2 + 3 * 0.5**2 + 4) / 7)
    assert AdvantageEstimator("batch-whitened")(some)[0][0] == pytest.approx(1.5 / deviation, rel=1e-5)
    for kind in ("group-std", "batch-std", "smooth"):
        assert AdvantageEstimator(kind)([]) == []


def test_a_penalty_is_taken_from_the_reward_of_its_response():
    some = groups(n=2)
    penalty = dict.fromkeys(range(8), 0.0) | {4: 0.4}
    plain, penalised = AdvantageEstimator("group-mean")(some), AdvantageEstimator("group-mean")(some, penalty)
    assert penalised[0] == plain[0]
    assert penalised[1] == pytest.approx([0.7, 1.1, -0.9, -0.9])


def test_smooth_remembers_each_prompt_and_its_state_survives():
    some = groups(n=2)
    whole = AdvantageEstimator("smooth")
    first = whole(some)
    saved = json.loads(json.dumps(whole.state_dict()))
    assert saved == {"p0": [1, -0.5, 0.75], "p1": [1, 0.0, 1.0]}
    second = whole([some[1], some[0]])
    again = AdvantageEstimator("smooth")
    again.load_state_dict(saved)
    assert again([some[1], some[0]]) == second
    assert again.state_dict() == {"p0": [2, -0.5, 0.75], "p1": [2, 0.0, 1.0]}
    assert second[0] == pytest.approx(first[1])  # the same rewards again change no statistic
    assert [abs(a) for a in second[1]] == pytest.approx([abs(a) for a in first[0]])
    wrong = [replace(some[0], rollouts=tuple(replace(r, score=WRONG, reward=-1.0) for r in some[0].rollouts))]
    (third,) = whole(wrong)
    assert third == pytest.approx([(-1 + 2 / 3) / math.sqrt((2 * 0.75 + 2 / 3 * 0.25) / 3) / 3] * 4)
    assert whole.state_dict()["p0"][0] == 3


def test_smooth_is_the_function_with_the_memory():
    some = groups(n=1)
    estimator = AdvantageEstimator("smooth")
    estimator(some)
    expected, _ = smooth_advantages(torch.tensor([1.0, -1.0, -1.0, -1.0], dtype=torch.float64), Visits(1, -0.5, 0.75))
    assert estimator(some) == [expected.tolist()]


def test_the_others_remember_nothing():
    estimator = AdvantageEstimator("group-std")
    estimator(groups())
    assert estimator.state_dict() == {}
