"""The clauses on made-up runs: an honest run of each algorithm keeps all, and for every clause one run breaks only that."""

import json
import subprocess
import sys

import pytest
from fabricate import BIN, G, fabricate

from dapo.conformance.card import card
from dapo.conformance.evidence import Evidence
from dapo.conformance.judge import judge, judge_all
from dapo.conformance.spec import SPECS
from dapo.record.events import token_fates


def verdicts(path, algorithm):
    return {f.clause.number: f.verdict for f in judge(Evidence(path), algorithm).findings}


def steps(events):
    return [e for e in events if e["kind"] == "step"]


def last_update(events):
    return steps(events)[-1]["updates"][-1]


def update(**fields):
    """Break one update of the last step."""
    return {"events_hook": lambda events: last_update(events).update(fields)}


def every_update(**fields):
    return {"events_hook": lambda events: [u.update(fields) for s in steps(events) for u in s["updates"]]}


def objective(**fields):
    return {"events_hook": lambda events: [u["objective"].update(fields) for s in steps(events) for u in s["updates"]]}


def extreme(name, value):
    return {"events_hook": lambda events: last_update(events)[name].__setitem__(BIN, value)}


def row(match, **fields):
    """Break the first row that matches."""
    return {"rows_hook": lambda rows: next(r for r in rows if match(r)).update(fields)}


def early(match, **fields):
    """The same ahead of the advantages, which then follow from it."""
    return {"before": lambda rows: next(r for r in rows if match(r)).update(fields)}


def at(step, position, sample):
    return lambda r: (r["step"], r["position"], r["sample"]) == (step, position, sample)


def step_event(change):
    return {"events_hook": lambda events: change(steps(events)[-1])}


def all_right(rows):
    for r in rows:
        if (r["step"], r["position"]) == (2, 0):
            r.update(outcome="correct", reward=1.0, extracted="7")


def dropped(rows):
    for r in rows:
        if (r["step"], r["position"]) == (2, 3):
            r["fate"] = "filtered"


def one_wrong_among_filtered(rows):
    next(r for r in rows if r["fate"] == "filtered" and r["outcome"] == "correct").update(
        outcome="incorrect", reward=-1.0
    )


def doubled_weight(events):
    last_update(events)["weight_max"] *= 2


def shifted(rows):
    next(r for r in rows if at(3, 1, 2)(r))["advantage"] += 0.1


def masked_out(events):
    """The update of a truncated response, without its 40 tokens."""
    u = last_update(events)
    u.update(tokens=u["tokens"] - 40, denominator_tokens=u["denominator_tokens"] - 40)
    if u["aggregation"] == "token-mean":
        u.update(weight_min=1 / u["tokens"], weight_max=1 / u["tokens"])


LEDGER = step_event(lambda s: s["ledger"]["generated"].update(tokens=1))
FIRST_RATIO = step_event(lambda s: s.update(first_ratio_deviation=0.01))
OLD = row(at(2, 0, 0), version=0)
BREAKS = {
    "D1": extreme("passed_high", 1.4), "D2": extreme("passed_low", 0.5), "D3": objective(eps_high=0.27),
    "D4": {"before": all_right}, "D5": step_event(lambda s: s["groups"].update(kept=3)),
    "D6": {"rows_hook": one_wrong_among_filtered}, "D7": {"events_hook": doubled_weight}, "D8": {"events_hook": masked_out},
    "D9": row(lambda r: r["fate"] == "filtered" and r["punishment"] < 0, punishment=-0.1), "D10": update(kl_coef=0.01),
    "D11": row(lambda r: r["fate"] == "filtered" and r["outcome"] == "correct", reward=2.0), "D12": {"updates": 1},
    "D13": {"rows_hook": shifted}, "D14": FIRST_RATIO, "D15": OLD, "D16": LEDGER, "D17": every_update(spread=0.0),
    "D18": update(corrected=3.0), "D19": update(clip_dual=3.0),
    "G1": extreme("passed_high", 1.3), "G2": {"before": dropped}, "G3": {"events_hook": doubled_weight},
    "G4": early(at(3, 2, 3), punishment=-0.5), "G5": update(kl_coef=0.1), "G6": objective(eps_low=0.25, eps_high=0.25),
    "G7": {"rows_hook": shifted}, "G8": FIRST_RATIO, "G9": OLD, "G10": LEDGER, "G11": every_update(spread=0.0),
    "G14": {"events_hook": masked_out}, "C15": {"events_hook": masked_out},
    "G12": update(corrected=3.0), "G13": update(clip_far=3.0),
    "C1": extreme("passed_high", 4.0), "C2": objective(eps_high=0.21), "C3": update(passed_dual=12.0),
    "C4": {"rows_hook": shifted}, "C5": {"before": dropped}, "C6": {"events_hook": doubled_weight},
    "C7": update(kl_coef=0.01), "C8": early(at(3, 2, 3), punishment=-0.5),
    "C9": early(lambda r: r["outcome"] == "incorrect" and r["extracted"] == "7", reward=-1.0), "C10": FIRST_RATIO,
    "C11": OLD, "C12": LEDGER, "C13": every_update(spread=0.0), "C14": update(corrected=3.0),
}  # fmt: skip
ALGORITHM = {"D": "dapo", "G": "grpo", "C": "dcpo"}


@pytest.mark.parametrize("algorithm", SPECS)
def test_an_honest_run_keeps_every_clause(tmp_path, algorithm):
    path = fabricate(tmp_path / "run", algorithm)
    assert set(verdicts(path, algorithm).values()) == {"pass"}
    first, others = judge_all(Evidence(path))
    assert (first.conforms, first.sentence) == (True, algorithm.upper())
    for other in others:
        assert not other.conforms
        assert other.sentence.startswith(f"not {other.algorithm.upper()} (base: {algorithm.upper()}): it lacks ")


def test_there_is_a_break_for_every_clause():
    assert set(BREAKS) == {clause.number for clauses in SPECS.values() for clause in clauses}


@pytest.mark.parametrize("number", BREAKS)
def test_a_run_that_breaks_only_one_clause_is_caught(tmp_path, number):
    algorithm = ALGORITHM[number[0]]
    path = fabricate(tmp_path / "run", algorithm, **BREAKS[number])
    seen = verdicts(path, algorithm)
    assert [n for n, v in seen.items() if v == "fail"] == [number]
    judgement = judge(Evidence(path), algorithm)
    clause = next(f.clause for f in judgement.findings if f.clause.number == number)
    name = algorithm.upper()
    expected = f"not {name} (base: {name}): it lacks " if clause.core else f"{name} with named departures: "
    assert judgement.sentence.startswith(f"{expected}{clause.part} ({number})")
    assert judgement.conforms != clause.core


def finding(path, number):
    return next(f for f in judge(Evidence(path), ALGORITHM[number[0]]).findings if f.clause.number == number)


NEVER_HIGH = {"passed_high": [0.0] * 9, "cut_high": [None] * 9, "clip_high": 0.0, "between": 0.0}
NEVER_LOW = {"passed_low": [None] * 9, "cut_low": [0.0] * 9, "clip_low": 0.0}


def kept_alike(rows):
    """An all-wrong group of unequal lengths that was trained: the phantom signal of a filter on shaped rewards."""
    for r in rows:
        if (r["step"], r["position"]) == (2, 2):
            r.update(outcome="incorrect", reward=-1.0)


def one_surplus(rows):
    for r in rows:
        if (r["step"], r["position"]) == (2, 3):
            r["fate"] = "surplus"


def both_forged(step):
    for fate in ("trained", "generated"):
        step["ledger"][fate]["responses"] -= 1


def fewer_false_alarms(rows):
    for r in rows:
        if r["fate"] == "filtered":
            r.update(length=5, punishment=0.0)


def equal_lengths(rows):
    for r in rows:
        r.update(length=7, punishment=0.0, finish="stop")


def new_problems(rows):
    for r in rows:
        r["problem_id"] = f"{r['step']}-{r['position']}"


def never_alike(rows):
    for r in rows:
        if (r["step"], r["position"], r["sample"]) == (2, 3, 0):
            r.update(outcome="incorrect", reward=0.0)


def no_group_trained(rows):
    for r in rows:
        r.update(fate="surplus")


def no_advantages(rows):
    for r in rows:
        if at(1, 0, 0)(r):
            r.update(advantage=None)


@pytest.mark.parametrize(
    ("number", "how", "verdict", "says"),
    [
        ("D1", every_update(applied=False), "not shown", "no update"),
        ("D1", objective(eps_high=0.2), "fail", "eps_low 0.2, eps_high 0.2: not raised"),
        ("D1", extreme("cut_high", 1.2), "fail", "ratio 1.2000 lost its gradient below the upper bound 1.2800"),
        ("D1", every_update(**NEVER_HIGH), "not shown", "no token's ratio lay between"),
        ("D1", every_update(between=0.0), "not shown", "the symmetric and the raised bound; 12 were clipped above"),
        ("D2", every_update(**NEVER_LOW), "not shown", "no token's ratio went below"),
        ("D2", extreme("cut_low", 0.9), "fail", "ratio 0.9000 lost its gradient above the lower bound 0.8000"),
        ("D3", every_update(applied=False), "not shown", "no update"),
        ("D3", objective(bounds="log_bounds"), "fail", "log_bounds with eps 0.2 / 0.28; the paper has fixed_bounds"),
        ("D4", {"rows_hook": no_group_trained}, "not shown", "no group was trained"),
        ("D5", {"before": lambda rows: [r.update(fate="surplus") for r in rows if r["fate"] == "filtered"],
                "events_hook": lambda ev: [s["groups"].update(all_right=0, all_wrong=0) for s in steps(ev)]},
         "not shown", "nothing was to be replaced"),
        ("D5", {"overrides": {"algo.filter": "none"}}, "fail", "the run did not resample (algo.filter = 'none')"),
        ("D6", {"before": kept_alike}, "fail", "1 groups were kept for their shaped rewards alone, first in step 2"),
        ("D6", {"before": fewer_false_alarms}, "not shown", "none of 6 dropped groups had rewards that differ by length"),
        ("D7", every_update(applied=False), "not shown", "no update"),
        ("D7", every_update(aggregation="constant"), "fail", "losses were aggregated as constant"),
        ("D5", {"before": one_surplus}, "fail", "1 steps trained on fewer than 4 groups, first step 2: 3"),
        ("D7", every_update(aggregation="prompt-mean", weight_min=1e-3), "pass", "reading of token-level: prompt-mean"),
        ("D7", every_update(aggregation="prompt-mean", tokens=1.0), "fail", "1 tokens in the loss"),
        ("D7", every_update(weight_min=0.5, weight_max=0.5), "fail", "the smallest weight 0.5 is more than 1 /"),
        ("D7", every_update(weight_min=1e-5, weight_max=1e-5), "fail", "the largest weight 1e-05 is less than 1 /"),
        ("D7", update(tokens=3.0), "fail", "3 tokens in the loss"),
        ("D8", {"before": equal_lengths}, "not shown", "no truncated response was trained"),
        ("D9", {"before": equal_lengths}, "not shown", "no response was longer than L_max - L_cache = 30 tokens"),
        ("D9", {"overrides": {"algo.length": "none", "algo.L_max": None, "algo.L_cache": None}}, "fail", "were not punished"),
        ("D10", every_update(applied=False), "not shown", "no update"),
        ("D10", row(at(1, 0, 0), kl_penalty=0.2), "fail", "a KL divergence was taken from rewards"),
        ("D10", step_event(lambda s: s.update(kl_penalised=3)), "fail", "a KL divergence was taken from rewards"),
        ("D10", update(kl_ref=50.0), "fail", "a KL term of 50 nats was added up, whatever its coefficient"),
        ("D12", every_update(applied=False), "not shown", "no update"),
        ("D13", {"rows_hook": no_advantages}, "fail", "a graded response of a trained group has no advantage"),
        ("D13", {"rows_hook": no_group_trained}, "not shown", "no trained group"),
        ("D15", {"rows_hook": no_group_trained}, "not shown", "no group was trained"),
        ("D16", step_event(both_forged), "fail", "step 3: 15 responses are said to be trained, 16 were recorded"),
        ("D14", step_event(lambda s: s.update(first_ratio_deviation=None)), "pass", "first update of 2 steps"),
        ("D14", {"events_hook": lambda ev: [s.update(first_ratio_deviation=None) for s in steps(ev)]}, "not shown", "no step"),
        ("D17", every_update(moved=0.0), "not shown", "no response had two tokens with a gradient"),
        ("D19", every_update(applied=False), "not shown", "no update"),
        ("D18", every_update(applied=False), "not shown", "no update"),
        ("G1", every_update(applied=False), "not shown", "no update"),
        ("G1", objective(eps_high=0.28), "fail", "eps_low 0.2, eps_high 0.28: not symmetric"),
        ("G1", extreme("passed_low", 0.5), "fail", "ratio 0.5000 kept its gradient below the lower bound 0.8000"),
        ("G1", every_update(**NEVER_HIGH, **NEVER_LOW), "not shown", "no token's ratio left the bounds"),
        ("G2", {"before": never_alike}, "not shown", "no group had all answers alike"),
        ("G3", every_update(aggregation="token-mean"), "fail", "losses were aggregated as token-mean"),
        ("G3", every_update(weight_max=0.0), "not shown", "no recorded step"),
        ("G3", {"before": equal_lengths}, "not shown", "no recorded step had responses of different lengths"),
        ("G5", every_update(applied=False), "not shown", "no update"),
        ("G5", objective(kl="k1"), "fail", "the loss had k1 with coefficient 0.04; the paper has k3 with 0.04"),
        ("C1", every_update(applied=False), "not shown", "no update"),
        ("C1", extreme("cut_high", 1.3), "fail", "ratio 1.3000 lost its gradient below the upper bound 2.0000"),
        ("C1", every_update(**NEVER_HIGH, **NEVER_LOW), "not shown", "they never differed"),
        ("C3", update(cut_dual=1.1), "fail", "ratio 1.100 lost its gradient below 10"),
        ("C3", update(clip_far=1.0), "fail", "1 tokens with A > 0 were cut below"),
        ("C3", every_update(clip_dual=0.0), "not shown", "no token with A < 0 reached a ratio of 10; the largest was 9.000"),
        ("C4", {"before": new_problems}, "not shown", "no prompt was rolled out twice"),
        ("C9", early(at(1, 0, 3), reward=0.0), "fail", "a response with no answer was given 0, expected -1"),
    ],
)  # fmt: skip
def test_what_each_clause_sees(tmp_path, number, how, verdict, says):
    seen = finding(fabricate(tmp_path / "run", ALGORITHM[number[0]], **how), number)
    assert seen.verdict == verdict, seen.evidence
    assert says in seen.evidence


def test_figures_of_an_honest_run(tmp_path):
    path = fabricate(tmp_path / "a", "dapo")
    assert finding(path, "D12").evidence == "2 to 2 updates a step"
    assert finding(path, "D1").evidence == (
        "24 tokens were trained at ratios that a symmetric clip would have cut; 12 tokens were clipped above; largest "
        "ratio with a live gradient 1.2500"
    )
    assert finding(path, "D5").evidence == "6 groups dropped; 18 prompts offered for 3 full batches of 4"
    assert finding(path, "D9").evidence == "9 of 72 responses punished, all by the formula"
    path = fabricate(tmp_path / "b", "dcpo")
    assert finding(path, "C4").evidence == (
        "all advantages follow the visits to their prompts; 8 groups were later visits, and 1 of those had all answers "
        "alike and still a gradient"
    )


def test_without_rollouts(tmp_path):
    for algorithm, number in (("dapo", "D4"), ("dcpo", "C4")):
        path = fabricate(tmp_path / algorithm, algorithm)
        for file in (path / "rollouts").iterdir():
            file.unlink()
        assert finding(path, number).evidence == "not recorded: no rollouts at all"
        judgement = judge(Evidence(path), algorithm)
        assert judgement.sentence.startswith(f"not shown to be {algorithm.upper()} (base")
        assert not judgement.conforms


def test_visits_cannot_be_counted_with_a_gap(tmp_path):
    path = fabricate(tmp_path / "run", "dcpo")
    (path / "rollouts" / "step-000002.parquet").unlink()
    assert finding(path, "C4").evidence == "not recorded: the rollouts of step 2"
    assert finding(path, "C6").evidence == "not recorded: the rollouts of step 2"
    assert judge(Evidence(path), "dcpo").sentence.startswith("not shown to be DCPO")


def test_a_file_that_is_taken_away_takes_the_name_with_it(tmp_path):
    path = fabricate(tmp_path / "run", "dapo", before=all_right)
    assert not judge(Evidence(path), "dapo").conforms
    (path / "rollouts" / "step-000002.parquet").unlink()
    assert judge(Evidence(path), "dapo").sentence.startswith(
        "not shown to be DAPO (base: DAPO): the record has no evidence"
    )


def test_a_short_run_of_dcpo_is_dcpo_with_a_part_not_shown(tmp_path):
    path = fabricate(tmp_path / "run", "dcpo", before=new_problems)
    judgement = judge(Evidence(path), "dcpo")
    assert judgement.sentence == "DCPO; not shown: smooth advantage standardisation (C4)"
    assert judgement.conforms


def test_masked_truncated_responses_are_no_wrong_weights(tmp_path):
    def masked(events):
        for s in steps(events):
            u = s["updates"][1]  # of its eight responses one was truncated, and the last update is that of its group
            u.update(weight_min=1 / (14 * 8))

    path = fabricate(tmp_path / "run", "grpo", overrides={"algo.length": "mask-truncated"}, events_hook=masked)
    assert finding(path, "G3").verdict == "pass"


def test_a_visit_of_a_filtered_group_counts(tmp_path):
    overrides = {"algo.filter": "drop", "algo.allow_smooth_filter": True}
    path = fabricate(tmp_path / "drop", "dcpo", overrides=overrides, rows_hook=dropped)
    assert finding(path, "C4").verdict == "pass"
    assert "7 groups were later visits" in finding(path, "C4").evidence
    overrides = {"algo.filter": "resample", "algo.allow_smooth_filter": True}
    path = fabricate(tmp_path / "resample", "dcpo", overrides=overrides, rows_hook=dropped)
    assert len(Evidence(path).visited) == 11  # the dropped group stands behind the last trained one


def test_a_resume_with_other_code_is_on_the_card(tmp_path):
    path = fabricate(tmp_path / "run", "dapo")
    manifest = json.loads((path / "manifest.json").read_text())
    code = {**manifest["code"], "source_sha256": "f" * 64}
    resume = {"kind": "resume", "time": 9.0, "step": 3, "code": code, "libraries": manifest["libraries"]}
    with (path / "events.jsonl").open("a") as file:
        file.write(json.dumps(resume) + "\n")
    text = card(Evidence(path), *judge_all(Evidence(path)))
    assert "| resumed with other code | after step 3: revision `" in text
    assert "source `ffffffffffffffff`" in text


def test_a_group_that_lost_responses_is_judged_by_the_rest(tmp_path):
    def lose(rows):
        for r in rows:
            if (r["step"], r["position"]) == (1, 1) and r["sample"] > 0:
                r.update(advantage=None, outcome="ungraded", reward=None, fate="failed")
            if (r["step"], r["position"], r["sample"]) == (1, 1, 0):
                r.update(advantage=0.0)  # alone: no baseline

    path = fabricate(tmp_path / "run", "dapo", rows_hook=lose)
    assert finding(path, "D13").verdict == "pass"
    assert "44 advantages" in finding(path, "D13").evidence
    assert finding(path, "D8").verdict == "fail"  # the lost responses were in its loss all the same


def test_neighbours_are_named(tmp_path):
    changes = {"algo.ratio": "sequence", "algo.eps_low": 3e-4, "algo.eps_high": 4e-4, "algo.kl_coef": 0.0}
    path = fabricate(tmp_path / "run", "grpo", overrides=changes, **objective(eps_low=3e-4, eps_high=4e-4))
    assert judge(Evidence(path), "grpo").sentence.startswith("not GRPO (base: GSPO): it lacks symmetric clip (G1)")


def test_what_is_no_run_or_no_algorithm(tmp_path):
    with pytest.raises(ValueError, match="is not a run directory"):
        Evidence(tmp_path)
    path = fabricate(tmp_path / "run", "dapo")
    with pytest.raises(ValueError, match="--claim 'ppo' is unknown; use one of dapo, grpo, dcpo"):
        judge(Evidence(path), "ppo")
    empty = fabricate(tmp_path / "empty", "dapo", events_hook=lambda events: events.__delitem__(slice(1, None)))
    with pytest.raises(ValueError, match="has no complete step yet"):
        judge(Evidence(empty), "dapo")

    def old(events):
        del last_update(events)["cut_high"]

    with pytest.raises(ValueError, match="recorded by an earlier dapo"):
        Evidence(fabricate(tmp_path / "old", "dapo", events_hook=old))


def test_the_card_holds_what_a_claim_needs(tmp_path):
    path = fabricate(tmp_path / "run", "dapo", overrides={"algo.dual_clip": 10.0}, **update(clip_dual=3.0))
    text = card(Evidence(path), *judge_all(Evidence(path)))
    for part in (
        "## What was trained: DAPO with named departures: no other clip (D19)",
        "| clip bounds | fixed, eps_low 0.2, eps_high 0.28 |",
        "| dual clip | 10 |",
        "| algorithm | DAPO; departures set in the recipe: algo.dual_clip = 10.0 (not 0.0) |",
        f"| group size | {G} responses to a prompt, 4 prompts a step |",
        "| loss aggregation | token-mean |",
        "| length | soft-punishment, L_max 40, L_cache 10 |",
        "name dapo_math, version dapo 0, source_sha256 `0000000000000000`",
        "| KL | none |",
        "| data | s.jsonl, 6 problems, `1111111111111111` |",
        "| 3 | held | avg@8 | 10 | 50.0% | 40.0% to 60.0% |",
        "| filtered | 6 | 24 | 396 |",
        "| seed | 0 |",
        "not a local folder",
        "| uncommitted changes |",
        "| D14 | old policy | pass | \\|r - 1\\| <= 0 on the first update of 3 steps |",
    ):
        assert part in text, part
    assert all(line.startswith(("|", "#", "Judged", "As ")) or not line for line in text.splitlines())


def test_the_cards_of_the_others(tmp_path):
    path = fabricate(tmp_path / "grpo", "grpo")
    text = card(Evidence(path), *judge_all(Evidence(path)))
    assert "| KL | k3 in the loss, coefficient 0.04 |" in text
    assert "| loss aggregation | sequence-mean, not token-level |" in text
    assert "| dual clip | off |" in text
    quiet = fabricate(tmp_path / "quiet", "dcpo", events_hook=lambda events: events.pop())
    assert "### Results on held-out problems\n\nNone.\n" in card(Evidence(quiet), *judge_all(Evidence(quiet)))
    (path / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match=r"manifest\.json cannot be read as a manifest of this version"):
        card(Evidence(path), *judge_all(Evidence(path)))


def test_the_ledger_of_a_run_counts_abandoned_attempts(tmp_path):
    path = fabricate(tmp_path / "run", "dapo")
    events = Evidence(path).events
    abandoned = {**next(e for e in events if e["kind"] == "step"), "kind": "abandoned"}
    whole, more = token_fates(events), token_fates([*events, abandoned])
    assert whole["generated"]["groups"] == 18
    assert more["generated"]["groups"] == 24


BLOCKED = (
    "import sys\nfor name in ('torch', 'transformers'): sys.modules[name] = None\nfrom dapo.cli import main\nmain()\n"
)


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        ([], 0, "verdict: DAPO\nas GRPO: not GRPO (base: DAPO)"),
        (["--claim", "grpo"], 3, "verdict: not GRPO (base: DAPO)"),
        (["--claim", "dcpo"], 3, "verdict: not DCPO (base: DAPO)"),
        (["--claim", "ppo"], 2, "--claim 'ppo' is unknown"),
        (["--card"], 0, "## What was trained: DAPO"),
        (["--json"], 0, '"conforms": true'),
    ],
)
def test_the_command_needs_no_torch(tmp_path, flags, code, says):
    path = fabricate(tmp_path / "run", "dapo")
    program = [sys.executable, "-c", BLOCKED, "check", str(path), *flags]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert says in done.stdout + done.stderr
    if flags == ["--json"]:
        document = json.loads(done.stdout)
        assert len(document["clauses"]) == 19
        assert set(document["others"]) == {"grpo", "dcpo"}
