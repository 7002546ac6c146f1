"""The procedure of DAPO (Algorithm 1): sample and filter, take advantages, update, repeat.

    for each step:
        collect N informative groups            rollout/collect.py   dynamic sampling, soft overlong punishment
        loss weights                            train/batch.py       token-level denominators of whole mini-batches
        old log-probabilities                   train/policy.py      by the kernels of the update: first ratio is 1
        advantages                              train/estimator.py   group-normalised
        U clipped gradient updates              algo/objective.py    Clip-Higher
        the engine takes the new weights        rollout/engine.py
        record, evaluate, checkpoint            record/, eval/

The loop knows the protocols of engine and policy, and no implementation of them.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from dapo.config import Recipe
from dapo.rollout.collect import Collected, Collector, Interrupted, Progress, TooManyUngraded
from dapo.rollout.engine import Engine
from dapo.train.assemble import ESTIMATORS
from dapo.train.batch import MiniBatch, in_loss, plan, with_advantages
from dapo.train.estimator import AdvantageEstimator
from dapo.train.optim import learning_rate
from dapo.train.policy import Policy, Update
from dapo.types import Group


class Stopped(Exception):
    """The run stopped early and can be resumed (exit code 75). The message says why and what to do."""


class Underfilled(RuntimeError):
    """rollout.on_underfill = "error" and a batch could not be filled."""


class NotFinite(RuntimeError):
    """Too many updates in a row had a non-finite loss or gradient."""


@dataclass(frozen=True)
class StepResult:
    """All that a step did, for whoever records or shows it. `seconds`: wall time by phase.

    advantages: of the trained sequences, by number. penalty: the KL divergence taken from their rewards; None if none is.
    """

    step: int
    collected: Collected
    batches: tuple[MiniBatch, ...]
    advantages: tuple[float, ...]
    penalty: dict[int, float] | None
    logp_old: tuple[tuple[Tensor, ...], ...]
    updates: tuple[Update, ...]
    seconds: dict[str, float]


class Observer(Protocol):
    """Receives what happens. Recording must come before the checkpoint that makes a step final."""

    def on_progress(self, step: int, progress: Progress) -> None: ...

    def on_step(self, result: StepResult) -> None: ...

    def on_abandoned(self, step: int, collected: Collected, why: str) -> None:
        """A step was generated and will not be trained."""

    def on_evaluate(self, step: int) -> None:
        """Errors: Interrupted if a stop was asked for."""

    def say(self, text: str) -> None: ...

    def on_checkpoint(self, step: int, loop: "LoopState") -> None: ...

    def should_stop(self) -> bool: ...


@dataclass
class LoopState:
    """Everything that a checkpoint must hold so that the next step is the same as if nothing had happened."""

    recipe: Recipe
    engine: Engine
    policy: Policy
    collector: Collector
    advantages: AdvantageEstimator
    device: torch.device
    step: int = 0  # rollout steps completed
    bad_updates: int = 0  # non-finite updates in a row


def run(state: LoopState, observer: Observer) -> None:
    """Train up to train.steps. Errors: Stopped, Underfilled, TooManyUngraded, NotFinite; each after a checkpoint."""
    recipe = state.recipe
    state.engine.load(state.policy.weights(), state.step)
    _evaluate(state, observer)
    while state.step < recipe.train.steps:
        if observer.should_stop():
            observer.on_checkpoint(state.step, state)
            raise Stopped(f"stopped by a signal after step {state.step}; continue with --resume")
        clock = _Clock()
        collected = _collect(state, observer)
        clock.lap("generate")
        if not collected.full:
            _underfilled(state, collected, observer)

        batches = plan(collected.counted, recipe, state.device)
        logp_old = _with_carried(state.policy.logprobs(batches), batches, collected.groups)
        logp_ref = state.policy.logprobs(batches, reference=True) if recipe.algo.kl_coef else None
        penalty = kl_penalty(recipe, batches, logp_old, logp_ref)
        advantages = _advantages(state, collected, penalty)
        batches = with_advantages(batches, advantages)
        carried = _carry(state, collected)
        clock.lap("logprobs")

        lr = learning_rate(
            state.step, recipe.train.lr, recipe.train.warmup_steps, recipe.train.steps, recipe.train.schedule
        )
        updates = []
        for i, batch in enumerate(batches):
            update = state.policy.update(batch, logp_old[i], logp_ref[i] if logp_ref else None, lr)
            state.bad_updates = 0 if update.applied else state.bad_updates + 1
            updates.append(update)
        state.step += 1
        state.collector.carried = carried
        state.engine.load(state.policy.weights(), state.step)
        clock.lap("update")

        observer.on_step(
            StepResult(
                state.step,
                collected,
                tuple(batches),
                tuple(advantages),
                penalty,
                tuple(map(tuple, logp_old)),
                tuple(updates),
                clock.seconds,
            )
        )
        if state.bad_updates >= recipe.train.max_bad_updates:
            observer.on_checkpoint(state.step, state)
            raise NotFinite(
                f"{state.bad_updates} updates in a row had a non-finite loss or gradient and were skipped; the responses "
                f"are in rollouts/step-{state.step:06d}.parquet. Lower train.lr = {recipe.train.lr:g}"
            )
        if state.step == recipe.train.steps or state.step % recipe.train.save_every == 0:
            observer.on_checkpoint(state.step, state)
        _evaluate(state, observer)


def kl_penalty(
    recipe: Recipe,
    batches: Sequence[MiniBatch],
    logp_old: Sequence[Sequence[Tensor]],
    logp_ref: Sequence[Sequence[Tensor]] | None,
) -> dict[int, float] | None:
    """kl_coef times the divergence summed over each response, by its number; None unless it goes into the reward."""
    if recipe.algo.kl_in != "reward" or logp_ref is None:
        return None
    estimate = ESTIMATORS[recipe.algo.kl_estimator]
    kl = [[estimate(o, r) for o, r in zip(old, ref, strict=True)] for old, ref in zip(logp_old, logp_ref, strict=True)]
    return {n: recipe.algo.kl_coef * sum(values) for n, values in per_sequence(batches, kl).items()}


def _advantages(state: LoopState, collected: Collected, penalty: dict[int, float] | None) -> list[float]:
    """The advantages of the step's trained sequences, by number; all that counts takes part in batch statistics."""
    smooth = state.recipe.algo.advantage == "smooth"
    groups = collected.visited if smooth else collected.counted
    every = {id(group): values for group, values in zip(groups, state.advantages(groups, penalty), strict=True)}
    return [a for group in collected.counted if in_loss(group, state.recipe) for a in every[id(group)]]


def _evaluate(state: LoopState, observer: Observer) -> None:
    """Evaluate before the first step, after the last, and every eval.every steps between."""
    every = state.recipe.eval.every
    if state.step not in (0, state.recipe.train.steps) and not (every and state.step % every == 0):
        return
    try:
        observer.on_evaluate(state.step)
    except Interrupted:
        observer.on_checkpoint(state.step, state)
        raise Stopped(f"stopped by a signal in the evaluation at step {state.step}; continue with --resume") from None


def _collect(state: LoopState, observer: Observer) -> Collected:
    try:
        return state.collector.collect(
            state.step, lambda progress: observer.on_progress(state.step + 1, progress), observer.should_stop
        )
    except Interrupted:
        observer.on_checkpoint(state.step, state)
        raise Stopped(
            f"stopped by a signal in step {state.step + 1}, which begins again after --resume; "
            f"{state.step} steps are complete"
        ) from None
    except TooManyUngraded as error:
        observer.on_abandoned(state.step + 1, error.collected, str(error))
        state.collector.carried = list(error.collected.groups)
        observer.on_checkpoint(state.step, state)
        raise


def explain_underfill(collected: Collected, recipe: Recipe) -> str:
    """Why a batch could not be filled: the histogram of correct answers and what to change."""
    g = recipe.rollout.group_size
    counts = collected.correct_counts
    finished = max(1, sum(counts.values()))
    wrong, right = counts.get(0, 0) / finished, counts.get(g, 0) / finished
    histogram = ", ".join(f"{k}/{g}: {n}" for k, n in counts.items())
    lost = sum(fate == "failed" for _, fate, _ in collected.fates)
    if lost > finished / 2:
        advice = (
            f"the verifier cannot grade: {lost} groups had fewer than two graded responses; look at `why` in rollouts/"
        )
    elif wrong >= right:
        advice = (
            "the problems are too hard or the verifier rejects right answers: look at rollouts/, then use easier data"
        )
    else:
        advice = "the problems are too easy: use harder data, or stop here"
    return (
        f"only {len(collected.groups)} of {recipe.rollout.prompts_per_step} informative groups after "
        f"{len(collected.fates)} prompts (rollout.max_prompts_per_step = {recipe.max_prompts_per_step}). Groups by correct "
        f"answers: {histogram or 'none finished'}; {wrong:.0%} all wrong, {right:.0%} all right. So {advice}, or raise "
        f"rollout.max_prompts_per_step or rollout.group_size = {g}"
    )


def _underfilled(state: LoopState, collected: Collected, observer: Observer) -> None:
    """rollout.on_underfill: "partial" returns; the others keep what was found, save and raise."""
    why = explain_underfill(collected, state.recipe)
    observer.say(f"step {state.step + 1}: {why}")
    if state.recipe.rollout.on_underfill == "partial":
        return
    observer.on_abandoned(state.step + 1, collected, why)
    state.collector.carried = list(collected.groups)
    observer.on_checkpoint(state.step, state)
    if state.recipe.rollout.on_underfill == "error":
        raise Underfilled(why)
    raise Stopped(f"{why}. The groups found so far are kept: continue with --resume")


def _with_carried(
    logp: list[list[Tensor]], batches: Sequence[MiniBatch], groups: Sequence[Group]
) -> list[list[Tensor]]:
    """Replace the old log-probabilities of carried groups by those of the policy that sampled them."""
    known = [
        g.logp_old[i] if g.logp_old is not None else None for g in groups for i in range(len(g.graded))
    ]  # in the order of sequences_of()
    if not any(known):
        return logp
    for tensors, batch in zip(logp, batches, strict=True):
        for tensor, micro in zip(tensors, batch.micro, strict=True):
            for b, number in enumerate(micro.number_B.tolist()):
                old = known[number]
                if old is not None:
                    tensor[b, : len(old)] = torch.tensor(old, dtype=tensor.dtype, device=tensor.device)
    return logp


def _carry(state: LoopState, collected: Collected) -> list[Group]:
    """Groups for the next step, with the log-probabilities of today's policy (surplus = "carry")."""
    batches = plan(collected.to_carry, state.recipe, state.device)
    return attach_logp_old(collected.to_carry, batches, state.policy.logprobs(batches))


def attach_logp_old(
    groups: Sequence[Group], batches: Sequence[MiniBatch], logp: Sequence[Sequence[Tensor]]
) -> list[Group]:
    """The groups with `logp_old` of their graded responses set."""
    rows = per_sequence(batches, logp)
    out, number = [], 0
    for group in groups:
        count = len(group.graded)
        out.append(replace(group, logp_old=tuple(rows[number + i] for i in range(count))))
        number += count
    return out


def per_sequence(batches: Sequence[MiniBatch], logp: Sequence[Sequence[Tensor]]) -> dict[int, tuple[float, ...]]:
    """Log-probabilities by the sequence's number in the step, without padding."""
    return {
        number: tuple(tensor[b, :length].tolist())
        for batch, tensors in zip(batches, logp, strict=True)
        for micro, tensor in zip(batch.micro, tensors, strict=True)
        for b, (number, length) in enumerate(zip(micro.number_B.tolist(), micro.length_B.tolist(), strict=True))
    }


class _Clock:
    """Wall time by phase, from a clock that never jumps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, phase: str) -> None:
        now = time.monotonic()
        self.seconds[phase] = now - self._last
        self._last = now
