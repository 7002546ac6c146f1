"""Whole runs on the tiny model along the axes: DCPO with its memory, the neighbours, KL in the reward, corrections, filters."""

import json

import pyarrow.parquet as pq
import pytest
from test_run import check, dapo, steps_of, weights_hash

from dapo.conformance.evidence import Evidence
from dapo.conformance.judge import judge
from dapo.train import checkpoint

REPEATS = "data.size=6"  # so that prompts come again


def rows_of(out):
    return [r for p in sorted((out / "rollouts").glob("step-*")) for r in pq.read_table(p).to_pylist()]


def state_of(out):
    return json.loads((checkpoint.listing(out / "checkpoints")[-1] / checkpoint.STATE).read_text())


def verdicts(out, algorithm):
    return {f.clause.number: f.verdict for f in judge(Evidence(out), algorithm).findings}


def test_dcpo_is_dcpo_and_its_memory_survives_a_resume(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    text = dapo(whole, "train.steps=4", REPEATS, recipe="tiny-dcpo")
    dapo(parts, "train.steps=2", REPEATS, recipe="tiny-dcpo")
    between = state_of(parts)["advantages"]
    dapo(parts, "train.steps=4", REPEATS, recipe="tiny-dcpo", resume=True)
    assert weights_hash(parts) == weights_hash(whole)
    assert state_of(parts)["advantages"] == state_of(whole)["advantages"]
    assert sum(v[0] for v in between.values()) == 8
    assert sum(v[0] for v in state_of(whole)["advantages"].values()) == 16  # 4 steps of 4 groups
    assert "verdict: DCPO" in text
    seen = verdicts(whole, "dcpo")
    assert "fail" not in seen.values()
    assert seen["C1"] == seen["C4"] == seen["C6"] == seen["C9"] == "pass"
    assert "verdict: not DAPO (base: DCPO)" in check(whole, "--claim", "dapo", code=3)
    rewards = {(r["outcome"], r["extracted"] is None): r["reward"] for r in rows_of(whole)}
    assert rewards == {("correct", False): 1.0, ("incorrect", False): 0.0, ("incorrect", True): -1.0}
    assert "smooth advantage standardisation" not in text.rpartition("verdict:")[2].partition("\n")[0]


@pytest.mark.parametrize(
    ("name", "known"),
    [("dr-grpo", "Dr.GRPO"), ("gspo", "GSPO"), ("cispo", "CISPO"), ("gmpo", "GMPO"), ("rloo", "RLOO"),
     ("reinforce-pp", "REINFORCE++ baseline"), ("lite-ppo", "Lite PPO")],
)  # fmt: skip
def test_a_neighbour_trains_and_is_named(tmp_path, name, known):
    out = tmp_path / name
    updates = [] if name != "rloo" else ["train.updates_per_step=1"]
    dapo(out, "train.steps=2", *updates, recipe=f"tiny-{name}")
    assert json.loads((out / "manifest.json").read_text())["algorithm"]["known_as"] == known
    judgement = judge(Evidence(out), "grpo")
    assert f"(base: {known})" in judgement.sentence
    assert not judgement.conforms
    assert f"{known} has no clauses of its own" in check(out)
    check(out, "--claim", "grpo", code=3)
    lacks = {
        "dr-grpo": "G7",
        "gspo": "G11",
        "cispo": "G3",
        "gmpo": "G11",
        "rloo": "G3",
        "reinforce-pp": "G7",
        "lite-ppo": "G7",
    }
    if name != "gmpo":  # two steps may not move its ratios enough
        assert verdicts(out, "grpo")[lacks[name]] == "fail"
    updated = [u for s in steps_of(out) for u in s["updates"]]
    assert all(u["applied"] for u in updated)
    assert any(u["grad_norm"] > 0 for u in updated)
    if name == "gspo":
        assert max(u["spread"] for u in updated) < 1e-6 < max(u["deviation"] for u in updated)
    if name == "cispo":
        assert all(u["clip_low"] == 0 for u in updated)


def test_kl_in_the_reward_changes_the_advantages_and_not_the_loss(tmp_path):
    out = tmp_path / "kl"
    dapo(out, "train.steps=3", "algo.kl_in=reward", "algo.kl_coef=0.05", "algo.kl_estimator=k1", REPEATS)
    trained = [r for r in rows_of(out) if r["fate"] == "trained"]
    assert all(r["kl_penalty"] is not None for r in trained)
    assert all(r["kl_penalty"] == 0 for r in trained if r["step"] == 1)  # the reference is the model itself
    assert any(abs(r["kl_penalty"]) > 0 for r in trained if r["step"] == 3)
    assert all(u["kl_coef"] == 0 and u["kl_ref"] == 0 for s in steps_of(out) for u in s["updates"])
    seen = verdicts(out, "dapo")
    assert (seen["D10"], seen["D13"]) == ("fail", "pass")


def test_a_correction_is_a_named_departure(tmp_path):
    out = tmp_path / "tis"
    dapo(out, "train.steps=2", "algo.correction=truncate-token", "model.dtype=bfloat16")
    updates = [u for s in steps_of(out) for u in s["updates"]]
    assert {u["objective"]["correction"] for u in updates} == {"truncated_per_token"}
    assert all(u["corrected"] > 0 for u in updates)
    assert verdicts(out, "dapo")["D18"] == "fail"
    assert "no sampler correction (D18)" in judge(Evidence(out), "dapo").sentence


@pytest.mark.parametrize("how", ["drop", "drop-rescale"])
def test_dropped_groups_are_not_replaced(tmp_path, how):
    out = tmp_path / how
    dapo(out, "train.steps=4", f"algo.filter={how}", recipe="tiny-grpo")
    dropped = 0
    for s in steps_of(out):
        assert s["groups"]["offered"] == s["groups"]["finished"] == 4
        assert s["ledger"]["trained"]["groups"] + s["ledger"]["filtered"]["groups"] == 4
        assert s["groups"]["kept"] == s["ledger"]["trained"]["groups"]
        dropped += s["ledger"]["filtered"]["groups"]
        in_loss = sum(r["length"] for r in rows_of(out) if r["step"] == s["step"] and r["fate"] == "trained")
        denominator = sum(u["denominator_tokens"] for u in s["updates"])
        assert sum(u["tokens"] for u in s["updates"]) == in_loss
        assert denominator >= in_loss if how == "drop" else denominator == in_loss
    assert dropped > 0
    assert verdicts(out, "grpo")["G2"] == "fail"
    assert verdicts(out, "dapo")["D5"] == "fail"


def test_other_axes_run_together(tmp_path):
    out = tmp_path / "all"
    dapo(
        out, "train.steps=2", "algo.bounds=total-variation", "algo.outside=mask", "algo.correction=mask-token",
        "algo.aggregation=prompt-mean", "algo.advantage=leave-one-out", "algo.length=mask-truncated", "algo.L_cache=0",
        code=2,
    )  # fmt: skip
    dapo(
        out, "train.steps=2", "algo.bounds=total-variation", "algo.outside=mask", "algo.correction=mask-token",
        "algo.aggregation=prompt-mean", "algo.advantage=leave-one-out", recipe="tiny-grpo",
    )  # fmt: skip
    objective = steps_of(out)[-1]["updates"][-1]["objective"]
    assert (objective["bounds"], objective["action"]) == ("total_variation_bounds", "masked_loss")
    assert (objective["correction"], objective["rho_low"], objective["rho_high"]) == ("masked_per_token", 0.5, 2.0)


def test_the_card_of_a_real_run(tmp_path):
    out = tmp_path / "run"
    dapo(out, "train.steps=1")
    text = check(out, "--card")
    for part in (
        "| clip bounds | fixed, eps_low 0.2, eps_high 0.28 |",
        "source_sha256 `",
        "| hardware |",
        "model.safetensors `",
    ):
        assert part in text
