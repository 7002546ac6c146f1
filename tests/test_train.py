"""The trainer on a real (tiny) model: cuts change nothing, non-finite updates change nothing, float32 masters."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.algo.objective import Objective
from dapo.config import build_recipe
from dapo.models.loading import load_model
from dapo.train.assemble import loss_weights, make_objective
from dapo.train.batch import in_loss, plan, with_advantages
from dapo.train.estimator import AdvantageEstimator
from dapo.train.loop import attach_logp_old, per_sequence
from dapo.train.optim import MasterAdamW, learning_rate
from dapo.train.policy import LocalPolicy
from dapo.types import Completion, Group, Problem, Rollout, Score, Sequence

CPU = torch.device("cpu")
RIGHT, WRONG = Score("correct"), Score("incorrect")


def recipe(**overrides):
    raw = {
        "model": {"path": "m"},
        "data": {"source": "arithmetic:chain"},
        "algo": {"base": "dapo", "L_cache": 4},
        "train": {"steps": 10, "updates_per_step": 1},
        "sampling": {"max_new_tokens": 12},
        "rollout": {"prompts_per_step": 4, "group_size": 4},
    }
    return build_recipe(raw, overrides)


def groups(seed=0, n=4, g=4):
    generator = torch.Generator().manual_seed(seed)
    out = []
    for i in range(n):
        rollouts = []
        for s in range(g):
            length = int(torch.randint(1, 13, (1,), generator=generator))
            ids = tuple(torch.randint(4, 19, (length,), generator=generator).tolist())
            finish = "length" if length == 12 else "stop"
            completion = Completion(i, s, ids, (-1.0,) * length, finish, 0)
            score = RIGHT if s <= i % (g - 1) else WRONG
            rollouts.append(Rollout(completion, "", score, 1.0 if score is RIGHT else -1.0, 0.0))
        prompt = (2, 4 + i, 5, 3)
        out.append(Group(i, Problem(f"p{i}", "", ""), prompt, tuple(rollouts), 0))
    return out


def planned(some_groups, the_recipe):
    """Mini-batches with their advantages."""
    every = AdvantageEstimator(the_recipe.algo.advantage)(some_groups)
    pairs = zip(some_groups, every, strict=True)
    mine = [a for group, values in pairs if in_loss(group, the_recipe) for a in values]
    return with_advantages(plan(some_groups, the_recipe, CPU), mine)


def policy_for(model, the_recipe, objective=None, reference=False):
    optimizer = MasterAdamW(model.named_parameters(), (0.9, 0.999), 0.0, the_recipe.train.grad_clip)
    return LocalPolicy(model, optimizer, objective or make_objective(the_recipe.algo), 1.0, reference)


@pytest.fixture(scope="module")
def tiny(tiny_model):
    return load_model(str(tiny_model), torch.float32, CPU, 19)


def gradient(tiny, the_recipe, batch_groups, shift=0.3):
    model = copy.deepcopy(tiny)
    (batch,) = planned(batch_groups, the_recipe)
    policy = policy_for(model, the_recipe)
    generator = torch.Generator().manual_seed(3)
    noise = {n: torch.randn(12, generator=generator) * shift for n in range(len(batch_groups) * 4)}
    (old,) = policy.logprobs([batch])
    for tensor, micro in zip(old, batch.micro, strict=True):
        for b, number in enumerate(micro.number_B.tolist()):
            tensor[b] -= noise[number][: tensor.shape[1]]
    policy._optimizer.step = lambda lr, norm: None  # keep the gradients to look at
    update = policy.update(batch, old, None, 1e-3)
    return update, {name: p.grad.clone() for name, p in model.named_parameters()}, batch


@pytest.mark.parametrize(
    "aggregation", ["token-mean", "prompt-mean", "sequence-mean", "sequence-sum", "only-token-mean", "constant"]
)
def test_the_micro_batch_budget_changes_neither_loss_nor_gradient(tiny, monkeypatch, aggregation):
    results = []
    for budget, row_tokens in ((8192, 512), (40, 20), (1, 1)):
        monkeypatch.setattr("dapo.train.batch.ROW_TOKENS", row_tokens)
        the_recipe = recipe(**{"algo.aggregation": aggregation, "train.micro_batch_tokens": budget})
        results.append(gradient(tiny, the_recipe, groups()))
    (one, grad, batch), *others = results
    assert len(batch.micro) == 1
    assert one.observed.clip_high + one.observed.clip_low > 0
    for other, other_grad, other_batch in others:
        assert len(other_batch.micro) > 2
        assert other.loss == pytest.approx(one.loss, abs=1e-5)
        assert other.entropy == pytest.approx(one.entropy, rel=1e-5)
        for name in grad:
            torch.testing.assert_close(other_grad[name], grad[name], rtol=2e-3, atol=2e-5)


def test_legacy_token_mean_depends_on_the_cut_by_nature(tiny, monkeypatch):
    losses = []
    for row_tokens in (512, 1):
        monkeypatch.setattr("dapo.train.batch.ROW_TOKENS", row_tokens)
        budget = 8192 if row_tokens == 512 else 1
        the_recipe = recipe(**{"algo.aggregation": "token-mean-legacy", "train.micro_batch_tokens": budget})
        losses.append(gradient(tiny, the_recipe, groups())[0].loss)
    assert abs(losses[0] - losses[1]) > 1e-3


def test_masked_truncated_responses_leave_loss_and_denominator(tiny):
    the_recipe = recipe(**{"algo.length": "mask-truncated", "algo.L_cache": None})
    update, _, batch = gradient(tiny, the_recipe, groups(seed=1))
    kept = [r.length for g in groups(seed=1) for r in g.rollouts if r.completion.finish == "stop"]
    assert batch.tokens == sum(kept) == update.observed.tokens
    assert batch.tokens < sum(r.length for g in groups(seed=1) for r in g.rollouts)


def flat(tiny, the_recipe, some):
    update, grad, batch = gradient(tiny, the_recipe, some)
    return update, torch.cat([g.flatten() for g in grad.values()]), batch


def mixed_and_alike():
    """Four groups: two mixed (first, so that their sequences' numbers stay), one all right, one all wrong."""
    some = groups()
    alike = []
    for group, score, reward in ((some[2], RIGHT, 1.0), (some[3], WRONG, -1.0)):
        rollouts = tuple(replace(r, score=score, reward=reward) for r in group.rollouts)
        alike.append(replace(group, rollouts=rollouts))
    return [*some[:2], *alike]


@pytest.mark.parametrize("aggregation", ["token-mean", "prompt-mean", "sequence-mean", "only-token-mean", "constant"])
@pytest.mark.parametrize("advantage", ["group-std", "batch-std"])
def test_dropping_changes_no_gradient_and_rescaling_counts_the_kept_only(tiny, aggregation, advantage):
    some = mixed_and_alike()
    base = {"algo.base": "grpo", "algo.L_cache": None, "algo.kl_coef": 0.0, "algo.aggregation": aggregation,
            "algo.advantage": advantage}  # fmt: skip
    _, none, whole = flat(tiny, recipe(**base), some)
    _, drop, dropped = flat(tiny, recipe(**base, **{"algo.filter": "drop"}), some)
    scale = none.abs().max()
    assert (whole.groups, whole.responses, dropped.groups, dropped.responses) == (4, 16, 2, 8)
    assert whole.tokens == dropped.tokens
    assert (whole.denominator_responses, dropped.denominator_responses) == (16, 16)
    kept = [r.length for g in some[:2] for r in g.rollouts]
    if aggregation == "only-token-mean":
        assert (dropped.weight_max, dropped.weight_min) == (1 / min(kept), 1 / max(kept))
    torch.testing.assert_close(drop / scale, none / scale, rtol=0, atol=1e-4)
    if advantage == "group-std" and aggregation == "token-mean":
        _, rescaled, kept = flat(tiny, recipe(**base, **{"algo.filter": "drop-rescale"}), some[:2])
        assert kept.tokens < whole.tokens
        torch.testing.assert_close(rescaled / scale, none / scale * whole.tokens / kept.tokens, rtol=0, atol=1e-4)


def test_denominators_of_many_tokens_are_exact():
    lengths = torch.randint(1, 20480, (8192,), generator=torch.Generator().manual_seed(0)).tolist()
    sequences = [Sequence((1,), range(n), (), i, False, True) for i, n in enumerate(lengths)]
    weight, length = loss_weights(sequences, recipe(), torch.zeros(8192, dtype=torch.long))
    assert sum(lengths) > 2**24
    assert int(length.sum()) == sum(lengths)
    assert float(weight[0] * length.sum()) == pytest.approx(1, abs=1e-12)


def test_a_step_in_which_all_is_dropped_makes_no_update():
    some = mixed_and_alike()
    the_recipe = recipe(**{"algo.base": "grpo", "algo.L_cache": None, "algo.filter": "drop"})
    assert plan(some[2:], the_recipe, CPU) == []


def test_the_engines_log_probabilities_reach_the_correction(tiny):
    the_recipe = recipe(**{"algo.correction": "truncate-token"})
    some = groups()
    model = copy.deepcopy(tiny)
    (batch,) = planned(some, the_recipe)
    policy = policy_for(model, the_recipe)
    (old,) = policy.logprobs([batch])
    update = policy.update(batch, old, None, 1e-9)
    expected = sum(
        min(2.0, math.exp(float(logp) + 1.0))  # the engine's are all -1
        for tensor, micro in zip(old, batch.micro, strict=True)
        for logp in tensor[micro.mask_BT]
    )
    assert update.observed.rho == pytest.approx(expected, rel=1e-4)
    assert update.objective.correction.__name__ == "truncated_per_token"


def test_ungraded_responses_are_not_trained(tiny):
    some = groups()
    lost = Rollout(some[0].rollouts[0].completion, "", Score("ungraded"), math.nan, 0.0)
    changed = [Group(0, some[0].problem, some[0].prompt_ids, (lost, *some[0].rollouts[1:]), 0), *some[1:]]
    update, grad, batch = gradient(tiny, recipe(), changed)
    assert batch.responses == 15
    assert math.isfinite(update.loss)
    assert all(torch.isfinite(g).all() for g in grad.values())


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.sampled_from([1, 2, 3, 4]))
def test_mini_batches_are_whole_groups_and_lose_nothing(n, updates):
    the_recipe = recipe(**{"rollout.prompts_per_step": 12, "train.updates_per_step": updates})
    batches = plan(groups(n=n), the_recipe, CPU)
    numbers = [m for b in batches for micro in b.micro for m in micro.number_B.tolist()]
    assert sorted(numbers) == list(range(4 * n))
    assert sum(b.groups for b in batches) == n
    assert len(batches) == min(n, updates)
    assert max(b.groups for b in batches) - min(b.groups for b in batches) <= 1
    for b in batches:
        assert b.weight_max == pytest.approx(1 / b.tokens)


def test_the_first_ratio_is_one_in_bfloat16_too(tiny_model):
    model = load_model(str(tiny_model), torch.bfloat16, CPU, 19)
    the_recipe = recipe(**{"train.updates_per_step": 2, "train.lr": 1e-2})
    policy = policy_for(model, the_recipe)
    batches = planned(groups(), the_recipe)
    old = policy.logprobs(batches)
    first = policy.update(batches[0], old[0], None, 1e-2)
    second = policy.update(batches[1], old[1], None, 1e-2)
    assert first.observed.deviation <= 1e-6
    assert second.observed.deviation > 1e-3
    assert (first.applied, second.applied) == (True, True)


def test_small_steps_survive_in_the_master_weights(tiny_model):
    model = load_model(str(tiny_model), torch.bfloat16, CPU, 19)
    the_recipe = recipe()
    policy = policy_for(model, the_recipe)
    before, rounded = {k: v.clone() for k, v in policy.state()[0].items()}, copy.deepcopy(model.state_dict())
    (batch,) = planned(groups(), the_recipe)
    for _ in range(3):
        (old,) = policy.logprobs([batch])
        policy.update(batch, old, None, 1e-7)
    name = "model.layers.0.mlp.up_proj.weight"
    assert (policy.state()[0][name] != before[name]).float().mean() > 0.5
    assert (model.state_dict()[name] != rounded[name]).float().mean() < 0.05


def test_a_non_finite_gradient_changes_nothing(tiny):
    model = copy.deepcopy(tiny)
    the_recipe = recipe()
    policy = policy_for(model, the_recipe)
    (batch,) = planned(groups(), the_recipe)
    (old,) = policy.logprobs([batch])
    policy.update(batch, old, None, 1e-4)
    weights, moments = (({k: v.clone() for k, v in part.items()}) for part in policy.state())
    (nan,) = ([torch.full_like(t, math.nan) for t in old],)
    assert not policy.update(batch, nan, None, 1e-4).applied  # the loss is NaN, the gradient happens to be 0
    norm = policy._optimizer.gradient_norm
    policy._optimizer.gradient_norm = lambda: math.inf
    assert not policy.update(batch, old, None, 1e-4).applied
    policy._optimizer.gradient_norm = norm
    after_weights, after_moments = policy.state()
    assert all(torch.equal(weights[k], after_weights[k]) for k in weights)
    assert all(torch.equal(moments[k], after_moments[k]) for k in moments)
    assert policy.update(batch, old, None, 1e-4).applied


def test_state_restores_exactly(tiny):
    the_recipe = recipe()
    first, second = copy.deepcopy(tiny), copy.deepcopy(tiny)
    a, b = policy_for(first, the_recipe), policy_for(second, the_recipe)
    (batch,) = planned(groups(), the_recipe)
    (old,) = a.logprobs([batch])
    a.update(batch, old, None, 1e-3)
    weights, moments = a.state()
    b.load_state({k: v.clone() for k, v in weights.items()}, {k: v.clone() for k, v in moments.items()})
    for policy in (a, b):
        policy.update(batch, old, None, 1e-3)
    assert all(torch.equal(x, y) for x, y in zip(a.state()[0].values(), b.state()[0].values(), strict=True))


def test_the_kl_term_pulls_towards_the_start(tiny):
    the_recipe = recipe()
    model = copy.deepcopy(tiny)
    policy = policy_for(model, the_recipe, Objective(0.2, 0.2, None, 0.04), reference=True)
    (batch,) = planned(groups(), the_recipe)
    (old,), (ref,) = policy.logprobs([batch]), policy.logprobs([batch], reference=True)
    assert all(torch.equal(x, y) for x, y in zip(old, ref, strict=True))
    assert policy.update(batch, old, ref, 1e-3).observed.kl_ref == 0
    (old,), (again,) = policy.logprobs([batch]), policy.logprobs([batch], reference=True)
    assert all(torch.equal(x, y) for x, y in zip(ref, again, strict=True))
    assert policy.update(batch, old, again, 1e-3).observed.kl_ref > 0


def test_carried_log_probabilities_have_no_padding(tiny):
    the_recipe = recipe()
    some = groups()
    batches = plan(some, the_recipe, CPU)
    logp = policy_for(copy.deepcopy(tiny), the_recipe).logprobs(batches)
    carried = attach_logp_old(some, batches, logp)
    rows = per_sequence(batches, logp)
    for i, group in enumerate(carried):
        assert [len(x) for x in group.logp_old] == [r.length for r in group.rollouts]
        assert group.logp_old == tuple(rows[4 * i + s] for s in range(4))


@pytest.mark.parametrize(
    ("step", "schedule", "rate"),
    [(0, "constant", 0.25), (3, "constant", 1.0), (4, "constant", 1.0), (99, "constant", 1.0), (4, "cosine", 1.0),
     (52, "cosine", 0.5), (100, "cosine", 0.0)],
)  # fmt: skip
def test_the_learning_rate_counts_rollout_steps(step, schedule, rate):
    assert learning_rate(step, 1.0, 4, 100, schedule) == pytest.approx(rate, abs=1e-3)
    assert learning_rate(0, 1.0, 0, 100, schedule) == 1.0
