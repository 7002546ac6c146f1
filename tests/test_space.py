"""The axes of the space, function by function, against numbers that were computed by hand or from the definitions."""

import math
from statistics import fmean, pvariance

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.algo import advantages, bounds, clip, correction, kl, ratio, reduce
from dapo.algo.diagnostics import BINS, Observed
from dapo.algo.objective import Objective, policy_loss
from dapo.algo.smooth import Visits, merge, population, smooth_advantages

f64 = torch.float64
FREE = (-math.inf, math.inf)


def tensor(*values):
    return torch.tensor(values, dtype=f64)


@pytest.mark.parametrize(
    ("p_old", "low", "high"),
    [(1, 0.800, 1.171), (0.9, 0.769, 1.187), (0.833, 0.741, 1.200), (0.64, 0.500, 1.250), (0.5, 0.5, 1.306), (0.3, 0.5, 1.457),
     (0.1, 0.5, 2.000), (0.05, 0.5, 2.562), (0.01, 0.5, 5.000), (0.0022, 0.5, 10), (1e-6, 0.5, 10)],
)  # fmt: skip
def test_the_table_of_dcpo(p_old, low, high):
    lo, hi = bounds.adaptive_bounds(tensor(math.log(p_old)), 0.16, 0.2)
    assert float(lo) == pytest.approx(low, abs=6e-4)
    assert float(hi) == pytest.approx(high, abs=6e-4)


def test_the_adaptive_bounds_solve_their_equation_and_carry_no_gradient():
    logp = tensor(-0.05, -0.3).requires_grad_()
    lo, hi = bounds.adaptive_bounds(logp, 0.16, 0.2)
    p = logp.detach().exp()
    torch.testing.assert_close((hi - 1) * hi * p, torch.full_like(p, 0.2))
    torch.testing.assert_close((1 - lo) * lo * p, torch.full_like(p, 0.16))
    assert not lo.requires_grad
    assert not hi.requires_grad


def test_the_other_bounds():
    logp = tensor(math.log(0.5), math.log(0.1))
    assert bounds.fixed_bounds(logp, 0.2, 0.28) == (0.8, 1.28)
    assert bounds.log_bounds(logp, 0.4, 0.3) == (math.exp(-0.4), math.exp(0.3))
    lo, hi = bounds.total_variation_bounds(logp, 0.2, 0.28)
    assert lo.tolist() == pytest.approx([0.6, 0.0])  # pi may fall from .5 to .3; from .1 to nothing
    assert hi.tolist() == pytest.approx([1.56, 3.8])


def one(r, a, objective, p_old=0.5, gen=None, ref=None):
    """Loss, gradient and observation of one token with ratio r, advantage a and old probability p_old."""
    old = tensor([math.log(p_old)])
    logp = (old + math.log(r)).requires_grad_()
    extra = {"logp_gen_BT": tensor([math.log(gen)])} if gen else {}
    loss, seen = policy_loss(logp, old, tensor(a), torch.ones(1, 1), tensor(1.0), objective, ref, **extra)
    loss.backward()
    return float(loss.detach()), float(logp.grad), seen


def test_adaptive_bounds_let_rare_tokens_move_further():
    dcpo = Objective(0.16, 0.2, dual_clip=10.0, bounds=bounds.adaptive_bounds)
    assert one(1.9, 1.0, dcpo, p_old=0.05)[1] == pytest.approx(-1.9)
    assert one(1.9, 1.0, dcpo, p_old=0.5)[1] == 0.0  # the bound is 1.306
    assert one(0.55, -1.0, dcpo, p_old=0.05)[1] == pytest.approx(0.55)
    assert one(0.49, -1.0, dcpo, p_old=0.05)[1] == 0.0
    loss, grad, seen = one(11.0, -1.0, dcpo, p_old=0.05)
    assert (loss, grad, seen.clip_dual) == (pytest.approx(10.0), 0.0, 1.0)
    assert one(9.0, -1.0, dcpo, p_old=0.05)[2].passed_dual == pytest.approx(9.0)
    assert (seen.passed_dual, seen.cut_dual) == (0.0, pytest.approx(11.0))


@pytest.mark.parametrize(
    ("r", "a", "loss", "grad", "acted"),
    [(1.5, 1.0, 0.0, 0.0, "clip_high"), (1.5, -1.0, 0.0, 0.0, "clip_dual"), (0.5, 1.0, 0.0, 0.0, "clip_far"),
     (0.5, -1.0, 0.0, 0.0, "clip_low"), (1.1, 1.0, -1.1, -1.1, None), (0.9, -1.0, 0.9, 0.9, None)],
)  # fmt: skip
def test_a_mask_cuts_on_both_sides(r, a, loss, grad, acted):
    masked = Objective(0.2, 0.28, action=clip.masked_loss)
    got = one(r, a, masked)
    assert got[:2] == (pytest.approx(loss), pytest.approx(grad))
    counts = {name: getattr(got[2], name) for name in ("clip_high", "clip_low", "clip_dual", "clip_far")}
    assert counts == {name: float(name == acted) for name in counts}


@pytest.mark.parametrize(("r", "a"), [(1.5, 1.0), (1.5, -1.0), (0.5, 1.0), (0.5, -1.0)])
def test_a_clipped_weight_keeps_every_gradient(r, a):
    cispo = Objective(1.0, 0.2, action=clip.weight_clipped_loss)
    weight = min(r, 1.2)
    loss, grad, seen = one(r, a, cispo)
    assert loss == pytest.approx(-a * weight * (math.log(0.5) + math.log(r)))
    assert grad == pytest.approx(-a * weight)
    assert seen.clip_high + seen.clip_dual == float(r > 1.2)
    assert max(seen.passed_high) == (pytest.approx(r) if a > 0 and r > 1 else 0.0)  # alive beyond its bound


def test_without_a_ratio_the_gradient_is_the_advantage():
    loss, grad, seen = one(3.0, 2.0, Objective(0.2, 0.2, action=clip.plain_loss), p_old=0.1)
    assert (loss, grad) == (pytest.approx(-2 * math.log(0.3)), pytest.approx(-2.0))
    assert (seen.clip_high, seen.spread) == (0.0, 0.0)
    assert max(seen.passed_high) == pytest.approx(3.0)


def batch(seed=0, b=3, t=5):
    g = torch.Generator().manual_seed(seed)
    old = -3 * torch.rand(b, t, generator=g, dtype=f64)
    new = old + 0.4 * torch.randn(b, t, generator=g, dtype=f64)
    mask = torch.arange(t) < torch.tensor([5, 3, 1])[:b, None]
    return new.requires_grad_(), old, tensor(1.0, -1.0, 0.5)[:b], mask


def test_the_sequence_ratio_is_the_geometric_mean_and_its_gradient_exact():
    new, old, a, mask = batch()
    weight = reduce.sequence_mean(mask.sum(1).double())
    loss, seen = policy_loss(new, old, a, mask, weight, Objective(9.0, 9.0, ratio=ratio.sequence_log_ratio))
    length = mask.sum(1)
    s = (((new - old) * mask).sum(1) / length).exp()
    torch.testing.assert_close(loss, -(s * a).mean())
    (expected,) = torch.autograd.grad(-(s * a).mean(), new)
    loss.backward()
    torch.testing.assert_close(new.grad, expected)
    assert seen.spread < 1e-12 < 0.01 < seen.moved
    assert policy_loss(new, old, a, mask, weight, Objective(9.0, 9.0))[1].spread > 0.01


def test_the_geometric_loss_is_gmpo():
    new, old, a, mask = batch()
    weight = reduce.sequence_mean(mask.sum(1).double())
    objective = Objective(0.1, 0.1, bounds=bounds.log_bounds, action=clip.geometric_loss)
    loss, seen = policy_loss(new, old, a, mask, weight, objective)
    expected = 0.0
    for i in range(3):
        length = int(mask[i].sum())
        kept = []
        for x in (new - old)[i, :length].tolist():
            kept.append(min(x, 0.1) if a[i] > 0 else max(x, -0.1))  # the pessimist clips on one side only
        expected -= float(a[i]) * math.exp(fmean(kept)) / 3
    assert float(loss.detach()) == pytest.approx(expected)
    loss.backward()
    cut = (((new - old) > 0.1) & (a > 0)[:, None] | ((new - old) < -0.1) & (a < 0)[:, None]) & mask
    assert torch.equal(new.grad == 0, cut | ~mask)
    assert seen.clip_high + seen.clip_low == float(cut.sum())


def test_log_ratios_are_limited():
    far = ratio.token_log_ratio(tensor([0.0]), tensor([-99.0]), torch.ones(1, 1).bool())
    assert far.tolist() == [[20.0]]
    far = ratio.sequence_log_ratio(tensor([0.0, 0.0]), tensor([-99.0, -99.0]), torch.tensor([[True, False]]))
    assert far.tolist() == [[20.0, 0.0]]


def test_the_estimators():
    logp, ref = tensor(-1.0, -2.0), tensor(-1.5, -1.0)
    assert kl.k1(logp, ref).tolist() == pytest.approx([0.5, -1.0])
    assert kl.k2(logp, ref).tolist() == pytest.approx([0.125, 0.5])
    assert kl.k3(logp, ref).tolist() == pytest.approx([math.exp(-0.5) + 0.5 - 1, math.e - 1 - 1])


def test_the_estimator_of_the_objective_is_used():
    ref = tensor([math.log(0.25)])
    loss, grad, seen = one(1.0, 0.0, Objective(0.2, 0.2, None, 0.1, kl=kl.k2), p_old=0.5, ref=ref)
    assert loss == pytest.approx(0.1 * 0.5 * math.log(2) ** 2)
    assert grad == pytest.approx(0.1 * math.log(2))
    assert seen.kl_ref == pytest.approx(0.5 * math.log(2) ** 2)


def test_corrections():
    old, gen = tensor([math.log(0.6), math.log(0.2)]), tensor([math.log(0.2), math.log(0.4)])  # rho 3 and 1/2
    mask = torch.tensor([[True, True]])
    assert correction.truncated_per_token(old, gen, mask, 0.0, 2.0).tolist() == [pytest.approx([2.0, 0.5])]
    assert correction.truncated_per_sequence(old, gen, mask, 0.0, 2.0).tolist() == [pytest.approx([1.5, 1.5])]
    assert correction.truncated_per_sequence(old, gen, mask, 0.0, 1.2).tolist() == [pytest.approx([1.2, 1.2])]
    assert correction.masked_per_token(old, gen, mask, 0.4, 2.0).tolist() == [pytest.approx([0.0, 0.5])]
    assert correction.masked_per_token(old, gen, mask, 0.6, 4.0).tolist() == [pytest.approx([3.0, 0.0])]
    padded = correction.truncated_per_sequence(
        old, tensor([math.log(0.2), math.nan]), torch.tensor([[True, False]]), 0.0, 4.0
    )
    assert padded.tolist() == [pytest.approx([3.0, 3.0])]


def test_a_correction_scales_the_loss_and_is_observed():
    plain = one(1.1, 1.0, Objective(0.2, 0.28))
    weighed = one(1.1, 1.0, Objective(0.2, 0.28, correction=correction.truncated_per_token), gen=0.4)
    assert weighed[0] == pytest.approx(1.25 * plain[0])
    assert weighed[1] == pytest.approx(1.25 * plain[1])
    assert (plain[2].rho, weighed[2].rho) == (1.0, pytest.approx(1.25))
    assert (plain[2].corrected, weighed[2].corrected) == (0.0, 1.0)
    assert weighed[2].clip_high == 0.0  # what the bounds did is seen without the weight


def test_what_a_term_needs_is_asserted():
    with pytest.raises(AssertionError, match="reference model"):
        one(1.0, 1.0, Objective(0.2, 0.2, kl_coef=0.1))
    with pytest.raises(AssertionError, match="log-probabilities of the engine"):
        one(1.0, 1.0, Objective(0.2, 0.2, correction=correction.masked_per_token))
    zero = torch.zeros(1, 1)
    with pytest.raises(AssertionError, match="must carry a gradient"):
        policy_loss(zero, zero, tensor(1.0), torch.ones(1, 1), tensor(1.0), Objective(0.2, 0.2))


def test_extremes_stand_in_the_bin_of_their_probability():
    _, _, seen = one(1.25, 1.0, Objective(0.2, 0.28), p_old=0.05)
    assert seen.passed_high == (0.0, 0.0, pytest.approx(1.25), *[0.0] * (BINS - 3))
    _, _, seen = one(1.3, 1.0, Objective(0.2, 0.28), p_old=0.95)
    assert seen.cut_high == (*[math.inf] * (BINS - 1), pytest.approx(1.3))
    _, _, seen = one(0.7, -1.0, Objective(0.2, 0.28), p_old=0.005)
    assert seen.cut_low == (pytest.approx(0.7), *[0.0] * (BINS - 1))
    both = seen + Observed(cut_low=(0.75, *[0.0] * (BINS - 1)), passed_low=(0.9, *[math.inf] * (BINS - 1)))
    assert both.cut_low[0] == 0.75
    assert both.passed_low[0] == 0.9


def test_nan_stays_visible():
    nan = Observed(deviation=math.nan) + Observed(deviation=0.5)
    assert math.isnan(nan.deviation)


def test_blends_of_one_magnitude_do_not_leave_the_sign_to_rounding():
    _, before = smooth_advantages(tensor(1.0, 0.0, 0.0, -1.0), Visits())
    shifted, _ = smooth_advantages(tensor(0.0, -1.0, 1.0, 1.0), Visits(2, 0.1, 0.6))
    nudged, _ = smooth_advantages(tensor(0.0, -1.0, 1.0, 1.0), Visits(2, 0.1 + 1e-15, 0.6 - 1e-15))
    torch.testing.assert_close(shifted, nudged)
    assert before.count == 1


@pytest.mark.parametrize("n", range(1, 33))
@pytest.mark.parametrize("value", [-1.3, 0.1, 1 / 3])
def test_equal_rewards_have_no_advantage_at_all(n, value):
    reward = torch.full((n,), value, dtype=f64)
    functions = (advantages.group_std_advantages, advantages.group_mean_advantages, advantages.leave_one_out_advantages)
    for function in functions:
        assert not function(reward).any()
    for function in (advantages.batch_std_advantages, advantages.batch_whitened_advantages):
        assert not any(a.any() for a in function([reward, tensor(1.0, -1.0)])[:1])


def test_baselines_and_scales():
    reward = tensor(1.0, 0.0, 0.0, 0.0)
    assert advantages.group_mean_advantages(reward).tolist() == pytest.approx([0.75, -0.25, -0.25, -0.25])
    assert advantages.leave_one_out_advantages(reward).tolist() == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3])
    assert advantages.leave_one_out_advantages(tensor(1.0)).tolist() == [0.0]


def test_the_scale_of_the_batch():
    groups = [tensor(1.0, -1.0), tensor(1.0, 1.0), tensor(-1.0, -1.0, -1.0)]
    every = torch.cat(groups)
    lite = advantages.batch_std_advantages(groups)
    assert lite[0].tolist() == pytest.approx([1 / float(every.std()), -1 / float(every.std())], rel=1e-5)
    assert lite[1].tolist() == [0.0, 0.0]
    centred = tensor(1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    white = advantages.batch_whitened_advantages(groups)
    assert white[0].tolist() == pytest.approx([1 / float(centred.std()), -1 / float(centred.std())], rel=1e-5)
    assert float(torch.cat(white).mean()) == pytest.approx(0.0)
    assert advantages.batch_std_advantages([tensor(2.0)])[0].tolist() == [0.0]
    assert advantages.batch_whitened_advantages([tensor(2.0)])[0].tolist() == [0.0]


def test_only_token_mean_sums_over_responses():
    length = tensor(1.0, 4.0, 0.0)
    weight = reduce.only_token_mean(length)
    assert weight.tolist() == [1.0, 0.25, 0.0]
    assert float((weight * length * tensor(3.0, 5.0, 7.0)).sum()) == 8.0
    torch.testing.assert_close(reduce.sequence_mean(length) * 3, weight)


rewards = st.lists(st.sampled_from([1.0, 0.0, -1.0, -1.3]), min_size=1, max_size=9)


@settings(max_examples=200, deadline=None)
@given(rewards)
def test_the_first_visit_is_grpo_with_the_population_deviation_bit_for_bit(values):
    reward = torch.tensor(values, dtype=f64)
    advantage, after = smooth_advantages(reward, Visits())
    same = len(set(values)) == 1
    plain = torch.zeros_like(reward) if same else (reward - reward.mean()) / reward.var(unbiased=False).sqrt()
    assert torch.equal(advantage, plain)
    assert after.count == 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.sampled_from([1.0, 0.0, -1.0]), min_size=4, max_size=4), min_size=1, max_size=8))
def test_merged_statistics_are_those_of_all_rewards_at_once(visits):
    state = Visits()
    for values in visits:
        mean, var = population(torch.tensor(values, dtype=f64))
        total_mean, total_var = merge(state, mean, var)
        state = Visits(state.count + 1, float(total_mean), float(total_var))
    every = [v for values in visits for v in values]
    assert state.count == len(visits)
    assert state.mean == pytest.approx(fmean(every), abs=1e-12)
    assert state.var == pytest.approx(pvariance(every), abs=1e-12)


@settings(max_examples=200, deadline=None)
@given(rewards, st.integers(1, 9), st.floats(-1, 1), st.floats(0, 1))
def test_each_response_takes_the_smaller_blend(values, count, mean, var):
    reward = torch.tensor(values, dtype=f64)
    before, i = Visits(count, mean, var), count + 1
    advantage, after = smooth_advantages(reward, before)
    m, v = population(reward)
    tm, tv = (m + count * mean) / i, (v + count * var + count / i * (mean - m) ** 2) / i
    new = (reward - m) / v.sqrt() if v > 0 else torch.zeros_like(reward)
    total = (reward - tm) / tv.sqrt() if tv > 0 else torch.zeros_like(reward)
    blends = torch.stack([count / i * new + total / i, new / i + count / i * total])
    second = blends[0].abs() >= blends[1].abs() * (1 - 1e-9)  # also where they differ by rounding alone
    torch.testing.assert_close(advantage, torch.where(second, blends[1], blends[0]))
    assert (after.mean, after.var) == (pytest.approx(float(tm)), pytest.approx(float(tv)))
    if len(set(values)) == 1:  # nothing to learn within the group, but against earlier visits
        torch.testing.assert_close(advantage.abs(), total.abs() / i)


def test_a_visit_that_is_right_after_a_mixed_one_still_teaches():
    _, after = smooth_advantages(tensor(1.0, 0.0, 0.0, 0.0), Visits())
    assert after == Visits(1, 0.25, 0.1875)
    advantage, after = smooth_advantages(tensor(1.0, 1.0, 1.0, 1.0), after)
    assert after == Visits(2, 0.625, pytest.approx(0.234375))
    assert advantage.tolist() == pytest.approx([0.375 / math.sqrt(0.234375) / 2] * 4)


def test_an_empty_visit_is_refused():
    with pytest.raises(ValueError, match="at least one graded response"):
        smooth_advantages(torch.tensor([], dtype=f64), Visits())
