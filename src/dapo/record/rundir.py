"""The run directory: made once, locked while a run writes to it, refused when a second one tries."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any, TextIO

from dapo.config import Recipe, load_recipe, to_toml
from dapo.record.events import EventLog

SAFE_SECTIONS = ("eval", "launch")
SAFE_KEYS = (
    "train.steps",
    "train.save_every",
    "train.keep_checkpoints",
    "train.max_bad_updates",
    "train.micro_batch_tokens",
    "rollout.max_prompts_per_step",
    "rollout.on_underfill",
    "reward.time_limit_s",
    "reward.max_ungraded",
)


class RunDir:
    """One run's folder. Use as a context manager: it holds the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._lock: TextIO | None = None
        self._take_lock()
        self.events = EventLog(path / "events.jsonl")

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts"

    def __enter__(self) -> "RunDir":
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take_lock(self) -> None:
        """The kernel drops the lock when the process dies, so no stale lock can remain."""
        file = (self.path / "lock").open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            owner = file.read().strip()
            file.close()
            raise ValueError(f"{self.path} is in use by another run (process {owner}); choose another --out") from None
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._lock = file

    def begin(self, recipe: Recipe, manifest: dict[str, Any]) -> None:
        """Write manifest.json and then recipe.toml, which makes the folder a run."""
        write_atomically(self.path / "manifest.json", json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        write_atomically(self.path / "recipe.toml", to_toml(recipe))

    def manifest(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.path / "manifest.json").read_text())
        return loaded


def write_atomically(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)


def compare_manifests(was: dict[str, Any], now: dict[str, Any]) -> None:
    """A resumed run needs the data, the starting model, the verifier and the precision that it began with.

    Errors: ValueError naming what has changed, with both hashes.
    """

    def parts(manifest: dict[str, Any]) -> dict[str, Any]:
        return {
            "data.source": manifest["data"]["fingerprint"],
            "model.path": manifest["model"]["weights_sha256"],
            "model.dtype": manifest["model"]["dtype"],
            "reward.verifier": manifest["reward"]["verifier"]["source_sha256"],
        }

    before, here = parts(was), parts(now)
    for key, value in here.items():
        if before[key] != value:
            raise ValueError(
                f"{key}: what it stands for has changed since the run began: was {before[key]}, is {value}; "
                f"put it back or use a new --out"
            )


def compare_for_resume(path: Path, now: Recipe) -> dict[str, tuple[Any, Any]]:
    """The keys that a resumed run changes, {key: (was, is)}; all of them safe to change.

    Errors: ValueError naming every unsafe key with both values.
    """
    was, here = load_recipe(path / "recipe.toml").flat(), now.flat()
    changed = {k: (was.get(k), v) for k, v in here.items() if was.get(k) != v}
    conditional = {
        "train.steps": now.train.schedule == "constant",  # otherwise the learning rates change
        "train.micro_batch_tokens": now.algo.aggregation != "token-mean-legacy",  # which depends on the cut
    }
    unsafe = {
        k: v
        for k, v in changed.items()
        if not (k in SAFE_KEYS or k.partition(".")[0] in SAFE_SECTIONS) or not conditional.get(k, True)
    }
    if unsafe:
        lines = "; ".join(f"{k} was {a!r}, is {b!r}" for k, (a, b) in unsafe.items())
        raise ValueError(
            f"cannot resume {path} with another recipe: {lines}. Put the old values back or use a new --out"
        )
    return changed
