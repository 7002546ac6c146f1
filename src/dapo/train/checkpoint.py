"""Checkpoints: a Hugging Face model folder plus optimiser and run state, checksummed, committed by a rename.

A folder under its final name is complete; anything else is the remains of a write that died, never chosen and removed at
the next start. Tensors are safetensors, the rest is JSON: nothing is ever unpickled.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

WEIGHTS, MOMENTS, STATE, SUMS = "model.safetensors", "optimizer.safetensors", "state.json", "checksums.json"
PARTIAL = ".partial-"
DAMAGED = "damaged-"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint in memory. `state` is whatever the loop saved."""

    path: Path
    weights: dict[str, Tensor]
    moments: dict[str, Tensor]
    state: dict[str, Any]


class DamagedCheckpoint(ValueError):
    """A checkpoint whose files do not match their checksums."""


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def save(
    folder: Path,
    name: str,
    weights: dict[str, Tensor],
    moments: dict[str, Tensor],
    state: dict[str, Any],
    add_files: Callable[[Path], None],
) -> Path:
    """Write the checkpoint `name` into `folder`. `add_files` puts configuration and tokenizer beside the weights.

    Errors: OSError with the path, the need and the free space in its message; earlier checkpoints are untouched.
    """
    final, partial = folder / name, folder / (PARTIAL + name)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        add_files(partial)
        save_file(weights, partial / WEIGHTS, metadata={"format": "pt"})
        save_file(moments, partial / MOMENTS)
        (partial / STATE).write_text(json.dumps(state))
        sums = {file.name: _sha256(file) for file in sorted(partial.iterdir())}
        (partial / SUMS).write_text(json.dumps(sums, indent=1))
        for file in partial.iterdir():
            _sync(file)
        _sync(partial)
        partial.rename(final)
        _sync(folder)
    except Exception as error:
        shutil.rmtree(partial, ignore_errors=True)
        need = sum(t.nbytes for t in (*weights.values(), *moments.values()))
        free = shutil.disk_usage(folder).free if folder.is_dir() else 0
        raise OSError(
            f"checkpoint {final} could not be written ({error}); it needs {need / 2**20:.0f} MiB, "
            f"{free / 2**20:.0f} MiB are free; earlier checkpoints are unchanged"
        ) from error
    return final


def listing(folder: Path) -> list[Path]:
    """Committed checkpoints, oldest first; names sort by step, never by time."""
    return sorted(p for p in folder.glob("step-*") if p.is_dir())


def next_name(folder: Path, step: int) -> str:
    """The name of a checkpoint at `step`: step-NNNNNN, with a revision behind it if that step has one already."""
    taken = [p.name for p in listing(folder) if p.name.startswith(f"step-{step:06d}")]
    if not taken:
        return f"step-{step:06d}"
    _, _, revision = taken[-1].partition(".r")
    return f"step-{step:06d}.r{int(revision or 0) + 1:02d}"


def verify(path: Path) -> None:
    """Errors: DamagedCheckpoint naming the file that is missing or does not match its checksum."""
    try:
        sums = json.loads((path / SUMS).read_text())
    except (OSError, ValueError) as error:
        raise DamagedCheckpoint(f"{path / SUMS}: {error}") from None
    for name, expected in sums.items():
        if not (path / name).is_file():
            raise DamagedCheckpoint(f"{path / name} is missing")
        if _sha256(path / name) != expected:
            raise DamagedCheckpoint(f"{path / name} does not match its checksum")


def load(path: Path) -> Checkpoint:
    """Errors: DamagedCheckpoint before anything is read into live state."""
    verify(path)
    state = json.loads((path / STATE).read_text())
    return Checkpoint(path, load_file(path / WEIGHTS), load_file(path / MOMENTS), state)


def load_latest(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole; None if there is none at all. Damaged ones are said and set aside.

    Errors: DamagedCheckpoint if there are checkpoints and every one is damaged.
    """
    for path in reversed(listing(folder)):
        try:
            return load(path)
        except DamagedCheckpoint as error:
            path.rename(folder / (DAMAGED + path.name))
            say(f"checkpoint {path.name} is damaged and passed over: {error}")
    if list(folder.glob(DAMAGED + "*")):
        raise DamagedCheckpoint(
            f"every checkpoint in {folder} is damaged; remove the folder to start from the beginning"
        )
    return None


def clean(folder: Path) -> None:
    """Remove what writes that died have left."""
    for path in folder.glob(PARTIAL + "*"):
        shutil.rmtree(path)


def purge(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep`; renamed first, so that a kill leaves no half checkpoint under its name."""
    for path in listing(folder)[:-keep]:
        doomed = folder / (PARTIAL + path.name)
        path.rename(doomed)
        shutil.rmtree(doomed)
