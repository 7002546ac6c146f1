"""Verifiers, and what happens when a user's reward function misbehaves."""

import json
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dapo.cli import app
from dapo.rewards import dapo_math, number
from dapo.rewards.verifier import identity, make_verifier
from dapo.types import Problem

P540 = Problem("p", "", "540")
CASES = [json.loads(line) for line in (Path(__file__).parent / "verifier" / "cases.jsonl").read_text().splitlines()]
UNEXPLAINED = {"18", "计划的比例为13/28", "$(\\begin{pmatrix}-\\frac{7}{4}&-2\\\\4&\\frac{1}{4}\\\\\\end{pmatrix})$"}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("so\nAnswer: 540", "correct"),
        ("answer :  $540$", "correct"),
        ("Answer: 5,40", "correct"),
        ("Answer: 7\nAnswer: 540", "correct"),
        ("Answer: 541 = 540", "correct"),  # the reference rule's known false positive
        ("Answer: 540.", "incorrect"),  # and its known false negatives
        ("**Answer:** 540", "incorrect"),
        ("Answer: \\(540\\)", "incorrect"),
        ("Answer: 540.0", "incorrect"),
        ("Answer: +540", "incorrect"),
        ("\\boxed{540}", "incorrect"),
        ("Answer：540", "incorrect"),
        ("Answer: 540" + " " * 300, "incorrect"),  # beyond the last 300 characters
        ("Answer: 540\nAnswer: 7", "incorrect"),
    ],
)
def test_dapo_math_is_the_reference_rule(text, outcome):
    assert dapo_math.grade(P540, text).outcome == outcome


def last_box(text):
    """What the last \\boxed{...} of the last 100 characters holds, to the letter: the reference code's strict rule."""
    inside = text[-100:].rpartition("\\boxed{")[2] if "\\boxed{" in text[-100:] else ""
    depth = 1
    for i, c in enumerate(inside):
        depth += (c == "{") - (c == "}")
        if depth == 0:
            return inside[:i]
    return None


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_dapo_math_on_the_shared_cases(case):
    """The field `dapo_math` reads a reply without an answer line in another way than training does (docs/LOG.md)."""
    problem, text = Problem("p", "", case["gold"]), case["response"]
    trained = dapo_math.grade(problem, text).outcome
    if dapo_math.ANSWER.search(text):
        assert trained == case["dapo_math"]
        return
    assert trained == "incorrect"
    if "\\boxed{" in text:
        field = "correct" if last_box(text) == case["gold"] else "incorrect"
    else:
        field = dapo_math.grade(problem, f"Answer: {text}").outcome
    assert (field == case["dapo_math"]) == (text not in UNEXPLAINED)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [("1/2", "\\frac12"), ("5", "5\\text{ cm}"), ("\\sqrt{2}", "\\sqrt2"), ("1234", "1,234"), ("7", "\\boxed{7}")],
)
def test_dapo_math_normalises_both_sides(gold, answer):
    expected = "incorrect" if gold == "1/2" else "correct"  # \frac12 becomes frac{1}{2}, never a quotient
    assert dapo_math.grade(Problem("p", "", gold), f"Answer: {answer}").outcome == expected


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Answer: 540.", "correct"),
        ("**Answer:** 540", "correct"),
        ("Answer: 540.0", "correct"),
        ("Answer: +540", "correct"),
        ("Answer: 1080/2", "correct"),
        ("Answer：540", "correct"),
        ("Answer: 541 = 540", "incorrect"),
        ("Answer: 540 or 541", "incorrect"),
        ("Answer: 5 40", "incorrect"),
        ("Answer: 1080 / 2", "incorrect"),
        ("Answer: 5_40", "incorrect"),
        ("Answer: -540", "incorrect"),
        ("Answer: −540", "incorrect"),
        ("Answer: 540/0", "incorrect"),
        ("Answer: 5.4/0.01", "incorrect"),
        ("Answer: " + "9" * 5000, "incorrect"),
        ("Answer:", "incorrect"),
        ("540", "incorrect"),
    ],
)
def test_the_number_rule(text, outcome):
    assert number.grade(P540, text).outcome == outcome


def test_the_number_rule_is_exact_at_any_length():
    gold = "1" * 3000 + "2"
    assert number.grade(Problem("p", "", gold), f"Answer: {gold}").outcome == "correct"
    assert number.grade(Problem("p", "", gold), f"Answer: {gold[:-1]}3").outcome == "incorrect"
    assert number.grade(Problem("p", "", "-3"), "Answer: −3").outcome == "correct"
    assert number.grade(Problem("p", "", "1,234.5"), "Answer: 1234.50").outcome == "correct"
    assert number.grade(Problem("p", "", "1234567"), "Answer: 1 234 567").outcome == "correct"
    assert number.grade(Problem("p", "", "10.5"), "Answer: 2 1/2").outcome == "incorrect"
    assert number.grade(Problem("p", "", "x"), "Answer: 3").outcome == "ungraded"


@pytest.fixture
def stub(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    made = []

    def make(function, limit=20.0):
        made.append(make_verifier(f"python:reward_stubs:{function}", limit))
        return made[-1]

    yield make
    for verifier in made:
        verifier.close()


def test_a_python_reward(stub):
    scores = stub("right").submit(P540, ["540", "541"]).result()
    assert [s.outcome for s in scores] == ["correct", "incorrect"]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("raise", "KeyError"),
        ("die", "died twice"),
        ("leave", "died twice"),
        ("short", "a list of 0 for 2 texts"),
        ("long", "a list of 3 for 2 texts"),
        ("one", "1.0 for 2 texts"),
        ("dict", "for 2 texts"),
        ("none", "returned None"),
        ("nan", "returned nan"),
        ("text", "a finite number"),
        ("nan score", "a Score with value nan"),
    ],
)
def test_a_failing_reward_is_never_a_zero_and_the_next_is_graded(stub, what, says):
    verifier = stub("behave")
    scores = verifier.submit(P540, [what, "x"]).result()
    assert [s.outcome for s in scores] == ["ungraded"] * 2
    assert says in scores[0].why
    after = verifier.submit(P540, ["mixed", "x", "x", "x"]).result()
    assert [(s.outcome, s.value) for s in after] == [
        ("correct", 1.0),
        ("incorrect", -1.0),
        ("correct", None),
        ("incorrect", None),
    ]


@pytest.mark.parametrize("what", ["hang", "sleep"])
def test_a_hanging_reward_is_killed_at_the_limit(stub, what):
    verifier = stub("behave", limit=1.5)
    verifier.submit(P540, ["score"]).result()  # so that the start of the worker is not timed
    start = time.monotonic()
    (score,) = verifier.submit(P540, [what]).result()
    assert score.outcome == "ungraded"
    assert "1.5 s" in score.why
    assert time.monotonic() - start < 60  # it would be for ever
    assert verifier.submit(P540, ["score"]).result()[0].value == 0.5


def test_names_that_mean_nothing_are_refused():
    for name in ("dapo_maths", "python:nothing", "python:no_such_module_here:f"):
        with pytest.raises(ValueError, match=r"reward\.verifier"):
            make_verifier(name, 1.0)
    assert identity("dapo_math")["source_sha256"] != identity("number")["source_sha256"]
    assert sys.modules.get("no_such_module_here") is None


def reward_test(*arguments):
    return CliRunner().invoke(app, ["reward", "test", *map(str, arguments)])


def test_reward_test_says_what_was_extracted_and_why(tmp_path):
    file = tmp_path / "replies.jsonl"
    rows = [
        {"gold": "4", "response": "Answer: 4"},
        {"answer": 4, "text": "Answer: 5\ud800"},
        {"gold": "4", "response": "4"},
    ]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    done = reward_test("--verifier", "dapo_math", file)
    assert done.exit_code == 0
    first, second, third, counts = done.stdout.splitlines()
    assert first == "line 1: correct | extracted '4' | gold '4' | equal after normalisation"
    assert second.startswith("line 2: incorrect | extracted '5\\ud800'")
    assert third == "line 3: incorrect | extracted nothing | gold '4' | no 'Answer:' in the last 300 characters"
    assert counts == "1 correct, 2 incorrect, 0 ungraded"
    as_json = json.loads(reward_test("--json", "--verifier", "number", file).stdout)
    assert as_json["counts"] == {"correct": 1, "incorrect": 2}
    assert as_json["verdicts"][2]["extracted"] is None


@pytest.mark.parametrize(
    ("content", "verifier", "says"),
    [
        ("", "number", "has no lines"),
        ("[1]", "number", "line 1 is not a JSON object"),
        ("\n{", "number", "line 2 is not JSON"),
        ('{"gold": 4}', "number", "none of the fields response"),
        ('{"response": "4"}', "number", "none of the fields gold"),
        ('{"gold": "4", "response": "4"}', "nothing", "reward.verifier = 'nothing' is unknown"),
    ],
)
def test_reward_test_refuses_bad_files_with_the_line(tmp_path, content, verifier, says):
    file = tmp_path / "replies.jsonl"
    file.write_text(content)
    done = reward_test("--verifier", verifier, file)
    assert done.exit_code == 2
    assert says in done.stderr


def test_reward_test_shows_a_failing_function(stub, tmp_path):
    file = tmp_path / "replies.jsonl"
    file.write_text('{"gold": "4", "response": "nan"}\n{"gold": "4", "response": "score"}')
    done = reward_test("--verifier", "python:reward_stubs:behave", file)
    assert "line 1: ungraded" in done.stdout
    assert "line 2: correct value 0.5 | extracted '7'" in done.stdout
