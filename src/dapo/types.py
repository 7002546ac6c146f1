"""The words of the system, as frozen dataclasses: what passes between data, engines, rewards, collection and trainer.

Lengths and positions are in tokens, times in seconds, log-probabilities in nats. No torch here: the record, the judge
and the reports read these without it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Finish = Literal["stop", "length", "cancelled"]
Outcome = Literal["correct", "incorrect", "ungraded"]
Fate = Literal["trained", "filtered", "surplus", "cancelled", "failed"]
FATES: tuple[Fate, ...] = ("trained", "filtered", "surplus", "cancelled", "failed")


@dataclass(frozen=True)
class Problem:
    """One verifiable problem. `family` names the task it belongs to; `cluster` what it shares with its variants."""

    id: str
    text: str
    answer: str
    family: str = ""
    cluster: str = ""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. `top_p` 1 and `top_k` 0 mean off; `temperature` 0 means greedy."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 512


@dataclass(frozen=True)
class Request:
    """One response to generate: sample `sample` of group `group_id`, with a random stream of its own."""

    group_id: int
    sample: int
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int


@dataclass(frozen=True)
class Completion:
    """What an engine returns for a request.

    `token_ids` includes the end-of-sequence token when `finish` is "stop". `logp_gen` are the engine's own
    log-probabilities of those tokens at temperature `sampling.temperature` and before top-p and top-k;
    the trainer never uses them as `logp_old`. `version` numbers the weights that sampled it.
    """

    group_id: int
    sample: int
    token_ids: tuple[int, ...]
    logp_gen: tuple[float, ...]
    finish: Finish
    version: int


@dataclass(frozen=True)
class Score:
    """A verifier's verdict. `value` is set by user rewards that are not simply right or wrong; else None.

    `extracted` None with "incorrect": no answer was found, which reward.no_answer may reward otherwise than a wrong one.
    """

    outcome: Outcome
    extracted: str | None = None
    why: str = ""
    value: float | None = None


@dataclass(frozen=True)
class Rollout:
    """A completion, its text and its score. `reward` is for the answer alone; `punishment` (<= 0) for the length."""

    completion: Completion
    text: str
    score: Score
    reward: float
    punishment: float

    @property
    def length(self) -> int:
        """Response length L in tokens, end-of-sequence token included, prompt excluded."""
        return len(self.completion.token_ids)

    @property
    def graded(self) -> bool:
        return self.score.outcome != "ungraded"

    @property
    def correct(self) -> bool:
        return self.score.outcome == "correct"


@dataclass(frozen=True)
class Group:
    """The G rollouts of one prompt. `group_id` numbers groups in order of submission within a step."""

    group_id: int
    problem: Problem
    prompt_ids: tuple[int, ...]
    rollouts: tuple[Rollout, ...]
    version: int
    logp_old: tuple[tuple[float, ...], ...] | None = None  # only for groups carried over from an earlier policy

    @property
    def graded(self) -> tuple[Rollout, ...]:
        return tuple(r for r in self.rollouts if r.graded)

    @property
    def n_correct(self) -> int:
        return sum(r.correct for r in self.graded)


@dataclass(frozen=True)
class Sequence:
    """One prompt and response as the trainer sees it. `trained` False: it is in the denominators only (filter "drop")."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logp_gen: tuple[float, ...]
    group: int
    truncated: bool
    trained: bool


@dataclass(frozen=True)
class Tally:
    """How much of something there was, in the four units of the token ledger."""

    groups: int = 0
    responses: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.groups + other.groups,
            self.responses + other.responses,
            self.tokens + other.tokens,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True)
class Ledger:
    """Where every generated token of a step went: generated = trained + filtered + surplus + cancelled + failed.

    `carried_in` counts what was trained here but generated (and counted as surplus) in an earlier step.
    """

    generated: Tally = Tally()
    fates: Mapping[Fate, Tally] = field(default_factory=dict)
    carried_in: Tally = Tally()

    def balanced(self) -> bool:
        """True if the fates add up to what was generated, exactly, in groups, responses and tokens."""
        total = sum(self.fates.values(), Tally())
        mine = self.generated
        return (total.groups, total.responses, total.tokens) == (mine.groups, mine.responses, mine.tokens)
