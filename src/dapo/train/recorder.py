"""From what a step did to its record: one event, one rollouts file. Numbers are sums or token-weighted means."""

import resource
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from dapo.algo.diagnostics import Observed
from dapo.algo.objective import Objective
from dapo.config import Recipe
from dapo.record.rollouts import rollouts_name, write_rollouts
from dapo.record.rundir import RunDir
from dapo.rollout.collect import Collected, make_ledger
from dapo.train.loop import StepResult, per_sequence
from dapo.types import Fate, Group, Rollout


def finished_groups(collected: Collected) -> list[Group]:
    """The groups of this step that were generated and graded to the end, before filtering."""
    return [g for g, fate, _ in collected.fates if fate != "cancelled"]


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _mean(values: Sequence[float]) -> float | None:
    return _share(sum(values), len(values))


def accuracy_by_family(groups: Sequence[Group]) -> dict[str, float | None]:
    """Share of correct answers among the graded responses of each family of problems, before filtering."""
    out = {}
    for family in sorted({g.problem.family for g in groups}):
        mine = [r for g in groups if g.problem.family == family for r in g.graded]
        out[family] = _mean([float(r.correct) for r in mine])
    return out


def sampling_event(collected: Collected, recipe: Recipe) -> dict[str, Any]:
    """What collection did, from all finished groups: accuracies, counts, lengths, the ledger."""
    groups = finished_groups(collected)
    responses = [r for g in groups for r in g.rollouts]
    graded = [r for r in responses if r.graded]
    counts = collected.correct_counts
    return {
        "accuracy": _mean([float(r.correct) for r in graded]),
        "accuracy_by_family": accuracy_by_family(groups),
        "correct_counts": counts,
        "groups": {
            "offered": len(collected.fates),
            "finished": len(groups),
            "all_right": sum(1 for g in groups if g.graded and g.n_correct == len(g.graded)),
            "all_wrong": sum(1 for g in groups if g.graded and g.n_correct == 0),
            "kept": len(collected.groups),
            "carried": collected.carried,
        },
        "group_size": recipe.rollout.group_size,
        "full": collected.full,
        "keep_rate": collected.keep_rate,
        "reward": _mean([r.reward + r.punishment for r in graded]),
        "punished": sum(r.punishment < 0 for r in responses),
        "length": _mean([float(r.length) for r in responses]),
        "length_max": max((r.length for r in responses), default=0),
        "truncated": _mean([float(r.completion.finish == "length") for r in responses]),
        "ungraded": len(responses) - len(graded),
        "ledger": {
            "generated": asdict(collected.ledger.generated),
            **{fate: asdict(t) for fate, t in collected.ledger.fates.items()},
            "carried_in": asdict(collected.ledger.carried_in),
        },
    }


def describe(objective: Objective) -> dict[str, Any]:
    """The numbers and the functions that an update used, by name."""
    values = {f.name: getattr(objective, f.name) for f in fields(objective)}
    return {name: value.__name__ if callable(value) else value for name, value in values.items()}


def _updates(result: StepResult) -> list[dict[str, Any]]:
    out = []
    for batch, update in zip(result.batches, result.updates, strict=True):
        out.append(
            {
                "loss": update.loss,
                "grad_norm": update.grad_norm,
                "applied": update.applied,
                "lr": update.lr,
                "entropy": _share(update.entropy, update.observed.tokens),
                "objective": describe(update.objective),
                "kl_coef": update.objective.kl_coef,
                "aggregation": batch.aggregation,
                "groups": batch.groups,
                "responses": batch.responses,
                "denominator_responses": batch.denominator_responses,
                "denominator_tokens": batch.tokens,
                "weight_min": batch.weight_min,
                "weight_max": batch.weight_max,
                "micro_batches": len(batch.micro),
                "computed_tokens": sum(m.packed.ids_Rn.numel() for m in batch.micro),
                **asdict(update.observed),
            }
        )
    return out


def _gap(trained: Iterable[tuple[Rollout, tuple[float, ...]]]) -> dict[str, float | None]:
    """|logp_old (trainer) - logp_gen (engine)| over the trained tokens: mean and maximum, in nats."""
    gaps = [abs(old - gen) for r, logp in trained for old, gen in zip(logp, r.completion.logp_gen, strict=True)]
    return {"mean": _mean(gaps), "max": max(gaps, default=None)}


def _utilisation(collected: Collected, advantages: Sequence[float]) -> float | None:
    """DCPO's response utilisation ratio: responses with an advantage other than 0, of those generated to the end."""
    generated = sum(len(g.rollouts) for g in finished_groups(collected))
    carried = sum(len(g.graded) for g in collected.groups[: collected.carried])
    return _share(sum(a != 0 for a in advantages), generated + carried)


def record_step(run: RunDir, recipe: Recipe, result: StepResult) -> dict[str, Any]:
    """Write the step's rollouts and event; returns the event's fields."""
    collected = result.collected
    files: list[tuple[Group, Fate, str, bool]] = [
        (g, "trained", "", True) for g in collected.groups[: collected.carried]
    ]
    files += [(g, fate, why, False) for g, fate, why in collected.fates]
    where = [i for i, (_, fate, _, _) in enumerate(files) if fate == "trained"]
    rows = per_sequence(result.batches, result.logp_old)
    places = [
        (position, r) for position, group in zip(where, collected.groups, strict=True) for r in group.graded
    ]  # in the order of the sequences' numbers
    penalty = result.penalty or {}
    trained = {
        (position, r.completion.sample): (result.advantages[n], penalty.get(n), rows[n])
        for n, (position, r) in enumerate(places)
    }
    if recipe.record.rollouts:
        write_rollouts(
            run.rollouts,
            rollouts_name(result.step),
            result.step,
            files,
            trained,
        )
    observed = sum((u.observed for u in result.updates), Observed())
    first = result.updates[0].observed.deviation if result.updates else None
    event = {
        "step": result.step,
        **sampling_event(collected, recipe),
        "entropy": _share(sum(u.entropy for u in result.updates), observed.tokens),
        "clip_low": _share(observed.clip_low, observed.tokens),
        "clip_high": _share(observed.clip_high, observed.tokens),
        "prob_clip_high": _share(observed.prob_clip_high, observed.clip_high),
        "loss": _mean([u.loss for u in result.updates]),
        "utilisation": _utilisation(collected, result.advantages),
        "clipped": _share(
            observed.clip_high + observed.clip_low + observed.clip_dual + observed.clip_far, observed.tokens
        ),
        "kl_penalised": len(penalty),
        "first_ratio_deviation": first if not collected.carried else None,
        "gap": _gap((r, rows[n]) for n, (_, r) in enumerate(places)),
        "updates": _updates(result),
        "seconds": result.seconds,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    run.events.write("step", **event)
    return event


def record_abandoned(run: RunDir, recipe: Recipe, step: int, collected: Collected, why: str) -> None:
    """Write what was generated for a step that was not trained: nothing is lost from the record.

    Its informative groups count as surplus: they are trained, if ever, when a later attempt carries them in.
    """
    fates: list[tuple[Group, Fate, str]] = [
        (g, "surplus", "kept for the next attempt") if fate == "trained" else (g, fate, reason)
        for g, fate, reason in collected.fates
    ]
    event = sampling_event(replace(collected, ledger=make_ledger(collected.ledger.generated, fates, ())), recipe)
    if recipe.record.rollouts:
        attempt = len(list(run.rollouts.glob(f"abandoned-{step:06d}-*"))) + 1
        write_rollouts(run.rollouts, f"abandoned-{step:06d}-{attempt:02d}", step, [(*f, False) for f in fates], {})
    run.events.write("abandoned", step=step - 1, why=why, found=len(collected.groups), **event)
