"""Dynamic sampling as a stream (DAPO section 3.2; DESIGN section 5).

Prompts go to the engine as groups of G. Each finished group is graded while others are being generated. **Admission is
in order of submission**: the batch is the first N informative groups as they were *submitted*, whatever the order in which
they finish; so it depends on the seed and not on timing, and short responses get no preference. How many groups are in
flight follows a running estimate of the keep rate. Once the batch is decided, all groups behind its last member are cut
off, and (surplus = "requeue") their prompts go back to the head of the stream.

Verdicts of a group are read one poll after it was handed to the verifier: grading overlaps generation, and an
in-process engine still makes the same decisions in every run.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dapo.algo.filters import is_informative
from dapo.algo.length import soft_overlong_punishment
from dapo.data.stream import PromptStream
from dapo.rewards.verifier import Verifier
from dapo.rollout.engine import Engine, sample_seed
from dapo.types import FATES, Completion, Fate, Group, Ledger, Problem, Request, Rollout, Sampling, Score, Tally

KEEP_MEMORY = 0.98  # weight of the past, per finished group, in the estimate of the keep rate
KEEP_FLOOR = 0.05


class Interrupted(Exception):
    """A signal arrived during collection; the stream is back where the step began."""


class TooManyUngraded(RuntimeError):
    """More responses than reward.max_ungraded allows could not be graded; `collected` is what was generated."""

    def __init__(self, message: str, collected: "Collected") -> None:
        super().__init__(message)
        self.collected = collected


@dataclass(frozen=True)
class Settings:
    """The numbers of collection; the names are those of the recipe."""

    prompts_per_step: int
    group_size: int
    max_prompts_per_step: int
    surplus: Literal["requeue", "drop", "carry"]
    filter: Literal["none", "drop", "drop-rescale", "resample"]  # of groups with all answers alike
    sampling: Sampling
    seed: int
    reward_correct: float
    reward_incorrect: float
    reward_no_answer: float
    max_ungraded: float
    overlong: tuple[int, int] | None  # (L_max, L_cache) of the soft punishment; None: off


@dataclass(frozen=True)
class Progress:
    """For a progress bar: informative groups found, of how many; groups finished; tokens generated in so many seconds."""

    found: int
    wanted: int
    finished: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Collected:
    """A step's batch and the fate of everything that was generated for it.

    `groups`: the groups to train on, in order of submission (`carried` of them from an earlier step). `counted`: those
    that denominators and batch statistics count, which are the same but for filter "drop", where all admitted groups
    count. `visited`: the groups whose rewards count as a visit to their prompt: all that were graded up to the last
    admitted one, filtered ones included. `fates`: every group of this step with its fate and the reason. `surplus`:
    complete informative groups beyond the batch; `to_carry`: those of them that the next step shall train on, no more
    than a batch.
    `correct_counts`: how many finished groups had 0, 1, .. G correct responses, before filtering.
    """

    groups: tuple[Group, ...]
    counted: tuple[Group, ...]
    visited: tuple[Group, ...]
    fates: tuple[tuple[Group, Fate, str], ...]
    surplus: tuple[Group, ...]
    to_carry: tuple[Group, ...]
    ledger: Ledger
    correct_counts: dict[int, int]
    carried: int
    full: bool
    keep_rate: float
    seconds: float


@dataclass
class _Slot:
    """One submitted group."""

    group_id: int
    index: int  # into the list of problems
    completions: list[Completion] = field(default_factory=list)
    group: Group | None = None  # set when graded


class Collector:
    """Fills batches from one engine, one verifier and one prompt stream. The state lasts from step to step."""

    def __init__(
        self,
        engine: Engine,
        verifier: Verifier,
        problems: Sequence[tuple[Problem, tuple[int, ...]]],
        stream: PromptStream,
        decode: Callable[[tuple[int, ...]], str],
        settings: Settings,
    ) -> None:
        self._engine, self._verifier, self._problems = engine, verifier, problems
        self._stream, self._decode, self._settings = stream, decode, settings
        self._kept, self._seen = 1.0, 2.0
        self._step = -1
        self._times: Counter[int] = Counter()  # how often each prompt was submitted in this step, over all attempts
        self.carried: list[Group] = []

    @property
    def keep_rate(self) -> float:
        """The running estimate of the share of groups that are admitted."""
        return max(KEEP_FLOOR, self._kept / self._seen) if self._settings.filter == "resample" else 1.0

    def state_dict(self) -> dict[str, Any]:
        return {
            "stream": self._stream.state_dict(),
            "kept": self._kept,
            "seen": self._seen,
            "step": self._step,
            "times": [list(item) for item in sorted(self._times.items())],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._stream.load_state_dict(state["stream"])
        self._kept, self._seen = state["kept"], state["seen"]
        self._step, self._times = state["step"], Counter(dict(state["times"]))

    def collect(
        self,
        step: int,
        on_progress: Callable[[Progress], None] = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Collected:
        """Generate and grade until N groups are admitted or max_prompts_per_step prompts were tried (`full` False).

        Errors: Interrupted if `should_stop` says so, with the stream as it was; TooManyUngraded.
        """
        start = time.monotonic()
        before = self.state_dict()
        carried, self.carried = self.carried, []
        if step != self._step:
            self._step, self._times = step, Counter()
        flight = _Flight(carried)
        wanted = self._settings.prompts_per_step - len(carried)
        while not flight.decided(wanted, self._admits):
            if should_stop():
                self._engine.cancel([slot.group_id for slot in flight.running])
                self.load_state_dict(before)  # the same seeds again: the step begins anew
                self.carried = carried
                raise Interrupted
            self._top_up(flight, wanted, step)
            if not flight.running and not flight.grading:
                break
            finished = self._engine.poll()
            self._read_verdicts(flight, step)
            self._hand_over(flight, finished)
            on_progress(flight.progress(wanted + len(carried), self._admits, time.monotonic() - start))
        collected = self._close(flight, wanted, step, time.monotonic() - start)
        self._check_graded(collected)
        return collected

    def _admits(self, group: Group) -> bool:
        """Does the group take a place in the batch? With dynamic sampling an uninformative one does not."""
        return len(group.graded) > 1 and (self._settings.filter != "resample" or _is_informative(group))

    def _top_up(self, flight: "_Flight", wanted: int, step: int) -> None:
        """Submit as many groups as, at the estimated keep rate, will fill what is still missing."""
        missing = wanted - flight.found(self._admits)
        target = math.ceil(missing / self.keep_rate)
        while len(flight.unfinished) < target and len(flight.slots) < self._settings.max_prompts_per_step:
            index = self._stream.next()
            slot = flight.add(index)
            occurrence = self._times[index]
            self._times[index] += 1
            problem, prompt_ids = self._problems[index]
            self._engine.submit(
                Request(
                    slot.group_id,
                    sample,
                    prompt_ids,
                    self._settings.sampling,
                    sample_seed(self._settings.seed, step, problem.id, occurrence, sample),
                )
                for sample in range(self._settings.group_size)
            )

    def _hand_over(self, flight: "_Flight", finished: list[Completion]) -> None:
        for completion in finished:
            slot = flight.receive(completion)
            if len(slot.completions) == self._settings.group_size:
                slot.completions.sort(key=lambda c: c.sample)
                texts = [self._decode(c.token_ids) for c in slot.completions]
                future = self._verifier.submit(self._problems[slot.index][0], texts)
                flight.grading.append((slot, texts, future))

    def _read_verdicts(self, flight: "_Flight", step: int) -> None:
        grading, flight.grading = flight.grading, []
        for slot, texts, future in grading:
            slot.group = self._make_group(slot, texts, future.result(), step)
            self._kept = KEEP_MEMORY * self._kept + self._admits(slot.group)
            self._seen = KEEP_MEMORY * self._seen + 1

    def _make_group(self, slot: _Slot, texts: list[str], scores: Sequence[Score], step: int) -> Group:
        problem, prompt_ids = self._problems[slot.index]
        rollouts = tuple(
            Rollout(completion, text, score, self._reward(score), self._punishment(completion))
            for completion, text, score in zip(slot.completions, texts, scores, strict=True)
        )
        return Group(slot.group_id, problem, prompt_ids, rollouts, step)

    def _reward(self, score: Score) -> float:
        if score.outcome == "ungraded":
            return math.nan  # so that it can never enter a mean unseen
        if score.value is not None:
            return score.value
        if score.outcome == "correct":
            return self._settings.reward_correct
        return self._settings.reward_no_answer if score.extracted is None else self._settings.reward_incorrect

    def _punishment(self, completion: Completion) -> float:
        if self._settings.overlong is None:
            return 0.0
        return soft_overlong_punishment(len(completion.token_ids), *self._settings.overlong)

    def _close(self, flight: "_Flight", wanted: int, step: int, seconds: float) -> Collected:
        """Cut off what lies behind the batch, settle every fate, give prompts back."""
        cut = flight.cut(wanted, self._admits)
        for completion in self._engine.cancel([slot.group_id for slot in flight.running]):
            flight.receive(completion)
        fates: list[tuple[Group, Fate, str]] = []
        back: list[int] = []
        room = self._settings.prompts_per_step  # no more groups are carried than a step can take
        for slot in flight.slots:
            if slot.group is None:
                fate: tuple[Fate, str] = ("cancelled", "behind the last admitted group")
            else:
                fate = self._fate(slot.group, slot.group_id < cut, room)
                room -= fate == ("surplus", "carry")
            fates.append((slot.group or self._unfinished_group(slot, step), *fate))
            if slot.group_id >= cut and (self._settings.surplus == "requeue" or fate[1] == "requeue" or not slot.group):
                back.append(slot.index)
        self._stream.requeue(back)
        groups = [*flight.carried, *(g for g, fate, _ in fates if fate == "trained")]
        admitted = [*flight.carried, *(s.group for s in flight.slots[:cut] if s.group and self._admits(s.group))]
        finished = [slot.group for slot in flight.slots if slot.group is not None]
        generated = Tally(len(flight.slots), flight.responses, flight.tokens, seconds)
        ledger = make_ledger(generated, fates, flight.carried)
        assert ledger.balanced(), f"the engine lost or repeated responses: {ledger}"
        return Collected(
            groups=tuple(groups),
            visited=(*flight.carried, *(g for g, fate, _ in fates[:cut] if fate in ("trained", "filtered"))),
            counted=tuple(admitted if self._settings.filter == "drop" else groups),
            fates=tuple(fates),
            surplus=tuple(g for g, fate, _ in fates if fate == "surplus"),
            to_carry=tuple(g for g, fate, why in fates if (fate, why) == ("surplus", "carry")),
            ledger=ledger,
            correct_counts=dict(sorted(Counter(g.n_correct for g in finished).items())),
            carried=len(flight.carried),
            full=len(admitted) == wanted + len(flight.carried),
            keep_rate=self.keep_rate,
            seconds=seconds,
        )

    def _fate(self, group: Group, within: bool, room: int) -> tuple[Fate, str]:
        if len(group.graded) < 2:
            return "failed", "fewer than two responses could be graded"
        if self._settings.filter != "none" and not _is_informative(group):
            return "filtered", "all correct" if group.n_correct else "all wrong"
        if within:
            return "trained", ""
        return "surplus", self._settings.surplus if self._settings.surplus != "carry" or room > 0 else "requeue"

    def _unfinished_group(self, slot: _Slot, step: int) -> Group:
        problem, prompt_ids = self._problems[slot.index]
        ungraded = Score("ungraded", why="cancelled")
        rollouts = tuple(
            Rollout(c, self._decode(c.token_ids), ungraded, math.nan, 0.0)
            for c in sorted(slot.completions, key=lambda c: c.sample)
        )
        return Group(slot.group_id, problem, prompt_ids, rollouts, step)

    def _check_graded(self, collected: Collected) -> None:
        finished = [g for g, fate, _ in collected.fates if fate != "cancelled"]
        responses = [r for g in finished for r in g.rollouts]
        failed = [r for r in responses if not r.graded]
        if len(failed) > self._settings.max_ungraded * len(responses):
            raise TooManyUngraded(
                f"reward.max_ungraded = {self._settings.max_ungraded:g}: {len(failed)} of {len(responses)} responses "
                f"could not be graded; the first: {failed[0].score.why}",
                collected,
            )


def _is_informative(group: Group) -> bool:
    return is_informative(group.n_correct, len(group.graded))


class _Flight:
    """The groups of one step in order of submission."""

    def __init__(self, carried: Sequence[Group]) -> None:
        self.carried = list(carried)
        self.slots: list[_Slot] = []
        self.by_id: dict[int, _Slot] = {}
        self.grading: list[tuple[_Slot, list[str], Future[list[Score]]]] = []
        self.responses, self.tokens = 0, 0  # as the engine handed them over

    def add(self, index: int) -> _Slot:
        slot = _Slot(len(self.slots), index)
        self.slots.append(slot)
        self.by_id[slot.group_id] = slot
        return slot

    def receive(self, completion: Completion) -> _Slot:
        """Count a response and put it into its group."""
        slot = self.by_id[completion.group_id]
        slot.completions.append(completion)
        self.responses += 1
        self.tokens += len(completion.token_ids)
        return slot

    @property
    def unfinished(self) -> list[_Slot]:
        return [slot for slot in self.slots if slot.group is None]

    @property
    def running(self) -> list[_Slot]:
        """Unfinished groups that are not with the verifier."""
        grading = {slot.group_id for slot, _, _ in self.grading}
        return [slot for slot in self.unfinished if slot.group_id not in grading]

    def found(self, admits: Callable[[Group], bool]) -> int:
        return sum(slot.group is not None and admits(slot.group) for slot in self.slots)

    def cut(self, wanted: int, admits: Callable[[Group], bool]) -> int:
        """How many slots, from the first, the batch takes: up to the wanted-th informative one, or all."""
        count = 0
        for i, slot in enumerate(self.slots):
            if count == wanted:
                return i
            count += slot.group is not None and admits(slot.group)
        return len(self.slots)

    def decided(self, wanted: int, admits: Callable[[Group], bool]) -> bool:
        """True if the first `wanted` informative groups in order of submission are known."""
        count = 0
        for slot in self.slots:
            if count == wanted or slot.group is None:
                break
            count += admits(slot.group)
        return count == wanted

    def progress(self, wanted: int, admits: Callable[[Group], bool], seconds: float) -> Progress:
        finished = len(self.slots) - len(self.unfinished)
        return Progress(min(wanted, self.found(admits) + len(self.carried)), wanted, finished, self.tokens, seconds)


def tally(group: Group) -> Tally:
    """A group's size in groups, responses and tokens."""
    return Tally(1, len(group.rollouts), sum(r.length for r in group.rollouts))


def make_ledger(generated: Tally, fates: Sequence[tuple[Group, Fate, str]], carried: Sequence[Group]) -> Ledger:
    """The token ledger of a step. Responses of trained groups that could not be graded count as failed.

    generated: what was submitted (groups) and what the engine handed over (responses, tokens), counted apart from the
    fates, so that the ledger can be wrong. Its seconds are divided among the fates by tokens.
    """
    total: dict[Fate, Tally] = {fate: Tally() for fate in FATES}
    for group, fate, _ in fates:
        whole = tally(group)
        lost = [r for r in group.rollouts if not r.graded] if fate in ("trained", "filtered", "surplus") else []
        failed = Tally(0, len(lost), sum(r.length for r in lost))
        total["failed"] += failed
        total[fate] += Tally(1, whole.responses - failed.responses, whole.tokens - failed.tokens)
    rate = generated.seconds / generated.tokens if generated.tokens else 0.0
    return Ledger(
        generated=generated,
        fates={fate: replace(t, seconds=t.tokens * rate) for fate, t in total.items()},
        carried_in=sum((tally(group) for group in carried), Tally()),
    )
