"""The objective against an independent implementation, in float64, to 1e-7 relative (tests/golden/losses.json)."""

import json
from pathlib import Path

import pytest
import torch

from dapo.algo import reduce
from dapo.algo.advantages import group_mean_advantages, group_std_advantages, leave_one_out_advantages
from dapo.algo.bounds import log_bounds
from dapo.algo.clip import geometric_loss, weight_clipped_loss
from dapo.algo.length import soft_overlong_punishment
from dapo.algo.objective import Objective, policy_loss
from dapo.algo.ratio import sequence_log_ratio

CASES = json.loads((Path(__file__).parent / "golden" / "losses.json").read_text())["cases"]
NEIGHBOURS = {  # the axes on which they differ; the reference ignores the dual clip for them
    "gspo": {"ratio": sequence_log_ratio},
    "cispo": {"action": weight_clipped_loss},
    "geo_mean": {"action": geometric_loss, "bounds": log_bounds},
}
REL = 1e-7


def named(kind):
    chosen = [c for c in CASES if c["kind"] == kind]
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
    kinds = [c["kind"] for c in CASES]
    assert {k: kinds.count(k) for k in set(kinds)} == {
        "policy_loss": 36,
        "advantage": 9,
        "soft_overlong": 3,
        "micro_batch_invariance": 1,
    }


@named("policy_loss")
def test_policy_loss(case):
    config, x, expected = case["config"], tensors(case["inputs"]), case["expected"]
    logp = x["logprob"].requires_grad_()
    kind = config.get("verl_loss", "vanilla")
    axes = NEIGHBOURS.get(kind, {"dual_clip": config["dual_clip"]})
    aggregation = "seq-mean-token-mean" if kind == "geo_mean" else config["aggregation"]  # "plain mean over sequences"
    weight_B = weights(aggregation, x["mask"].sum(1), config["horizon"])
    objective = Objective(config["clip_low"], config["clip_high"], **axes)
    loss, seen = policy_loss(logp, x["old_logprob"], x["advantage_per_response"], x["mask"], weight_B, objective)
    loss.backward()
    close(loss, expected["loss"])
    close(logp.grad, expected["grad_logprob"])
    close(seen.kl_old / seen.tokens, expected["ppo_kl"])
    if kind == "geo_mean":  # it counts tokens out of bounds by the sign of A, whether the pessimist clips them or not
        assert seen.clip_high + seen.clip_far <= expected["pg_clipfrac"] * seen.tokens + 1e-6
        assert seen.clip_low + seen.clip_dual <= expected["pg_clipfrac_lower"] * seen.tokens + 1e-6
    else:
        dual = 0 if kind == "cispo" else seen.clip_dual  # which cispo counts with the others
        acted = seen.clip_high + seen.clip_low + seen.clip_far + seen.clip_dual - dual
        close(acted / seen.tokens, expected["pg_clipfrac"])
        close(dual / seen.tokens, expected["pg_clipfrac_lower"])


@named("advantage")
def test_advantage(case):
    x = tensors(case["inputs"])
    if case["name"] == "rloo":
        function = leave_one_out_advantages
    else:
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
