"""The child process that runs a user's reward function: `python -m dapo.rewards.worker MODULE FUNCTION IN OUT`.

Jobs come in and answers go out as lines of JSON on two inherited file descriptors, so what the function prints cannot be
mistaken for an answer. It never interprets a failure: it reports the traceback.
"""

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from dapo.types import Score


def plain(value: Any) -> Any:
    """A function's return value as JSON, without judging it: the parent does."""
    if isinstance(value, Score):
        return {"outcome": value.outcome, "extracted": value.extracted, "why": value.why, "value": value.value}
    if isinstance(value, (list, tuple)) or hasattr(value, "tolist"):
        items = value.tolist() if hasattr(value, "tolist") else value
        return [plain(v) for v in items] if isinstance(items, (list, tuple)) else plain(items)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return {"type": type(value).__name__}


def main() -> None:
    module, function = sys.argv[1:3]
    sys.path.insert(0, str(Path.cwd()))
    with os.fdopen(int(sys.argv[3])) as jobs, os.fdopen(int(sys.argv[4]), "w") as answers:
        try:
            reward = getattr(importlib.import_module(module), function)
            hello: dict[str, Any] = {"ready": True}
        except Exception as error:  # whatever the user's module raises is for the user to see
            hello = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(hello) + "\n")
        answers.flush()
        for line in jobs:
            job = json.loads(line)
            try:
                answer = {"values": plain(reward(job["problem"], job["texts"]))}
            except Exception:  # reported, not swallowed: the parent marks the samples "could not grade"
                answer = {"error": traceback.format_exc(limit=5)}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
