"""rollouts/step-NNNNNN.parquet: every response of a step with its text, score, fate, lengths and log-probabilities."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dapo.types import Fate, Group

SCHEMA = pa.schema(
    [
        ("step", pa.int32()),
        ("position", pa.int32()),  # of the group in this file; group numbers repeat where groups are carried in
        ("group", pa.int32()),
        ("sample", pa.int32()),
        ("carried", pa.bool_()),
        ("problem_id", pa.string()),
        ("family", pa.string()),
        ("problem", pa.string()),
        ("answer", pa.string()),
        ("text", pa.string()),
        ("outcome", pa.string()),
        ("extracted", pa.string()),
        ("why", pa.string()),
        ("reward", pa.float64()),
        ("punishment", pa.float64()),
        ("kl_penalty", pa.float64()),  # what the KL divergence took from the reward; null if it is not in the reward
        ("advantage", pa.float64()),
        ("length", pa.int32()),
        ("finish", pa.string()),
        ("fate", pa.string()),
        ("fate_why", pa.string()),
        ("version", pa.int32()),
        ("token_ids", pa.list_(pa.int32())),
        ("logp_gen", pa.list_(pa.float32())),
        ("logp_old", pa.list_(pa.float32())),
    ]
)
Trained = Mapping[tuple[int, int], tuple[float, float | None, Sequence[float]]]


def _rows(step: int, groups: Sequence[tuple[Group, Fate, str, bool]], trained: Trained) -> list[dict[str, Any]]:
    rows = []
    for position, (group, fate, why, carried) in enumerate(groups):
        for r in group.rollouts:
            advantage, penalty, logp_old = trained.get((position, r.completion.sample), (None, None, None))
            mine: Fate = "failed" if fate in ("trained", "filtered", "surplus") and not r.graded else fate
            rows.append(
                {
                    "step": step,
                    "position": position,
                    "group": group.group_id,
                    "sample": r.completion.sample,
                    "carried": carried,
                    "problem_id": group.problem.id,
                    "family": group.problem.family,
                    "problem": group.problem.text,
                    "answer": group.problem.answer,
                    "text": r.text,
                    "outcome": r.score.outcome,
                    "extracted": r.score.extracted,
                    "why": r.score.why,
                    "reward": r.reward if r.graded else None,
                    "punishment": r.punishment,
                    "kl_penalty": penalty,
                    "advantage": advantage,
                    "length": r.length,
                    "finish": r.completion.finish,
                    "fate": mine,
                    "fate_why": why,
                    "version": r.completion.version,
                    "token_ids": r.completion.token_ids,
                    "logp_gen": r.completion.logp_gen,
                    "logp_old": logp_old,
                }
            )
    return rows


def rollouts_name(step: int) -> str:
    """The file of a completed step."""
    return f"step-{step:06d}"


def write_rollouts(
    folder: Path, name: str, step: int, groups: Sequence[tuple[Group, Fate, str, bool]], trained: Trained
) -> None:
    """Write a step's file, whole or not at all.

    groups: (group, fate, reason, carried in from an earlier step). trained: (position in `groups`, sample) ->
    (advantage, KL penalty, old log-probabilities) of the responses that entered the loss.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"{name}.parquet"
    partial = final.with_suffix(".partial")
    pq.write_table(pa.Table.from_pylist(_rows(step, groups, trained), schema=SCHEMA), partial, compression="zstd")
    partial.rename(final)


def read_rollouts(folder: Path, columns: Sequence[str], step: int) -> list[dict[str, Any]]:
    """Rows of one step. Errors: FileNotFoundError."""
    rows: list[dict[str, Any]] = pq.read_table(
        folder / f"{rollouts_name(step)}.parquet", columns=list(columns)
    ).to_pylist()
    return rows
