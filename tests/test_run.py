"""Whole runs on the tiny model: the record, the judge, under-fill, signals, kills, resumption, bad recipes."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from dapo.config import load_recipe
from dapo.conformance.evidence import Evidence
from dapo.conformance.judge import judge
from dapo.record.events import EventLog, read_events
from dapo.train import checkpoint

ROOT = Path(__file__).parents[1]
SMALL = [
    "rollout.prompts_per_step=4", "train.updates_per_step=2", "eval.suites=[]", "launch.threads=1", "data.size=300",
    "train.lr=2e-4", "train.warmup_steps=0",
]  # fmt: skip
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}


def command(out, *overrides, recipe="tiny-dapo", resume=False, small=SMALL):
    flags = ["--out", str(out), *(["--resume"] if resume else [])]
    return [sys.executable, "-m", "dapo", "train", recipe, *small, *overrides, *flags]


def dapo(out, *overrides, code=0, **kwargs):
    done = subprocess.run(
        command(out, *overrides, **kwargs), capture_output=True, text=True, env=ENV, cwd=Path(__file__).parent
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def check(out, *flags, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "dapo", "check", str(out), *flags], capture_output=True, text=True, env=ENV
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def weights_hash(out):
    (*_, last) = checkpoint.listing(out / "checkpoints")
    return hashlib.sha256((last / checkpoint.WEIGHTS).read_bytes()).hexdigest()


def steps_of(out):
    return [e for e in read_events(out / "events.jsonl") if e["kind"] == "step"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A DAPO run of six steps with an evaluation at both ends."""
    out = tmp_path_factory.mktemp("runs") / "dapo"
    small = [s for s in SMALL if not s.startswith("eval")]
    text = dapo(out, "train.steps=6", "train.save_every=1", "eval.size=20", "eval.k=2", small=small)
    return out, text


def test_the_last_lines_tell_a_person_what_happened(run):
    out, text = run
    for part in (
        "before",
        "after",
        "trained",
        "filtered",
        "surplus",
        "verdict: DAPO",
        f"run directory: {out}",
        "tokens/s",
    ):
        assert part in text
    assert text.count("step ") >= 6


def test_every_step_accounts_for_every_token(run):
    out, _ = run
    steps = steps_of(out)
    assert [s["step"] for s in steps] == [1, 2, 3, 4, 5, 6]
    for s in steps:
        rows = pq.read_table(out / "rollouts" / f"step-{s['step']:06d}.parquet").to_pylist()
        fates = ("trained", "filtered", "surplus", "cancelled", "failed")
        for unit in ("groups", "responses", "tokens"):
            assert sum(s["ledger"][f][unit] for f in fates) == s["ledger"]["generated"][unit]
        assert len(rows) == s["ledger"]["generated"]["responses"]
        for fate in fates:
            mine = [r for r in rows if r["fate"] == fate]
            assert len(mine) == s["ledger"][fate]["responses"]
            assert (
                sum(r["length"] for r in mine) == s["ledger"][fate]["tokens"] == sum(len(r["token_ids"]) for r in mine)
            )


def test_the_first_ratio_of_every_step_is_one_and_recorded(run):
    for s in steps_of(run[0]):
        assert s["first_ratio_deviation"] <= 1e-6
        assert s["updates"][1]["deviation"] > 1e-6  # the second update does move
        assert s["gap"]["max"] < 1e-3


def test_check_says_dapo_clause_by_clause(run):
    out, _ = run
    text = check(out)
    assert "verdict: DAPO" in text
    document = json.loads(check(out, "--json"))
    verdicts = {c["part"]: c["verdict"] for c in document["clauses"]}
    assert "fail" not in verdicts.values()
    for part in (
        "Dynamic Sampling: filter",
        "Dynamic Sampling: refill",
        "token-level loss",
        "Soft Overlong Punishment",
    ):
        assert verdicts[part] == "pass"
    assert "not GRPO" in check(out, "--claim", "grpo", code=3)


def test_the_manifest_names_what_a_claim_needs(run):
    manifest = json.loads((run[0] / "manifest.json").read_text())
    assert len(manifest["code"]["source_sha256"]) == 64
    assert manifest["algorithm"]["clip"] == {"rule": "fixed", "eps_low": 0.2, "eps_high": 0.28, "dual_clip": 0.0}
    assert manifest["algorithm"]["loss_aggregation"] == "token-mean" == manifest["algorithm"]["token_level_reading"]
    assert manifest["algorithm"]["known_as"] == "DAPO"
    assert manifest["reward"]["verifier"]["version"] == "dapo 0.2.0"
    assert manifest["model"]["weights_sha256"]["model.safetensors"]
    assert manifest["reward"]["verifier"]["name"] == "dapo_math"
    assert manifest["data"]["fingerprint"]


def test_grpo_is_grpo_and_lacks_the_parts_of_dapo(tmp_path):
    out = tmp_path / "grpo"
    dapo(out, "train.steps=3", recipe="tiny-grpo")
    text = check(out)
    assert "verdict: GRPO" in text
    assert "not DAPO (base: GRPO)" in text
    for part in (
        "Clip-Higher",
        "Dynamic Sampling: filter",
        "token-level loss",
        "Soft Overlong Punishment",
        "no KL term",
    ):
        assert part in text.rpartition("as DAPO: ")[2]
    assert all(u["kl_ref"] >= 0 for s in steps_of(out) for u in s["updates"])
    assert any(u["kl_ref"] > 0 for s in steps_of(out) for u in s["updates"])


def test_grpo_with_only_the_filter_added_is_not_dapo(tmp_path):
    out = tmp_path / "filtered"
    dapo(out, "train.steps=2", "algo.filter=resample", recipe="tiny-grpo")
    text = check(out, "--claim", "dapo", code=3)
    assert "verdict: not DAPO (base: GRPO): it lacks Clip-Higher" in text


def test_a_changed_value_is_a_named_departure(tmp_path):
    out = tmp_path / "departure"
    dapo(out, "train.steps=2", "algo.eps_high=0.25")
    assert "DAPO with named departures: clip values (D3)" in check(out)


@pytest.mark.parametrize(("how", "code"), [("stop", 75), ("error", 1), ("partial", 0)])
def test_no_informative_group(tmp_path, how, code):
    out = tmp_path / how
    text = dapo(
        out, "train.steps=2", "reward.verifier=python:always_wrong:score", f"rollout.on_underfill={how}",
        "rollout.max_prompts_per_step=8", code=code,
    )  # fmt: skip
    assert "0 of 4 informative groups after 8 prompts" in text
    assert "0/8: 8" in text
    assert "100% all wrong" in text
    assert "use easier data" in text
    kind = "step" if how == "partial" else "abandoned"
    assert (out / "rollouts" / ("step-000001.parquet" if how == "partial" else "abandoned-000001-01.parquet")).is_file()
    events = [e for e in read_events(out / "events.jsonl") if e["kind"] == kind]
    assert len(events) == (2 if how == "partial" else 1)
    assert events[0]["ledger"]["filtered"]["responses"] == 64
    assert [p.name for p in checkpoint.listing(out / "checkpoints")] == [
        "step-000002" if how == "partial" else "step-000000"
    ]
    if how == "partial":
        assert all(s["updates"] == [] for s in steps_of(out))


def test_groups_found_before_a_stop_are_trained_after_it(tmp_path):
    out = tmp_path / "refill"
    dapo(out, "train.steps=1", "rollout.group_size=2", "rollout.max_prompts_per_step=4", code=75)
    (saved,) = checkpoint.listing(out / "checkpoints")
    found = len(json.loads((saved / checkpoint.STATE).read_text())["carried"])
    assert 0 < found < 4
    dapo(out, "train.steps=1", "rollout.group_size=2", "rollout.max_prompts_per_step=40", resume=True)
    (step,) = steps_of(out)
    assert step["groups"]["carried"] == found
    assert step["groups"]["kept"] == 4
    assert step["updates"][0]["deviation"] <= 1e-6  # the policy has not moved in between
    first, second = (pq.read_table(p).to_pylist() for p in sorted((out / "rollouts").glob("*.parquet")))
    kept = {tuple(r["token_ids"]) for r in first if r["fate"] == "surplus"}
    assert kept == {tuple(r["token_ids"]) for r in second if r["carried"]}
    again = {r["problem_id"] for r in first} & {r["problem_id"] for r in second if not r["carried"]}
    for problem in again:  # a prompt that comes again in the same step is sampled anew
        texts = [{(r["sample"], r["text"]) for r in rows if r["problem_id"] == problem} for rows in (first, second)]
        assert texts[0] != texts[1]


def test_a_step_may_be_given_up_again_and_again(tmp_path):
    out = tmp_path / "again"
    hopeless = [
        "train.steps=1", "reward.verifier=python:always_wrong:score", "rollout.max_prompts_per_step=4", "data.size=4",
        "train.keep_checkpoints=1",
    ]  # fmt: skip
    for attempt in range(3):
        dapo(out, *hopeless, resume=attempt > 0, code=75)
    files = sorted((out / "rollouts").glob("abandoned-000001-*.parquet"))
    assert len(files) == 3
    seen = [{r["text"] for r in pq.read_table(f).to_pylist()} for f in files]
    assert seen[0] != seen[1] != seen[2]
    assert len([e for e in read_events(out / "events.jsonl") if e["kind"] == "abandoned"]) == 3


def test_a_partial_batch_has_its_own_denominators(tmp_path):
    out = tmp_path / "partial"
    dapo(out, "train.steps=1", "rollout.group_size=2", "rollout.max_prompts_per_step=4", "rollout.on_underfill=partial")
    (step,) = steps_of(out)
    assert 0 < step["groups"]["kept"] < 4
    assert sum(u["denominator_tokens"] for u in step["updates"]) == step["ledger"]["trained"]["tokens"]
    for u in step["updates"]:
        assert u["weight_max"] == pytest.approx(1 / u["denominator_tokens"], rel=1e-5)
    assert "Dynamic Sampling: refill" in check(out, code=3)


def test_carried_groups_train_with_the_policy_that_sampled_them(tmp_path):
    out = tmp_path / "carry"
    dapo(out, "train.steps=4", "rollout.surplus=carry")
    steps = steps_of(out)
    carrying = [s for s in steps if s["groups"]["carried"]]
    assert carrying
    for s in carrying:
        assert s["updates"][0]["deviation"] > 1e-6  # off-policy, and not hidden
        assert s["first_ratio_deviation"] is None
    assert "on-policy samples" in check(out)


def test_a_reward_that_cannot_grade_stops_the_run(tmp_path):
    text = dapo(tmp_path / "broken", "train.steps=1", "reward.verifier=python:always_wrong:broken", code=1)
    assert "reward.max_ungraded" in text
    assert "this reward is broken" in text
    assert (tmp_path / "broken" / "rollouts" / "abandoned-000001-01.parquet").is_file()


# kills, signals, resumption


def written(out, what):
    events = out / "events.jsonl"
    return events.read_text().count(what) if events.exists() else 0


def test_ten_kills_end_with_the_same_bits(tmp_path):
    steps = [
        "train.steps=40",
        "train.save_every=1",
        "eval.size=5",
        "eval.k=1",
        "eval.suites=['arithmetic:chain']",
        "eval.every=7",
    ]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    dapo(whole, *steps)
    rng = random.Random(0)
    kills = 0
    while kills < 10:
        process = subprocess.Popen(
            command(broken, *steps, resume=kills > 0), env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        awaited = '"kind": "step"' if kills % 2 else '"kind":'  # every other time a step must have been made
        before = written(broken, awaited)
        while process.poll() is None and written(broken, awaited) == before:
            time.sleep(0.02)  # start-up is not worth a kill
        time.sleep(rng.uniform(0, 1.0))
        assert process.poll() is None, "the run ended before it could be killed ten times: make it longer"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert 1 < len(steps_of(broken)) < 40
    dapo(broken, *steps, resume=True)
    assert weights_hash(broken) == weights_hash(whole)
    a, b = steps_of(whole), steps_of(broken)
    for s in (*a, *b):
        for changing in ("time", "seconds", "peak_rss_mib"):
            del s[changing]
        for t in s["ledger"].values():
            del t["seconds"]
    assert a == b
    scores = [[(e["step"], e["suites"][0]["accuracy"]) for e in read_events(o / "events.jsonl") if e["kind"] == "eval"]
              for o in (whole, broken)]  # fmt: skip
    assert scores[0] == scores[1]
    assert "verdict: DAPO" in check(broken)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_at_a_safe_point_and_is_resumable(tmp_path, number):
    out = tmp_path / "signalled"
    process = subprocess.Popen(command(out, "train.steps=500"), env=ENV, stderr=subprocess.PIPE, text=True)
    while not (out / "events.jsonl").exists() or not steps_of(out):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "--resume" in errors
    done = checkpoint.load_latest(out / "checkpoints", print).state["step"]
    dapo(out, f"train.steps={done + 1}", resume=True)
    assert [s["step"] for s in steps_of(out)] == list(range(1, done + 2))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "run"
    dapo(out, "train.steps=2", "train.save_every=1")
    return out


@pytest.fixture
def copy(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_a_run_is_not_overwritten_and_a_changed_recipe_is_refused(copy):
    assert "--resume" in dapo(copy, "train.steps=2", code=2)
    text = dapo(copy, "train.steps=3", "algo.eps_high=0.3", resume=True, code=2)
    assert "algo.eps_high was 0.28, is 0.3" in text
    text = dapo(copy, "train.steps=2", "train.seed=1", resume=True, code=2)
    assert "train.seed was 0, is 1" in text
    data = copy / "manifest.json"
    data.write_text(data.read_text().replace('"fingerprint": "', '"fingerprint": "0'))
    assert "data.source: what it stands for has changed" in dapo(copy, "train.steps=3", resume=True, code=2)
    data.write_text(data.read_text().replace('"fingerprint": "0', '"fingerprint": "'))
    text = dapo(copy, "train.steps=3", "train.save_every=5", resume=True)
    assert "train.save_every: 1 -> 5" in text


def test_two_runs_in_one_folder(copy):
    from dapo.record.rundir import RunDir

    with RunDir(copy):
        assert "in use by another run" in dapo(copy, "train.steps=3", resume=True, code=2)


@pytest.mark.parametrize("name", [checkpoint.WEIGHTS, checkpoint.MOMENTS, checkpoint.STATE, checkpoint.SUMS])
def test_a_damaged_checkpoint_is_passed_over(copy, name):
    newest = checkpoint.listing(copy / "checkpoints")[-1] / name
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 0xFF
    newest.write_bytes(data)
    text = dapo(copy, "train.steps=2", "train.save_every=1", resume=True)
    assert "step-000002 is damaged and passed over" in text
    assert "resumed after step 1" in text


def test_remains_of_a_write_that_died_are_removed(copy):
    half = copy / "checkpoints" / (checkpoint.PARTIAL + "step-000003")
    half.mkdir()
    (half / checkpoint.WEIGHTS).write_bytes(b"half")
    dapo(copy, "train.steps=3", resume=True)
    assert not half.exists()


def test_every_checkpoint_damaged_is_an_error_each_time(copy):
    for path in checkpoint.listing(copy / "checkpoints"):
        (path / checkpoint.WEIGHTS).unlink()
    for _ in range(2):
        with pytest.raises(checkpoint.DamagedCheckpoint, match="every checkpoint"):
            checkpoint.load_latest(copy / "checkpoints", print)


POINTS = ("add_files", "save_file", "write_text", "_sync", "rename", "purge")


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_of_a_write_leaves_a_whole_checkpoint(tmp_path, point):
    """The child dies at the first call of `point` while it writes step 2 over step 1."""
    checkpoint.save(tmp_path, "step-000001", {"w": torch.ones(2)}, {}, {"step": 1}, lambda folder: None)
    code = f"""
import os, shutil, sys, pathlib, torch
from dapo.train import checkpoint
def die(*a, **k):
    os.kill(os.getpid(), 9)
point, folder = {point!r}, pathlib.Path({str(tmp_path)!r})
if point in ("save_file", "_sync"):
    setattr(checkpoint, point, die)
elif point in ("write_text", "rename"):
    setattr(pathlib.Path, point, die)
add = die if point == "add_files" else (lambda f: None)
checkpoint.save(folder, "step-000002", {{"w": torch.zeros(2)}}, {{}}, {{"step": 2}}, add)
if point == "purge":
    shutil.rmtree = die
checkpoint.purge(folder, 1)
"""
    done = subprocess.run([sys.executable, "-c", code], env=ENV)
    assert done.returncode == -signal.SIGKILL
    checkpoint.clean(tmp_path)
    found = checkpoint.load_latest(tmp_path, print)
    assert found.state["step"] == (2 if point == "purge" else 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == [found.path.name]


def test_a_step_saved_twice_gets_revisions_that_sort(tmp_path):
    for number in range(3):
        name = checkpoint.next_name(tmp_path, 7)
        checkpoint.save(tmp_path, name, {"w": torch.ones(1)}, {}, {"n": number}, lambda folder: None)
        checkpoint.purge(tmp_path, 1)
    assert [p.name for p in checkpoint.listing(tmp_path)] == ["step-000007.r02"]
    assert checkpoint.next_name(tmp_path, 8) == "step-000008"


def test_a_full_disk_leaves_the_old_checkpoints(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, "step-000001", {"w": torch.ones(2)}, {}, {"step": 1}, lambda folder: None)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match=r"MiB are free; earlier checkpoints are unchanged"):
        checkpoint.save(tmp_path, "step-000002", {"w": torch.ones(2)}, {}, {}, lambda folder: None)
    assert [p.name for p in tmp_path.iterdir()] == ["step-000001"]
    assert checkpoint.load_latest(tmp_path, print).state == {"step": 1}


def test_a_torn_last_line_is_cut_off_and_a_resume_takes_back_steps(tmp_path):
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    for step in (1, 2, 3):
        log.write("step", step=step, x=float("nan"))
    with path.open("a") as file:
        file.write('{"kind": "ste')
    assert [e["step"] for e in read_events(path)] == [1, 2, 3]
    log = EventLog(path)
    log.write("resume", step=1)
    log.write("step", step=2, x=1.0)
    assert [(e["kind"], e["step"], e.get("x")) for e in read_events(path)] == [
        ("step", 1, None), ("resume", 1, None), ("step", 2, 1.0),
    ]  # fmt: skip


def test_a_checkpoint_is_a_model_folder(finished):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    last = checkpoint.listing(finished / "checkpoints")[-1]
    model = AutoModelForCausalLM.from_pretrained(last, dtype=torch.float32)
    saved = checkpoint.load(last).weights
    for name, p in model.named_parameters():
        assert torch.equal(p, saved[name])
    assert AutoTokenizer.from_pretrained(last).eos_token == "<eos>"


def test_eval_of_a_run_and_of_a_model(finished):
    base = [sys.executable, "-m", "dapo", "eval"]
    one = subprocess.run(
        [*base, str(finished), "--suite", "arithmetic:chain", "--k", "1", "--json"],
        capture_output=True,
        text=True,
        env=ENV,
    )
    assert one.returncode == 0, one.stderr
    (row,) = json.loads(one.stdout)
    assert row["low"] <= row["accuracy"] <= row["high"]
    assert row["problems"] == 200
    two = subprocess.run([*base, str(ROOT / "recipes" / "tiny-model")], capture_output=True, text=True, env=ENV)
    assert two.returncode == 2
    assert "--recipe" in two.stderr


# bad recipes


def folder_with(tmp_path, change):
    folder = Path(shutil.copytree(ROOT / "recipes" / "tiny-model", tmp_path / "model"))
    change(folder)
    return folder


def without_eos(folder):
    for name, key in (("tokenizer_config.json", "eos_token"), ("generation_config.json", "eos_token_id")):
        data = json.loads((folder / name).read_text())
        del data[key]
        (folder / name).write_text(json.dumps(data))


def write(tmp_path, *rows):
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\n".join(r if isinstance(r, bytes) else json.dumps(r).encode() for r in rows))
    return f"data.source={path}"


GOOD = {"problem": "1+1", "answer": "2"}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "has no problems"),
        ([GOOD, {"problem": "1+2", "answer": ""}], "data.jsonl:2 has an empty 'answer'"),
        (
            [GOOD, {"problem": "1+2", "reply": "3"}],
            "data.jsonl:2 has no field 'answer'; set data.answer_field to one of",
        ),
        ([GOOD, {"problem": "1+1", "answer": "3"}], "same problem with different answers, '2' and '3'"),
        ([GOOD, b"{not json"], "line 2 is not JSON"),
        ([GOOD, b'{"problem": "\xff", "answer": "1"}'], "line 2 is not UTF-8"),
        ([GOOD, {"problem": "a\x00b", "answer": "1"}], "NUL or a lone surrogate"),
        ([GOOD, {"problem": "1+2", "answer": "x = 3 and so on."}, {"problem": "2", "answer": "\n"}], "empty 'answer'"),
        ([{"problem": "1+" * 300 + "1", "answer": "301"}], "beyond the model's context of 256"),
        ([{"problem": "1+" * 600 + "1", "answer": "601"}], "data.max_prompt_tokens = 1024"),
    ],
)
def test_bad_data_is_one_clear_error_before_any_training(tmp_path, rows, says):
    text = dapo(tmp_path / "out", "train.steps=1", write(tmp_path, *rows), code=2)
    assert says in text
    assert text.startswith("error: ")
    assert not (tmp_path / "out").exists()


def test_other_recipes_that_cannot_run(tmp_path):
    cases = {
        "train.stps=1": "did you mean train.steps?",
        "algo.filter=resampl": "did you mean 'resample'?",
        "algo.L_cache=64": "must be below algo.L_max",
        "sampling.max_new_tokens=300": "beyond the model's context of 256 tokens; use at most",
        "data.source=no/such.jsonl": "is not a file",
        "data.source=arithmetic:chains": "unknown arithmetic task 'chains'",
        "model.path=no/such/model": "no folder with a config.json",
        "reward.verifier=dapo_maths": "is unknown; use dapo_math, number",
        "reward.verifier=python:always_wrong:scores": "cannot be loaded: AttributeError",
        "train.lr=inf": "train.lr = inf",
        'algo.base=["dapo"]': "algo.base = ['dapo']",
        "data.template={{ nothing }}": "data.template fails on problem",
        "data.template={% for %}": "data.template is not a Jinja template",
        "model.device=cuda": "there is no CUDA device here" if not torch.cuda.is_available() else "",
        f"model.path={folder_with(tmp_path, without_eos)}": "the tokenizer has no EOS token",
        "eval.suites=[\"arithmetic:chian\"]": "unknown arithmetic task 'chian'",
    }  # fmt: skip
    for override, says in cases.items():
        text = dapo(tmp_path / "out", "train.steps=1", override, code=2)
        assert says in text, text
        assert not (tmp_path / "out").exists(), override
    assert "packaged are: " in dapo(tmp_path / "out", recipe="tiny-dappo", code=2)


def test_gold_answers_that_fail_their_own_verifier(tmp_path):
    source = write(tmp_path, GOOD, {"problem": "1+2", "answer": "three"})
    text = dapo(tmp_path / "out", "train.steps=1", source, "reward.verifier=number", code=2)
    assert "does not accept the gold answers of 1 of 2 problems: data.jsonl:2 with 'three'" in text


def test_packaged_recipes_are_found_from_anywhere(tmp_path):
    from dapo.cli import find_recipe, packaged_recipes

    assert load_recipe(find_recipe("tiny-dapo")).algo.base == "dapo"
    assert (packaged_recipes() / "tiny-model" / "config.json").is_file()


def test_selftest_passes():
    done = subprocess.run([sys.executable, "-m", "dapo", "selftest"], capture_output=True, text=True, env=ENV)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout


def test_judging_what_is_no_run(tmp_path):
    assert "is not a run directory" in check(tmp_path, code=2)
    shutil.copy(ROOT / "recipes" / "tiny-dapo.toml", tmp_path / "recipe.toml")
    (tmp_path / "events.jsonl").write_text("")
    with pytest.raises(ValueError, match="no complete step"):
        judge(Evidence(tmp_path), "dapo")
    with pytest.raises(ValueError, match="--claim"):
        judge(Evidence(tmp_path), "ppo")
