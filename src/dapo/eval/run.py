"""Generate and grade k samples of every problem of a suite; avg@k with its interval.

The random streams depend on problem and sample only, so two models are compared on the same draws.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dapo.rewards.verifier import Verifier
from dapo.rollout.collect import Interrupted
from dapo.rollout.engine import Engine, sample_seed
from dapo.stats import Estimate, clustered_mean
from dapo.types import Completion, Problem, Request, Sampling, Score

EVAL_STEP = -1  # keeps evaluation's random streams apart from those of training


@dataclass(frozen=True)
class Suite:
    """A named set of held-out problems with their prompts."""

    name: str
    problems: tuple[tuple[Problem, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Answer:
    """One graded sample."""

    text: str
    score: Score
    length: int
    truncated: bool


@dataclass(frozen=True)
class SuiteResult:
    """avg@k of a suite. Ungraded samples are counted, and are in no mean; `answers` has k for each problem."""

    name: str
    k: int
    accuracy: Estimate
    truncated: float
    ungraded: int
    mean_length: float
    tokens: int
    seconds: float
    answers: tuple[tuple[Answer, ...], ...]

    def summary(self) -> dict[str, Any]:
        return {
            "suite": self.name,
            "k": self.k,
            "problems": len(self.answers),
            "accuracy": self.accuracy.mean,
            "low": self.accuracy.low,
            "high": self.accuracy.high,
            "truncated": self.truncated,
            "ungraded": self.ungraded,
            "mean_length": self.mean_length,
            "tokens": self.tokens,
            "seconds": self.seconds,
        }


def evaluate(
    suite: Suite,
    engine: Engine,
    verifier: Verifier,
    decode: Callable[[tuple[int, ...]], str],
    sampling: Sampling,
    k: int,
    seed: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> SuiteResult:
    """Sample and grade. Errors: Interrupted if `should_stop` says so; ValueError if not one sample could be graded."""
    start = time.monotonic()
    engine.submit(
        Request(i, s, ids, sampling, sample_seed(seed, EVAL_STEP, problem.id, 0, s))
        for i, (problem, ids) in enumerate(suite.problems)
        for s in range(k)
    )
    done: dict[int, list[Completion]] = {i: [] for i in range(len(suite.problems))}
    count = 0
    while finished := engine.poll():
        for completion in finished:
            done[completion.group_id].append(completion)
        count += len(finished)
        if should_stop():
            engine.cancel(range(len(suite.problems)))
            raise Interrupted
        on_progress(count, k * len(suite.problems))
    answers = []
    for i, (problem, _) in enumerate(suite.problems):
        completions = sorted(done[i], key=lambda c: c.sample)
        texts = [decode(c.token_ids) for c in completions]
        scores = verifier.submit(problem, texts).result()
        answers.append(
            tuple(
                Answer(t, s, len(c.token_ids), c.finish == "length")
                for t, s, c in zip(texts, scores, completions, strict=True)
            )
        )
    return _score(suite, k, answers, time.monotonic() - start)


def _score(suite: Suite, k: int, answers: Sequence[tuple[Answer, ...]], seconds: float) -> SuiteResult:
    flat = [a for group in answers for a in group]
    graded = [[a for a in group if a.score.outcome != "ungraded"] for group in answers]
    scored = [(p, group) for (p, _), group in zip(suite.problems, graded, strict=True) if group]
    if not scored:
        raise ValueError(f"eval.suites: nothing in {suite.name} could be graded; the first: {flat[0].score.why}")
    values = [sum(a.score.outcome == "correct" for a in group) / len(group) for _, group in scored]
    return SuiteResult(
        name=suite.name,
        k=k,
        accuracy=clustered_mean(values, [p.cluster for p, _ in scored]),
        truncated=sum(a.truncated for a in flat) / len(flat),
        ungraded=sum(a.score.outcome == "ungraded" for a in flat),
        mean_length=sum(a.length for a in flat) / len(flat),
        tokens=sum(a.length for a in flat),
        seconds=seconds,
        answers=tuple(answers),
    )
