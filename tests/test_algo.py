"""The pure functions where golden cases do not reach: zero gradients, edge cases, aggregation, diagnostics."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.algo import reduce
from dapo.algo.advantages import group_mean_advantages, group_std_advantages
from dapo.algo.diagnostics import Observed
from dapo.algo.filters import is_informative
from dapo.algo.kl import k3
from dapo.algo.length import soft_overlong_punishment
from dapo.algo.objective import Objective, policy_loss

DAPO = Objective(0.2, 0.28)


def one_token(ratio, advantage, objective=DAPO):
    logp = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    zero = torch.zeros(1, 1, dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    loss, seen = policy_loss(logp, zero, one * advantage, torch.ones(1, 1), one, objective)
    loss.backward()
    return float(loss.detach()), float(logp.grad), seen


@pytest.mark.parametrize(
    ("ratio", "advantage", "bound"),
    [(1.29, 1.0, True), (1.27, 1.0, False), (5.0, 2.0, True), (0.5, 1.0, False), (0.79, -1.0, True), (0.81, -1.0, False),
     (0.1, -3.0, True), (1.5, -1.0, False), (9.0, -1.0, False)],
)  # fmt: skip
def test_the_gradient_is_exactly_zero_where_the_clip_binds(ratio, advantage, bound):
    loss, grad, seen = one_token(ratio, advantage)
    if bound:
        assert grad == 0.0
        assert loss == pytest.approx(-advantage * (1.28 if advantage > 0 else 0.8))
    else:
        assert grad == pytest.approx(-advantage * ratio)
    assert (seen.clip_high, seen.clip_low) == (float(bound and advantage > 0), float(bound and advantage < 0))


def test_what_clip_higher_lets_through_is_counted():
    _, _, seen = one_token(1.25, 1.0)
    assert (seen.between, seen.clip_high, max(seen.passed_high)) == (1.0, 0.0, pytest.approx(1.25))
    _, _, seen = one_token(1.25, -1.0)
    assert (seen.between, max(seen.passed_high), seen.passed_dual) == (0.0, 0.0, pytest.approx(1.25))
    assert seen.deviation == pytest.approx(0.25)


def test_dual_clip_bounds_negative_advantages_only():
    objective = Objective(0.2, 0.28, dual_clip=3.0)
    assert one_token(9.0, -1.0, objective)[:2] == (pytest.approx(3.0), 0.0)
    assert one_token(2.0, -1.0, objective)[0] == pytest.approx(2.0)
    assert one_token(0.5, 1.0, objective)[0] == pytest.approx(-0.5)


def test_an_advantage_of_zero_teaches_nothing():
    assert one_token(1.9, 0.0)[:2] == (0.0, 0.0)


def test_padding_may_hold_anything():
    logp = torch.tensor([[-1.0, float("nan")], [-2.0, -0.5]], requires_grad=True)
    old = torch.tensor([[-1.1, float("inf")], [-2.0, -0.6]])
    mask = torch.tensor([[1, 0], [1, 1]])
    loss, seen = policy_loss(logp, old, torch.tensor([1.0, -1.0]), mask, reduce.token_mean(mask.sum(1).float()), DAPO)
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    assert logp.grad[0, 1] == 0
    assert torch.isfinite(logp.grad).all()
    assert seen.tokens == 3


def test_a_fully_masked_batch_is_zero():
    logp = torch.randn(2, 3, requires_grad=True)
    mask = torch.zeros(2, 3)
    loss, seen = policy_loss(logp, logp.detach(), torch.ones(2), mask, reduce.token_mean(mask.sum(1)), DAPO)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert not logp.grad.any()
    assert seen == Observed()


def test_the_kl_term_is_added_with_its_gradient():
    g = torch.Generator().manual_seed(0)
    logp = torch.randn(3, 4, generator=g, dtype=torch.float64, requires_grad=True)
    ref = torch.randn(3, 4, generator=g, dtype=torch.float64)
    mask, zero = torch.ones(3, 4), torch.zeros(3, dtype=torch.float64)
    weight = torch.full((3,), 1 / 12, dtype=torch.float64)
    loss, seen = policy_loss(logp, logp.detach(), zero, mask, weight, Objective(0.2, 0.2, None, 0.04), ref)
    d = ref - logp.detach()
    torch.testing.assert_close(loss.detach(), 0.04 * (d.exp() - d - 1).mean())
    loss.backward()
    torch.testing.assert_close(logp.grad, 0.04 / 12 * (1 - d.exp()))
    assert seen.kl_ref == pytest.approx(float((d.exp() - d - 1).sum()))
    assert float(k3(torch.tensor(0.0), torch.tensor(0.0))) == 0.0


def test_token_mean_is_that_of_the_whole_batch():
    length = torch.tensor([100.0, 900.0])
    value = torch.tensor([0.5, 0.3])
    assert float((reduce.token_mean(length) * length * value).sum()) == pytest.approx(0.32)
    legacy = reduce.token_mean_legacy(length, torch.tensor([0, 1]))
    assert float((legacy * length * value).sum()) == pytest.approx(0.40)


def test_the_readings_differ_as_they_should():
    length, group = torch.tensor([1.0, 3.0, 2.0, 2.0]), torch.tensor([7, 7, 3, 3])
    assert reduce.token_mean(length).tolist() == pytest.approx([1 / 8] * 4)
    assert reduce.prompt_mean(length, group).tolist() == pytest.approx([1 / 8] * 4)
    assert reduce.prompt_mean(length, torch.tensor([0, 1, 1, 1])).tolist() == pytest.approx([1 / 2] + [1 / 14] * 3)
    assert reduce.sequence_mean(length).tolist() == pytest.approx([1 / 4, 1 / 12, 1 / 8, 1 / 8])
    assert reduce.sequence_sum(length).tolist() == pytest.approx([1 / 4] * 4)
    assert reduce.constant(length, 10).tolist() == pytest.approx([1 / 40] * 4)


@pytest.mark.parametrize("reading", [reduce.token_mean, reduce.sequence_mean, reduce.sequence_sum])
def test_empty_responses_and_batches_do_no_harm(reading):
    assert torch.isfinite(reading(torch.tensor([0.0, 2.0]))).all()
    assert torch.isfinite(reading(torch.tensor([0.0, 0.0]))).all()
    assert reading(torch.tensor([])).numel() == 0
    assert reduce.prompt_mean(torch.tensor([]), torch.tensor([], dtype=torch.long)).numel() == 0


@pytest.mark.parametrize(
    ("correct", "g", "first", "last"),
    [(1, 16, 3.749993, -0.25), (8, 16, 0.968245, -0.968245), (15, 16, 0.25, -3.749993), (1, 8, 2.474870, -0.353553)],
)
def test_advantages_of_the_paper(correct, g, first, last):
    reward = torch.tensor([1.0] * correct + [-1.0] * (g - correct), dtype=torch.float64)
    a = group_std_advantages(reward)
    assert (float(a[0]), float(a[-1])) == (pytest.approx(first, abs=1e-6), pytest.approx(last, abs=1e-6))


def test_a_group_of_one_has_no_baseline():
    assert group_std_advantages(torch.tensor([3.0])).tolist() == [0.0]
    assert group_mean_advantages(torch.tensor([3.0])).tolist() == [0.0]


@pytest.mark.parametrize(
    ("length", "punishment"), [(0, 0), (16384, 0), (16385, -1 / 4096), (18432, -0.5), (20480, -1), (30000, -1)]
)
def test_the_punishment_of_the_paper(length, punishment):
    assert soft_overlong_punishment(length, 20480, 4096) == pytest.approx(punishment)


@pytest.mark.parametrize(("l_max", "l_cache"), [(10, 10), (10, 11), (10, 0)])
def test_a_soft_zone_that_does_not_fit_is_refused(l_max, l_cache):
    with pytest.raises(ValueError, match="0 < L_cache < L_max"):
        soft_overlong_punishment(5, l_max, l_cache)


def test_the_filter_counts():
    assert [is_informative(n, 4) for n in range(5)] == [False, True, True, True, False]
    assert not is_informative(0, 0)
    assert not is_informative(1, 1)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=9), st.integers(0, 10**6), st.data())
def test_loss_and_gradient_do_not_change_with_cuts_or_padding(lengths, seed, data):
    g = torch.Generator().manual_seed(seed)
    b, t = len(lengths), 6
    length = torch.tensor(lengths, dtype=torch.float64)
    mask = torch.arange(t) < length[:, None]
    old = -torch.rand(b, t, generator=g, dtype=torch.float64)
    new = old + torch.randn(b, t, generator=g, dtype=torch.float64)
    a = torch.randn(b, generator=g, dtype=torch.float64)
    group = torch.tensor([i // 2 for i in range(b)])
    cut = data.draw(st.integers(1, b - 1))
    extra = data.draw(st.integers(0, 5))
    for weight in (reduce.token_mean(length), reduce.prompt_mean(length, group), reduce.sequence_mean(length)):
        whole = new.clone().requires_grad_()
        loss, seen = policy_loss(whole, old, a, mask, weight, DAPO)
        loss.backward()
        parts = new.clone().requires_grad_()
        total, together = 0.0, Observed()
        for s in (slice(0, cut), slice(cut, b)):
            pad = torch.nn.functional.pad
            piece, saw = policy_loss(
                pad(parts[s], (0, extra)), pad(old[s], (0, extra)), a[s], pad(mask[s], (0, extra)), weight[s], DAPO
            )
            total, together = total + piece, together + saw
        total.backward()
        torch.testing.assert_close(total, loss)
        torch.testing.assert_close(parts.grad, whole.grad)
        for name in ("tokens", "clip_high", "clip_low", "between", "deviation", "spread", "rho"):
            assert getattr(together, name) == pytest.approx(getattr(seen, name))
        for name in ("passed_high", "cut_high", "passed_low", "cut_low"):
            assert getattr(together, name) == pytest.approx(getattr(seen, name))
