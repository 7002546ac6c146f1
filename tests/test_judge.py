"""The judge on doctored records: what would make a run not DAPO is caught, whatever the recipe says."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_run import dapo

from dapo.conformance.evidence import Evidence
from dapo.conformance.judge import judge


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    out = tmp_path_factory.mktemp("judge") / "run"
    dapo(out, "train.steps=4", "train.lr=3e-4")
    return out


@pytest.fixture
def run(honest, tmp_path):
    return shutil.copytree(honest, tmp_path / "copy")


def verdicts(run):
    judgement = judge(Evidence(run), "dapo")
    return judgement, {f.clause.part: f.verdict for f in judgement.findings}


def change_updates(run, change):
    path = run / "events.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for e in events:
        if e["kind"] == "step":
            for u in e["updates"]:
                change(u)
    path.write_text("".join(json.dumps(e) + "\n" for e in events))


def change_rows(run, change):
    for path in (run / "rollouts").glob("*.parquet"):
        table = pq.read_table(path)
        rows = table.to_pylist()
        for r in rows:
            change(r)
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)


def change_recipe(run, old, new):
    text = (run / "recipe.toml").read_text()
    assert old in text
    (run / "recipe.toml").write_text(text.replace(old, new))


def test_the_honest_run_is_dapo(run):
    judgement, seen = verdicts(run)
    assert judgement.conforms
    assert set(seen.values()) <= {"pass", "not shown"}
    assert seen["Clip-Higher"] == "pass"


@pytest.mark.parametrize(
    ("part", "doctor"),
    [
        ("Clip-Higher", lambda u: u.update(bounds=[0.8, 1.2])),
        ("Clip-Higher", lambda u: u.update(passed_max=1.4)),  # an objective that does not clip
        ("lower clip", lambda u: u.update(passed_min=0.5)),
        ("clip values", lambda u: u.update(bounds=[0.8, 1.25])),
        ("token-level loss", lambda u: u.update(aggregation="sequence-mean")),
        ("token-level loss", lambda u: u.update(weight_max=2 * u["weight_min"])),
        ("token-level loss", lambda u: u.update(weight_max=0.5, weight_min=0.5)),
        ("token-level loss", lambda u: u.update(denominator_tokens=u["tokens"] + 1)),
        ("no KL term", lambda u: u.update(kl_coef=0.01)),
        ("no overlong filtering", lambda u: u.update(denominator_tokens=u["denominator_tokens"] - 5)),
    ],
)
def test_what_the_updates_did_decides(run, part, doctor):
    change_updates(run, doctor)
    judgement, seen = verdicts(run)
    assert seen[part] == "fail"
    assert judgement.sentence.startswith(("not DAPO", "DAPO with named departures"))


def trained_all_right(r):
    if r["fate"] == "trained":
        r["outcome"] = "correct"


def shifted(r):
    if r["advantage"] is not None:
        r["advantage"] += 0.1


def unpunished(r):
    r["punishment"] = 0.0


def filtered_mixed(r):
    if r["fate"] == "filtered" and r["sample"] == 0:
        r["outcome"] = "incorrect" if r["outcome"] == "correct" else "correct"


@pytest.mark.parametrize(
    ("part", "doctor"),
    [
        ("Dynamic Sampling: filter", trained_all_right),
        ("Dynamic Sampling: criterion", filtered_mixed),
        ("advantage", shifted),
        ("Soft Overlong Punishment", unpunished),
        ("rule-based reward", lambda r: r.update(reward=None if r["reward"] is None else r["reward"] * 2)),
        ("on-policy samples", lambda r: r.update(version=0)),
    ],
)
def test_what_the_rollouts_show_decides(run, part, doctor):
    change_rows(run, doctor)
    judgement, seen = verdicts(run)
    assert seen[part] == "fail"
    assert judgement.sentence.startswith(("not DAPO", "DAPO with named departures"))


def test_a_part_that_is_switched_off_is_not_merely_unseen(run):
    change_recipe(run, 'length = "soft-punishment"', 'length = "none"')
    change_recipe(run, "L_cache = 16\n", "")
    judgement, seen = verdicts(run)
    assert seen["Soft Overlong Punishment"] == "fail"
    assert not judgement.conforms


def test_no_filter_in_the_recipe(run):
    change_recipe(run, 'filter = "resample"', 'filter = "none"')
    _, seen = verdicts(run)
    assert seen["Dynamic Sampling: refill"] == seen["Dynamic Sampling: criterion"] == "fail"


def test_without_rollouts_the_name_is_not_earned(run):
    shutil.rmtree(run / "rollouts")
    judgement, seen = verdicts(run)
    assert seen["Dynamic Sampling: filter"] == "not shown"
    assert not judgement.conforms
    assert "not shown to be DAPO" in judgement.sentence


def test_a_ledger_that_does_not_add_up(run):
    path = run / "events.jsonl"
    path.write_text(path.read_text().replace('"generated": {"groups": ', '"generated": {"groups": 1'))
    judgement, seen = verdicts(run)
    assert seen["ledger"] == "fail"
    assert judgement.sentence.startswith("DAPO with named departures: ledger (D16)")


def test_skipped_updates_are_no_evidence_and_do_no_harm(run):
    change_updates(run, lambda u: u.update(applied=False, kl_ref=None, clip_high=None, passed_max=None))
    judgement, seen = verdicts(run)
    assert seen["token-level loss"] == "not shown"
    assert not judgement.conforms
