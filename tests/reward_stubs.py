"""Reward functions that fail in the ways users' functions fail (FAULTS.md 7 to 11)."""

import os
import signal
import time

from dapo.types import Score


def right(problem, texts):
    return [t == problem["answer"] for t in texts]


def behave(problem, texts):
    """Do what the first text says."""
    what = texts[0]
    if what == "hang":
        while True:
            pass
    if what == "sleep":
        time.sleep(100)
    if what == "raise":
        raise KeyError("no such key")
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "leave":
        os._exit(0)
    if what == "nan score":
        return [Score("correct", value=float("nan"))] * len(texts)
    if what == "score":
        return [Score("correct", "7", "because", 0.5)] * len(texts)
    return {
        "short": [],
        "long": [1.0] * (len(texts) + 1),
        "one": 1.0,
        "none": [None] * len(texts),
        "nan": [float("nan")] * len(texts),
        "text": ["1"] * len(texts),
        "dict": {"a": 1},
        "mixed": [1.0, -1, True, False][: len(texts)],
    }[what]
