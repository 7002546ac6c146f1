"""An engine that replays canned responses, in an order of finishing of its own: for tests of everything above it.

It obeys the same protocol and the same test suite as the real engines.
"""

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from dapo.types import Completion, Request

Script = Callable[[Request], tuple[int, ...]]


class ScriptedEngine:
    """`script(request)` gives the token ids; `delay_seed` shuffles the order in which responses finish."""

    def __init__(self, script: Script, delay_seed: int = 0, logp: float = -1.0) -> None:
        self._script = script
        self._rng = random.Random(delay_seed)
        self._logp = logp
        self._version = 0
        self._waiting: list[tuple[float, Request]] = []
        self.submitted: list[Request] = []

    def submit(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.submitted.append(request)
            self._waiting.append((self._rng.random(), request))

    def poll(self) -> list[Completion]:
        if not self._waiting:
            return []
        self._waiting.sort(key=lambda item: item[0])
        count = self._rng.randint(1, len(self._waiting))
        done, self._waiting = self._waiting[:count], self._waiting[count:]
        return [self._complete(request) for _, request in done]

    def cancel(self, group_ids: Collection[int]) -> list[Completion]:
        ids = set(group_ids)
        stopped = [r for _, r in self._waiting if r.group_id in ids]
        self._waiting = [(t, r) for t, r in self._waiting if r.group_id not in ids]
        return [Completion(r.group_id, r.sample, (), (), "cancelled", self._version) for r in stopped]

    def load(self, weights: Mapping[str, Any] | None, version: int) -> None:  # noqa: ARG002
        self._version = version

    def _complete(self, request: Request) -> Completion:
        ids = self._script(request)[: request.sampling.max_new_tokens]
        cut = len(ids) == request.sampling.max_new_tokens
        return Completion(
            request.group_id,
            request.sample,
            ids,
            (self._logp,) * len(ids),
            "length" if cut else "stop",
            self._version,
        )
