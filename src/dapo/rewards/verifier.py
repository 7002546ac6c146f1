"""From a verifier's name to something that grades groups, and to its identity for the record."""

import hashlib
import importlib.util
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

import dapo
from dapo.rewards import dapo_math, number
from dapo.rewards.pool import FunctionPool
from dapo.types import Problem, Score

Rule = Callable[[Problem, str], Score]
RULES: dict[str, tuple[Rule, str]] = {
    "dapo_math": (dapo_math.grade, dapo_math.__file__),
    "number": (number.grade, number.__file__),
}


class Verifier(Protocol):
    """Grades the texts of one problem; the result has one Score for each text, in order."""

    def start(self) -> None:
        """Make ready. Errors: ValueError if the verifier cannot work."""

    def submit(self, problem: Problem, texts: list[str]) -> "Future[list[Score]]": ...

    def close(self) -> None: ...


class RuleVerifier:
    """A built-in rule: bounded time by construction, so it runs at once and in this process."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def start(self) -> None:
        pass

    def submit(self, problem: Problem, texts: list[str]) -> "Future[list[Score]]":
        future: Future[list[Score]] = Future()
        future.set_result([self._rule(problem, text) for text in texts])
        return future

    def close(self) -> None:
        pass


def _python_parts(name: str) -> tuple[str, str]:
    parts = name.split(":")
    if len(parts) != 3 or not all(parts):
        raise ValueError(
            f"reward.verifier = {name!r}: write python:MODULE:FUNCTION, for example python:my_reward:score"
        )
    return parts[1], parts[2]


def make_verifier(name: str, time_limit_s: float) -> Verifier:
    """Errors: ValueError naming reward.verifier if the name means nothing or the module cannot be found."""
    if name in RULES:
        return RuleVerifier(RULES[name][0])
    if name.startswith("python:"):
        module, function = _python_parts(name)
        _source_of(module, name)
        return FunctionPool(module, function, time_limit_s)
    raise ValueError(f"reward.verifier = {name!r} is unknown; use {', '.join(RULES)} or python:MODULE:FUNCTION")


def _source_of(module: str, name: str) -> Path:
    beside = Path.cwd() / (module.replace(".", "/") + ".py")
    if beside.is_file():
        return beside
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise ValueError(
            f"reward.verifier = {name!r}: no module {module!r}; put {module}.py into {Path.cwd()} or install it"
        )
    return Path(spec.origin)


def identity(name: str) -> dict[str, str]:
    """Name, version and SHA-256 of the verifier's source, for the manifest; a user's function has no version of its own."""
    source = Path(RULES[name][1]) if name in RULES else _source_of(_python_parts(name)[0], name)
    version = f"dapo {dapo.__version__}" if name in RULES else "none"
    return {"name": name, "version": version, "source_sha256": hashlib.sha256(source.read_bytes()).hexdigest()}
