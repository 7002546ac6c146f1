"""The protocol of a generation engine, and the random streams that make a response independent of its neighbours."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from dapo.types import Completion, Request


class Engine(Protocol):
    """Generates responses. Not thread-safe; one collector drives one engine."""

    def submit(self, requests: Iterable[Request]) -> None:
        """Queue requests; those submitted first are started first."""

    def poll(self) -> list[Completion]:
        """Block until at least one response has finished and return all that have; [] if none is in flight."""

    def cancel(self, group_ids: Collection[int]) -> list[Completion]:
        """Stop these groups; returns their unfinished responses as far as they came (finish "cancelled")."""

    def load(self, weights: Mapping[str, Any] | None, version: int) -> None:
        """From now on new tokens come from these weights (None: the trainer's own, shared in place) and carry `version`."""


def sample_seed(run_seed: int, step: int, problem_id: str, occurrence: int, sample: int) -> int:
    """The 64-bit seed of one response's random stream; `occurrence` counts the same problem within a step."""
    text = f"{run_seed}|{step}|{problem_id}|{occurrence}|{sample}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
