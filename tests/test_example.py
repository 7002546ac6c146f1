"""examples/dapo_in_one_file.py says the same as the package, on random batches; and it learns."""

import importlib.util
from pathlib import Path

import pytest
import torch

from dapo.algo import filters, reduce
from dapo.algo.advantages import group_std_advantages
from dapo.algo.length import soft_overlong_punishment
from dapo.algo.objective import Objective, policy_loss


@pytest.fixture(scope="module")
def one():
    path = Path(__file__).parents[1] / "examples" / "dapo_in_one_file.py"
    spec = importlib.util.spec_from_file_location("dapo_in_one_file", path)
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", range(20))
def test_loss_and_gradient(one, seed):
    g = torch.Generator().manual_seed(seed)
    b, t = 12, 9
    old = -3 * torch.rand(b, t, generator=g, dtype=torch.float64)
    mine = (old + 0.4 * torch.randn(b, t, generator=g, dtype=torch.float64)).requires_grad_()
    theirs = mine.detach().clone().requires_grad_()
    advantage = torch.randn(b, generator=g, dtype=torch.float64)
    length = torch.randint(1, t + 1, (b,), generator=g)
    mask = (torch.arange(t) < length[:, None]).double()
    a = one.dapo_loss(mine, old, advantage, mask)
    weight = reduce.token_mean(mask.sum(1))
    c, seen = policy_loss(theirs, old, advantage, mask, weight, Objective(one.EPS_LOW, one.EPS_HIGH))
    a.backward()
    c.backward()
    torch.testing.assert_close(a, c)
    torch.testing.assert_close(mine.grad, theirs.grad)
    assert seen.clip_high + seen.clip_low > 0  # the batch does exercise the clip


@pytest.mark.parametrize("seed", range(5))
def test_advantages_filter_and_punishment(one, seed):
    g = torch.Generator().manual_seed(seed)
    reward = torch.randn(6, 8, generator=g, dtype=torch.float64)
    torch.testing.assert_close(one.advantages(reward), torch.stack([group_std_advantages(r) for r in reward]))
    correct = torch.rand(200, 4, generator=g) < torch.rand(200, 1, generator=g)
    expected = [filters.is_informative(int(c.sum()), 4) for c in correct]
    assert one.is_informative(correct).tolist() == expected
    length = torch.arange(0, 120)
    assert one.soft_overlong_punishment(length, 100, 20).tolist() == pytest.approx(
        [soft_overlong_punishment(int(n), 100, 20) for n in length]
    )


def test_it_learns(one):
    _, history = one.train(90, seed=0, say=False)
    assert sum(history[:3]) / 3 < 0.1
    assert sum(history[-3:]) / 3 > 0.3
