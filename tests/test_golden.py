"""The objective against an independent implementation, in float64, to 1e-7 relative (tests/golden/losses.json)."""

import json
from pathlib import Path

import pytest
import torch

from dapo.algo import reduce
from dapo.algo.advantages import group_mean_advantages, group_std_advantages
from dapo.algo.length import soft_overlong_punishment
from dapo.algo.objective import Objective, policy_loss

CASES = json.loads((Path(__file__).parent / "golden" / "losses.json").read_text())["cases"]
LATER = {"gspo", "gspo_wide", "cispo", "gmpo", "rloo"}  # neighbours of DAPO: other ratios and baselines
REL = 1e-7


def named(kind):
    chosen = [c for c in CASES if c["kind"] == kind and c["name"] not in LATER]
    return pytest.mark.parametrize(
        "case", chosen, ids=[f"{c['name']}-{c.get('spread', i)}" for i, c in enumerate(chosen)]
    )


def close(actual, expected):
    torch.testing.assert_close(
        torch.as_tensor(actual, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64), rtol=REL, atol=1e-12
    )


def tensors(inputs):
    return {k: torch.tensor(v, dtype=torch.float64) for k, v in inputs.items()}


def weights(aggregation, length_B, horizon=24):
    return {
        "token-mean": reduce.token_mean,
        "seq-mean-token-mean": reduce.sequence_mean,
        "seq-mean-token-sum": reduce.sequence_sum,
        "seq-mean-token-sum-norm": lambda lengths: reduce.constant(lengths, horizon),
    }[aggregation](length_B)


def test_the_cases_are_all_there():
    kinds = [c["kind"] for c in CASES if c["name"] not in LATER]
    assert {k: kinds.count(k) for k in set(kinds)} == {
        "policy_loss": 24,
        "advantage": 8,
        "soft_overlong": 3,
        "micro_batch_invariance": 1,
    }


@named("policy_loss")
def test_policy_loss(case):
    config, x, expected = case["config"], tensors(case["inputs"]), case["expected"]
    logp = x["logprob"].requires_grad_()
    weight_B = weights(config["aggregation"], x["mask"].sum(1), config["horizon"])
    objective = Objective(config["clip_low"], config["clip_high"], config["dual_clip"])
    loss, seen = policy_loss(logp, x["old_logprob"], x["advantage_per_response"], x["mask"], weight_B, objective)
    loss.backward()
    close(loss, expected["loss"])
    close(logp.grad, expected["grad_logprob"])
    close((seen.clip_high + seen.clip_low) / seen.tokens, expected["pg_clipfrac"])
    close(seen.clip_dual / seen.tokens, expected["pg_clipfrac_lower"])
    close(seen.kl_old / seen.tokens, expected["ppo_kl"])


@named("advantage")
def test_advantage(case):
    x = tensors(case["inputs"])
    function = group_std_advantages if case["config"]["scale"] else group_mean_advantages
    actual = torch.empty_like(x["rewards"])
    for g in x["group"].unique():
        actual[x["group"] == g] = function(x["rewards"][x["group"] == g])
    close(actual, case["expected"]["advantage"])


@named("soft_overlong")
def test_soft_overlong(case):
    config = case["config"]
    actual = [
        config["penalty_factor"] * soft_overlong_punishment(n, config["max_length"], config["cache"])
        for n in case["inputs"]["length"]
    ]
    close(actual, case["expected"]["penalty"])


@named("micro_batch_invariance")
def test_micro_batch_invariance(case):
    x, config = tensors(case["inputs"]), case["config"]
    objective = Objective(config["clip_low"], config["clip_high"], config["dual_clip"])
    whole = {}
    for cut in config["cuts"]:
        for aggregation, expected in case["expected"].items():
            logp = x["logprob"].clone().requires_grad_()
            weight_B = weights(aggregation, x["mask"].sum(1))
            total, start = torch.zeros((), dtype=torch.float64), 0
            for size in cut:
                s = slice(start, start + size)
                loss, _ = policy_loss(
                    logp[s], x["old_logprob"][s], x["advantage_per_response"][s], x["mask"][s], weight_B[s], objective
                )
                total, start = total + loss, start + size
            total.backward()
            close(total, expected)
            close(logp.grad, whole.setdefault(aggregation, logp.grad).tolist())
