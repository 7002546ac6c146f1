"""The prompt stream: a seeded shuffle, epoch after epoch, with a head to which prompts can be given back.

The state is three small values; restoring them continues exactly, at any point, without loss or repetition.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np


class PromptStream:
    """Endless indices into a list of `size` problems; every epoch is a permutation drawn from (seed, epoch)."""

    def __init__(self, size: int, seed: int) -> None:
        assert size > 0
        self._size, self._seed = size, seed
        self._epoch, self._position = 0, 0
        self._head: deque[int] = deque()
        self._order = self._permutation()

    def next(self) -> int:
        """The next index: one that was given back, or the next of the epoch."""
        if self._head:
            return self._head.popleft()
        if self._position == self._size:
            self._epoch, self._position = self._epoch + 1, 0
            self._order = self._permutation()
        index = int(self._order[self._position])
        self._position += 1
        return index

    def requeue(self, indices: Iterable[int]) -> None:
        """Put indices back at the head; the first of them comes next."""
        self._head.extendleft(reversed(list(indices)))

    def state_dict(self) -> dict[str, Any]:
        return {"size": self._size, "epoch": self._epoch, "position": self._position, "head": list(self._head)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Errors: ValueError if the state belongs to a list of another size."""
        if state["size"] != self._size:
            raise ValueError(f"the prompt stream was saved over {state['size']} problems, now there are {self._size}")
        self._epoch, self._position = state["epoch"], state["position"]
        self._head = deque(state["head"])
        self._order = self._permutation()

    def _permutation(self) -> np.ndarray:
        return np.random.default_rng([self._seed, self._epoch]).permutation(self._size)
