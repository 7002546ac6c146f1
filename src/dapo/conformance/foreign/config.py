"""What a configuration file says: settings by key, with what could not be decided without running it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_KEYS = 20_000
MAX_DEPTH = 60


@dataclass(frozen=True)
class Unresolved:
    """A value that only running the file would tell: a variable of the environment, an expression, a missing parent."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Call:
    """A call in a Python file: positional and keyword arguments as values or Unresolved; `bound`: the name it is given to."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    bound: str = ""

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Config:
    """One launch, read. `settings`: dotted keys. `words`: the launching command, or the modules that a Python file imports.

    `entry`: the module or script that the command starts, if it is one that we know. `tree`: nested tables, if any. `calls`:
    calls in a Python file. `incomplete`: why unset keys may have values after all, such as a parent file that is not at
    hand. `kind`: yaml, toml, shell or python.
    """

    kind: str
    settings: Mapping[str, Any]
    words: tuple[str, ...] = ()
    entry: str = ""
    tree: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()
    incomplete: str = ""
    asked: set[str] = field(default_factory=set)  # the keys that were looked at

    def has(self, key: str) -> bool:
        """True if the key is set, to whatever."""
        self.asked.add(key)
        return key in self.settings

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the system's default; Unresolved if it may have been set where we cannot look."""
        self.asked.add(key)
        if key in self.settings:
            return self.settings[key]
        return Unresolved(f"not set here; {self.incomplete}") if self.incomplete else default

    def under(self, prefix: str) -> Iterator[str]:
        """The keys that begin with `prefix`."""
        return (key for key in self.settings if key.startswith(prefix))


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys; lists stay values. Errors: ValueError beyond MAX_KEYS or MAX_DEPTH."""
    out: dict[str, Any] = {}
    todo = [(prefix, tree, 0)]
    tables = 0
    while todo:
        start, table, depth = todo.pop()
        tables += 1
        for key, value in table.items():
            if isinstance(value, Mapping):
                todo.append((f"{start}{key}.", value, depth + 1))
            else:
                out[f"{start}{key}"] = value
        if len(out) + len(todo) + tables > MAX_KEYS or depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_KEYS} settings, or nested deeper than {MAX_DEPTH}")
    return out


def scalar(text: str) -> Any:
    """A word as bool, None, int, float, list or the word itself."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.startswith("[") and text.endswith("]"):
        return [scalar(item) for item in text[1:-1].replace("[", "").replace("]", "").split(",") if item.strip()]
    known = {"true": True, "false": False, "null": None, "none": None, "~": None}
    if text.lower() in known:
        return known[text.lower()]
    for kind in (int, float):
        try:
            return kind(text.replace("_", "") if kind is int else text)
        except ValueError:
            continue
    return text
