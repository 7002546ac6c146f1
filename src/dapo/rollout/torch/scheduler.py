"""Which request gets which row: waiting requests in order of submission, active rows dense from 0."""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from dapo.types import Completion, Finish, Request


@dataclass
class Row:
    """A response being generated."""

    request: Request
    tokens: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)

    @property
    def next_position(self) -> int:
        """Where the last drawn token stands in the sequence, prompt included."""
        return len(self.request.prompt_ids) + len(self.tokens) - 1

    def complete(self, finish: Finish, version: int) -> Completion:
        return Completion(
            self.request.group_id, self.request.sample, tuple(self.tokens), tuple(self.logp), finish, version
        )


class Scheduler:
    """Waiting queue and active rows. Moving a row's cached keys and values is the engine's part."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.waiting: deque[Request] = deque()
        self.active: list[Row] = []

    def add(self, requests: Iterable[Request]) -> None:
        self.waiting.extend(requests)

    def start(self, count: int) -> list[Row]:
        """Give the next `count` waiting requests the next free rows."""
        rows = [Row(self.waiting.popleft()) for _ in range(count)]
        self.active += rows
        return rows

    @property
    def free_rows(self) -> int:
        return self.max_rows - len(self.active)

    def next_groups(self) -> Iterable[Request]:
        """The first waiting request of each waiting group, in order."""
        seen: set[int] = set()
        for request in self.waiting:
            if request.group_id not in seen:
                seen.add(request.group_id)
                yield request

    def retire(self, row: int) -> int | None:
        """Free a row; the last row takes its place. Returns the number that the last row had, if it moved."""
        last = len(self.active) - 1
        self.active[row] = self.active[last]
        self.active.pop()
        return last if row != last else None

    def drop_waiting(self, group_ids: Collection[int]) -> list[Row]:
        """Take the waiting requests of these groups out of the queue."""
        dropped = [Row(r) for r in self.waiting if r.group_id in group_ids]
        self.waiting = deque(r for r in self.waiting if r.group_id not in group_ids)
        return dropped
