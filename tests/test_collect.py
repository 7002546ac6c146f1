"""Dynamic sampling: admission in order of submission, the ledger, under-fill, surplus, grading failures."""

import math
from concurrent.futures import Future

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.data.stream import PromptStream
from dapo.rewards.verifier import RULES, RuleVerifier
from dapo.rollout.collect import Collector, Interrupted, Settings, TooManyUngraded
from dapo.rollout.scripted import ScriptedEngine
from dapo.types import Problem, Sampling, Score

G = 4
NAMES = {0: "Answer: 1", 1: "Answer: 2", 2: " and so on"}


def decode(ids):
    return NAMES[ids[0]] if ids else ""


def problems(n):
    return [(Problem(f"p{i}", f"problem {i}", "1"), (9, i)) for i in range(n)]


def script_of(correct):
    """`correct[i]`: how many of the G responses to problem i are right; lengths vary with problem and sample."""

    def script(request):
        i = request.prompt_ids[1]
        word = 0 if request.sample < correct[i % len(correct)] else 1
        return (word,) + (2,) * ((i * 7 + request.sample * 3) % 11)

    return script


def make(correct, n=40, delay=0, seed=0, **changes):
    values = {
        "prompts_per_step": 4,
        "group_size": G,
        "max_prompts_per_step": 40,
        "surplus": "requeue",
        "filter": "resample",
        "sampling": Sampling(max_new_tokens=12),
        "seed": seed,
        "reward_correct": 1.0,
        "reward_incorrect": -1.0,
        "reward_no_answer": -1.0,
        "max_ungraded": 1.0,
        "overlong": (12, 4),
    }
    engine = ScriptedEngine(script_of(correct), delay)
    verifier = changes.pop("verifier", None) or RuleVerifier(RULES["dapo_math"][0])
    stream = PromptStream(n, seed)
    return Collector(engine, verifier, problems(n), stream, decode, Settings(**{**values, **changes})), engine


def ids(collected):
    return [g.problem.id for g in collected.groups]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, G), min_size=3, max_size=12).filter(lambda c: any(0 < x < G for x in c)), st.data())
def test_the_batch_does_not_depend_on_the_order_of_finishing(correct, data):
    delays = data.draw(st.lists(st.integers(0, 10**6), min_size=2, max_size=2, unique=True))
    runs = []
    for delay in delays:
        collector, _ = make(correct, delay=delay)
        runs.append([collector.collect(step) for step in range(4)])
    for a, b in zip(*runs, strict=True):
        assert ids(a) == ids(b)
        assert a.full == b.full
        assert [g.rollouts for g in a.groups] == [g.rollouts for g in b.groups]
        for c in (a, b):
            assert c.ledger.balanced()
            assert all(0 < g.n_correct < G for g in c.groups)


def test_admission_is_in_order_of_submission():
    collector, engine = make([2], delay=3)
    collected = collector.collect(0)
    submitted = list(dict.fromkeys(f"p{r.prompt_ids[1]}" for r in engine.submitted))
    assert ids(collected) == submitted[:4]
    assert collected.ledger.fates["surplus"].groups + collected.ledger.fates["cancelled"].groups == len(submitted) - 4


def test_prompts_behind_the_batch_come_first_in_the_next_step():
    collector, engine = make([2], delay=3)
    first = collector.collect(0)
    submitted = list(dict.fromkeys(f"p{r.prompt_ids[1]}" for r in engine.submitted))
    second = collector.collect(1)
    assert (ids(first) + ids(second))[: len(submitted)] == submitted


def test_an_all_wrong_group_that_differs_in_length_only_is_dropped():
    collector, _ = make([0, 2], delay=1)
    collected = collector.collect(0)
    wrong = [g for g, fate, why in collected.fates if why == "all wrong"]
    assert wrong
    assert any(len({r.reward + r.punishment for r in g.rollouts}) > 1 for g in wrong)  # shaped rewards do differ
    assert all(g.n_correct == 2 for g in collected.groups)


def test_ten_equal_rewards_are_dropped_even_where_their_std_is_not_zero():
    import numpy as np

    assert np.std([-1.3] * 10) > 0  # the trap
    collector, _ = make([0], reward_incorrect=-1.3, group_size=10, overlong=None)
    collected = collector.collect(0)
    assert collected.groups == ()
    assert {r.reward for g, _, _ in collected.fates for r in g.rollouts} == {-1.3}


def test_nothing_informative_ends_after_the_allowed_prompts():
    collector, engine = make([0])
    collected = collector.collect(0)
    assert not collected.full
    assert collected.groups == ()
    assert len(engine.submitted) == 40 * G
    assert collected.correct_counts == {0: 40}
    assert collected.ledger.balanced()
    assert collected.ledger.fates["filtered"].groups == 40


def test_a_partial_batch_keeps_what_was_found():
    collector, _ = make([0] * 19 + [2], n=40)
    collected = collector.collect(0)
    assert not collected.full
    assert len(collected.groups) == 2
    assert collected.ledger.fates["trained"].groups == 2


def test_without_the_filter_every_group_is_admitted():
    collector, engine = make([0, 4], filter="none")
    collected = collector.collect(0)
    assert len(collected.groups) == 4
    assert len(engine.submitted) == 4 * G  # not one group more than needed
    assert collected.ledger.fates["filtered"].groups == 0


def test_surplus_dropped_or_requeued():
    for surplus in ("drop", "requeue"):
        collector, _ = make([2], delay=5, surplus=surplus)
        first, second = collector.collect(0), collector.collect(1)
        again = {g.problem.id for g in first.surplus} & set(ids(second))
        assert first.surplus
        assert again == ({g.problem.id for g in first.surplus} if surplus == "requeue" else set())


def test_carried_groups_lead_the_next_batch():
    collector, _ = make([2], delay=5, surplus="carry")
    first = collector.collect(0)
    assert first.to_carry == first.surplus
    collector.carried = list(first.to_carry)
    second = collector.collect(1)
    assert second.groups[: len(first.surplus)] == first.surplus
    assert second.carried == len(first.surplus) > 0
    assert second.ledger.carried_in.groups == len(first.surplus)
    assert second.ledger.fates["trained"].groups == 4 - len(first.surplus)
    assert second.ledger.balanced()


def test_no_more_groups_are_carried_than_a_batch_takes():
    collector, _ = make([0] * 9 + [2], n=1000, surplus="carry", max_prompts_per_step=500)
    for step in range(3):
        collector.collect(step)  # learns a low keep rate
    collector._problems = [(Problem(f"p{i}", "", "1"), (9, 9)) for i in range(1000)]  # now all are informative
    collected = collector.collect(3)
    assert len(collected.surplus) > 4
    assert len(collected.to_carry) == 4
    collector.carried = list(collected.to_carry)
    after = collector.collect(4)
    assert after.full
    assert after.groups == collected.to_carry


def test_the_number_in_flight_follows_the_keep_rate():
    collector, engine = make([0, 0, 0, 2], n=400, max_prompts_per_step=200)
    for step in range(8):
        collector.collect(step)
    assert collector.keep_rate == pytest.approx(0.25, abs=0.1)
    engine.submitted.clear()
    collector.collect(9)
    assert len(engine.submitted) // G >= 12  # about 4 / 0.25


def test_interruption_puts_the_stream_back():
    collector, _ = make([0, 2])
    before = collector.state_dict()
    calls = iter([False, False, True])
    with pytest.raises(Interrupted):
        collector.collect(0, should_stop=lambda: next(calls))
    assert collector.state_dict() == before
    other, _ = make([0, 2])
    assert ids(collector.collect(0)) == ids(other.collect(0))


class Failing:
    """Cannot grade the first `bad` responses of any group."""

    def __init__(self, bad):
        self.bad = bad

    def submit(self, problem, texts):
        future = Future()
        rule = RULES["dapo_math"][0]
        future.set_result(
            [Score("ungraded", why="stub") if i < self.bad else rule(problem, t) for i, t in enumerate(texts)]
        )
        return future


def test_what_cannot_be_graded_leaves_its_group_and_is_counted():
    collector, _ = make([2], verifier=Failing(1))
    collected = collector.collect(0)
    for g in collected.groups:
        assert (len(g.graded), g.n_correct) == (3, 1)
        assert math.isnan(g.rollouts[0].reward)
    assert collected.ledger.fates["failed"].responses == sum(
        len(g.rollouts) == G for g, f, _ in collected.fates if f != "cancelled"
    )
    assert collected.ledger.balanced()
    collector, _ = make([2], verifier=Failing(1), max_ungraded=0.2)
    with pytest.raises(TooManyUngraded, match="max_ungraded"):
        collector.collect(0)


def test_a_group_with_one_graded_response_failed():
    collector, _ = make([2], verifier=Failing(3), n=8, max_prompts_per_step=8)
    collected = collector.collect(0)
    assert collected.groups == ()
    assert collected.ledger.fates["failed"].groups == 8
