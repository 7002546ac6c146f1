"""What a run directory shows: its recipe, its events, its rollouts. Read once, offered to the clauses as plain values."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dapo.config import Recipe, load_recipe
from dapo.record.events import read_events
from dapo.record.rollouts import read_rollouts

COLUMNS = (
    "position", "carried", "problem_id", "outcome", "extracted", "reward", "punishment", "kl_penalty", "advantage",
    "length", "finish", "fate", "version",
)  # fmt: skip
Json = dict[str, Any]


@dataclass(frozen=True)
class GroupRows:
    """The rollouts of one group in one step."""

    step: int
    rows: tuple[Json, ...]

    @property
    def graded(self) -> list[Json]:
        return [r for r in self.rows if r["outcome"] != "ungraded"]

    @property
    def in_loss(self) -> list[Json]:
        """The responses that were given an advantage and trained."""
        return [r for r in self.rows if r["advantage"] is not None]

    @property
    def n_correct(self) -> int:
        return sum(r["outcome"] == "correct" for r in self.rows)

    @property
    def shaped(self) -> set[float]:
        """The distinct shaped rewards."""
        return {r["reward"] + r["punishment"] for r in self.graded}

    def has(self, fate: str) -> bool:
        return any(r["fate"] == fate for r in self.rows)


class Evidence:
    """A run directory, read lazily. Errors: ValueError if it is none."""

    def __init__(self, path: Path) -> None:
        if not (path / "recipe.toml").is_file() or not (path / "events.jsonl").is_file():
            raise ValueError(f"{path} is not a run directory: it needs recipe.toml and events.jsonl")
        self.path = path
        self.recipe: Recipe = load_recipe(path / "recipe.toml")
        self.events = read_events(path / "events.jsonl")
        if any("cut_high" not in u for e in self.steps for u in e["updates"]):
            raise ValueError(f"{path} was recorded by an earlier dapo, which did not observe all that is judged now")

    @cached_property
    def steps(self) -> list[Json]:
        return [e for e in self.events if e["kind"] == "step"]

    @cached_property
    def updates(self) -> list[Json]:
        """The updates that were made; those that were skipped as not finite changed nothing."""
        return [u for e in self.steps for u in e["updates"] if u["applied"]]

    def total(self, name: str) -> float:
        """A sum over all updates."""
        return float(sum(u[name] for u in self.updates))

    @cached_property
    def groups(self) -> list[GroupRows]:
        """All recorded groups of the run's steps; empty if rollouts were not recorded."""
        return list(self._read_groups())

    @cached_property
    def _by_step(self) -> dict[int, list[GroupRows]]:
        out: dict[int, list[GroupRows]] = {}
        for group in self.groups:
            out.setdefault(group.step, []).append(group)
        return out

    def of(self, step: Json) -> list[GroupRows]:
        """The recorded groups of a step, in order; empty if its rollouts were not recorded."""
        return self._by_step.get(step["step"], [])

    @cached_property
    def recorded_steps(self) -> list[Json]:
        """The steps whose rollouts were recorded."""
        return [s for s in self.steps if self.of(s)]

    @cached_property
    def trained(self) -> list[GroupRows]:
        return [g for g in self.groups if g.has("trained")]

    @cached_property
    def visited(self) -> list[GroupRows]:
        """Groups whose rewards count as a visit to their prompt, in order: trained and filtered ones, of a step that resamples
        those up to its last trained one."""
        last = {g.step: g.rows[0]["position"] for g in self.trained}
        resamples = self.recipe.algo.filter == "resample"
        counted = (g for g in self.groups if g.has("trained") or g.has("filtered"))
        return [g for g in counted if not resamples or g.rows[0]["position"] <= last.get(g.step, -1)]

    @cached_property
    def filtered(self) -> list[GroupRows]:
        return [g for g in self.groups if g.has("filtered")]

    @cached_property
    def graded(self) -> list[Json]:
        """All graded responses."""
        return [r for g in self.groups for r in g.graded]

    def _read_groups(self) -> Iterator[GroupRows]:
        folder = self.path / "rollouts"
        for event in self.steps:
            if not (folder / f"step-{event['step']:06d}.parquet").is_file():
                continue
            groups: dict[int, list[Json]] = {}
            for row in read_rollouts(folder, COLUMNS, event["step"]):
                groups.setdefault(row["position"], []).append(row)
            for rows in groups.values():
                yield GroupRows(event["step"], tuple(rows))
