"""Problems from files, duplicates, prompts, the stream; and intervals."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.data.arithmetic import TASKS, generate
from dapo.data.prompts import Prompter, fit
from dapo.data.sources import Fields, load_problems
from dapo.data.stream import PromptStream
from dapo.stats import clustered_mean
from dapo.types import Problem


def load(path, fields=None, drop=False):
    return load_problems(str(path), "train", 10, 0, fields or Fields(), drop)


DAPO_ROW = {
    "data_source": "math_dapo",
    "prompt": [{"content": "Solve the problem.\n\nWhat is 2+2?", "role": "user"}],
    "ability": "MATH",
    "reward_model": {"ground_truth": "4", "style": "rule-lighteval/MATH_v2"},
    "extra_info": {"index": "9a9b6eb4"},
}


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_the_dapo_math_17k_schema(tmp_path, kind):
    rows = [
        DAPO_ROW,
        {**DAPO_ROW, "prompt": [{"content": "What is -1-1?", "role": "user"}], "reward_model": {"ground_truth": "-2"}},
    ]
    path = tmp_path / f"data.{kind}"
    if kind == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    first, second = load(path).problems
    assert (first.text, first.answer, first.family) == ("Solve the problem.\n\nWhat is 2+2?", "4", "math_dapo")
    assert second.answer == "-2"


def test_fields_may_have_other_names_and_a_bom_is_no_data(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"id": "x", "q": "1+1", "a": {"value": 2}}).encode() + b"\n\n")
    (problem,) = load(path, Fields("q", "a.value")).problems
    assert (problem.id, problem.text, problem.answer) == ("x", "1+1", "2")


def test_duplicates_are_kept_or_dropped_and_counted(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text(
        "\n".join(json.dumps({"id": i, "problem": p, "answer": "2"}) for i, p in ((7, "a"), (7, "b"), (8, "a")))
    )
    assert [p.id for p in load(path).problems] == ["7#1", "7#2", "8"]
    dropped = load(path, drop=True)
    assert ([p.text for p in dropped.problems], dropped.dropped_duplicates) == (["a", "b"], 1)
    assert dropped.fingerprint != load(path).fingerprint


@pytest.mark.parametrize("task", sorted(TASKS))
def test_held_out_problems_never_occur_in_training(task):
    train, held = generate(task, "train", 3000, 0), generate(task, "held-out", 3000, 1)
    assert not {p.cluster for p in train} & {p.cluster for p in held}
    assert not {p.text for p in train} & {p.text for p in held}
    assert len({p.id for p in train}) == len(train)
    assert generate(task, "train", 3000, 0) == train
    assert generate(task, "train", 3000, 5) != train


def test_the_quickstart_has_enough_held_out_problems():
    assert len(generate("one_digit", "held-out", 10**6, 0)) >= 100
    assert len(generate("two_digit_sum", "held-out", 200, 0)) == 200
    for p in generate("one_digit", "train", 10**6, 0):
        expression = p.id.split(":")[1]
        assert str(eval(expression)) == p.answer


def test_generated_tasks_mix_in_counts():
    loaded = load("arithmetic:one_digit=7+two_digit_sum")
    assert [p.family for p in loaded.problems] == ["one_digit"] * 7 + ["two_digit_sum"] * 10
    with pytest.raises(ValueError, match="should be TASK or TASK=COUNT"):
        load("arithmetic:one_digit=many")


class FakeTokenizer:
    chat_template = "yes"

    def apply_chat_template(self, turns, **kwargs):
        return [ord(c) for t in turns for c in f"{t['role'][0]}:{t['content']};"]


def test_prompts_are_rendered_from_data_and_never_from_the_problem():
    prompter = Prompter(FakeTokenizer(), "Q: {{ problem }}", [("system", "S")])
    text = "".join(map(chr, prompter.ids(Problem("p", "{{ 7 * 7 }}", "49"))))
    assert text == "s:S;u:Q: {{ 7 * 7 }};"
    with pytest.raises(ValueError, match=r"data\.template fails"):
        Prompter(FakeTokenizer(), "{{ problem.__class__.__mro__ }}", []).ids(Problem("p", "x", "1"))


def test_long_prompts_are_refused_or_dropped():
    prompter = Prompter(FakeTokenizer(), "{{ problem }}", [])
    problems = [Problem("short", "x", "1"), Problem("long", "x" * 50, "1")]
    kept, dropped = fit(problems, prompter, 20, drop=True)
    assert ([p.id for p, _ in kept], [p.id for p in dropped]) == (["short"], ["long"])
    with pytest.raises(ValueError, match="the prompt of long has 53 tokens"):
        fit(problems, prompter, 20, drop=False)
    with pytest.raises(ValueError, match="all 1 prompts are longer"):
        fit(problems[1:], prompter, 20, drop=True)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(0, 5), st.lists(st.integers(0, 4), max_size=8), st.integers(0, 40))
def test_the_stream_loses_and_repeats_nothing_at_any_resume_point(size, seed, given_back, cut):
    def walk(stream, upto):
        seen = []
        for i in range(upto):
            seen.append(stream.next())
            if i < len(given_back) and given_back[i] <= len(seen):
                back = seen[len(seen) - given_back[i] :]
                del seen[len(seen) - given_back[i] :]
                stream.requeue(back)
        return seen

    reference = PromptStream(size, seed)
    order = [reference.next() for _ in range(4 * size)]
    for epoch in range(4):
        assert sorted(order[epoch * size : (epoch + 1) * size]) == list(range(size))
    first = PromptStream(size, seed)
    got = walk(first, cut)
    again = PromptStream(size, seed)
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    rest = [again.next() for _ in range(2 * size)]
    whole = next(PromptStream(size, seed) for _ in range(1))
    assert got + rest == [whole.next() for _ in range(len(got) + 2 * size)]


def test_a_stream_over_other_data_is_refused():
    with pytest.raises(ValueError, match="saved over 3 problems, now there are 4"):
        PromptStream(4, 0).load_state_dict(PromptStream(3, 0).state_dict())


def test_intervals_respect_clusters():
    rng = np.random.default_rng(0)
    values = rng.random(400)
    narrow = clustered_mean(values.tolist(), [str(i) for i in range(400)])
    assert narrow.mean == pytest.approx(values.mean())
    assert narrow.high - narrow.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.15)
    repeated = np.repeat(values[:40], 10)
    wide = clustered_mean(repeated.tolist(), [str(i // 10) for i in range(400)])
    naive = clustered_mean(repeated.tolist(), [str(i) for i in range(400)])
    assert (wide.high - wide.low) / (naive.high - naive.low) == pytest.approx(10**0.5, rel=0.2)
    with pytest.raises(ValueError, match="one cluster for each value"):
        clustered_mean([1.0], [])
    with pytest.raises(ValueError, match="at least one"):
        clustered_mean([], [])
