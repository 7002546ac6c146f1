"""events.jsonl, the truth about a run: append-only, one JSON object a line, each line complete.

A run that was killed and resumed has steps twice; `read_events` gives the history that led to the final weights: a
"resume" event at step k takes back what stands before it and belongs to a later step.
"""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


class EventLog:
    """Appends to one events file. A line torn by a kill is cut off when the file is opened again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.exists():
            data = path.read_bytes()
            whole = data.rfind(b"\n") + 1
            if whole < len(data):
                os.truncate(path, whole)

    def write(self, kind: str, **fields: Any) -> None:
        """Append one event; it is in the kernel's hands when this returns."""
        line = json.dumps({"kind": kind, "time": time.time(), **_finite(fields)}, allow_nan=False)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a run, in order, without the steps that a resume took back.

    Errors: ValueError naming the line, if one but the last (which a kill may have torn) is not JSON.
    """
    lines = path.read_text(encoding="utf-8").split("\n")
    events: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            event = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise ValueError(f"{path}, line {number} is not JSON: {error.msg}") from None
        if event["kind"] == "resume":
            events = [e for e in events if e.get("step", 0) <= event["step"]]
        events.append(event)
    return events


def token_fates(events: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The whole run's ledger: {fate: {groups, responses, tokens, seconds}}, over its steps and abandoned attempts."""
    total: dict[str, dict[str, float]] = {}
    for event in events:
        if event["kind"] in ("step", "abandoned"):
            for fate, part in event["ledger"].items():
                mine = total.setdefault(fate, dict.fromkeys(part, 0.0))
                for unit, value in part.items():
                    mine[unit] += value
    return total
