"""What someone who claims a result should record: code, data, model, verifier, versions, seeds, hardware."""

import hashlib
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import dapo
from dapo.config import TOKEN_LEVEL, Recipe

LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "pyarrow", "pydantic")


def _git(*arguments: str) -> str | None:
    """Output of git in the folder of this package's source; None if it is not in a repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def source_sha256() -> str:
    """One hash over all of the package's source files: the code that runs, committed or not."""
    root = Path(dapo.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def _code() -> dict[str, Any]:
    revision, diff = _git("rev-parse", "HEAD"), _git("diff", "HEAD")
    return {
        "version": dapo.__version__,
        "source_sha256": source_sha256(),
        "git_revision": revision.strip() if revision else None,
        "git_diff_sha256": hashlib.sha256(diff.encode()).hexdigest() if diff else None,
    }


def hash_folder(path: str, patterns: tuple[str, ...]) -> dict[str, str]:
    """SHA-256 of the files of a model folder that match; empty for a hub name that is not a folder."""
    files = sorted({f for pattern in patterns for f in Path(path).glob(pattern)}) if Path(path).is_dir() else []
    out = {}
    for file in files:
        with file.open("rb") as handle:
            out[file.name] = hashlib.file_digest(handle, "sha256").hexdigest()
    return out


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _algorithm(recipe: Recipe) -> dict[str, Any]:
    a = recipe.algo
    return {
        "base": a.base,
        "known_as": recipe.known_as,
        "deviations": recipe.deviations,
        "clip": {"rule": a.bounds, "eps_low": a.eps_low, "eps_high": a.eps_high, "dual_clip": a.dual_clip},
        "ratio": a.ratio,
        "outside": a.outside,
        "group_size": recipe.rollout.group_size,
        "prompts_per_step": recipe.rollout.prompts_per_step,
        "updates_per_step": recipe.train.updates_per_step,
        "loss_aggregation": a.aggregation,
        "token_level_reading": a.aggregation if a.aggregation in TOKEN_LEVEL else None,
        "advantage": a.advantage,
        "filter": a.filter,
        "length": {"rule": a.length, "L_max": recipe.L_max, "L_cache": recipe.L_cache},
        "kl": {"coef": a.kl_coef, "in": a.kl_in, "estimator": a.kl_estimator},
        "correction": a.correction,
    }


def make_manifest(
    recipe: Recipe, data: dict[str, Any], verifier: dict[str, str], model_path: str, device: str, dtype: str
) -> dict[str, Any]:
    """The manifest of a run that is about to begin. `data`: fingerprints and counts; `device`: its name."""
    return {
        "code": _code(),
        "algorithm": _algorithm(recipe),
        "training": recipe.train.model_dump(),
        "reward": {
            "verifier": verifier,
            "correct": recipe.reward.correct,
            "incorrect": recipe.reward.incorrect,
            "no_answer": recipe.reward.no_answer,
        },
        "data": data,
        "model": {
            "path": model_path,
            "weights_sha256": hash_folder(model_path, ("*.safetensors",)),
            "tokenizer_sha256": hash_folder(model_path, ("tokenizer*", "chat_template*", "vocab*", "merges*")),
            "dtype": dtype,
        },
        "seed": recipe.train.seed,
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
        "python": sys.version.split()[0],
        "hardware": {"platform": platform.platform(), "cpu": _processor(), "cores": os.cpu_count(), "device": device},
    }
