"""From a file to a Config: YAML safely, TOML, shell by a tokenizer, Python by its syntax tree. Nothing is executed."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dapo.conformance.foreign.config import Config, Unresolved, flatten, scalar
from dapo.conformance.foreign.python import read_python
from dapo.conformance.foreign.shell import MARK, parse

LIMIT = 2_000_000  # bytes; a configuration is smaller
REFERENCE = re.compile(r"\$\{([^${}]+)\}")


def read(path: Path) -> Config:
    """Errors: ValueError saying why the file cannot be read; OSError."""
    if path.stat().st_size > LIMIT:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; a configuration file has at most {LIMIT}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text: {error}") from None
    readers = {".yaml": _yaml, ".yml": _yaml, ".toml": _toml, ".sh": _shell, ".bash": _shell, ".py": _python}
    suffix = path.suffix.lower()
    if suffix not in readers and text.startswith("#!") and "sh" in text.partition("\n")[0]:
        suffix = ".sh"
    if suffix not in readers:
        raise ValueError(f"{path}: cannot tell what kind of file it is; known endings: {', '.join(readers)}")
    try:
        return readers[suffix](text, path)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _yaml(text: str, path: Path) -> Config:
    tree, incomplete = _with_parents(_load_yaml(text), path, ())
    settings = flatten(tree)
    return Config(
        "yaml", text, {k: _refer(v, settings, ()) for k, v in settings.items()}, tree=tree, incomplete=incomplete
    )


def _load_yaml(text: str) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from None
    if not isinstance(tree, dict):
        raise ValueError("not a table of settings")
    return tree


def _with_parents(tree: dict[str, Any], path: Path, seen: tuple[Path, ...]) -> tuple[dict[str, Any], str]:
    """The tree over those of the files that its `defaults` names as paths; and what is missing, if something is.

    Only `.yaml` paths are followed (NeMo-RL). Hydra's lists of groups name files that its own search path holds, and their
    values are the defaults of the mapping.
    """
    parents = tree.get("defaults")
    names = [parents] if isinstance(parents, str) else parents if isinstance(parents, list) else []
    merged: dict[str, Any] = {}
    missing = ""
    for name in (n for n in names if isinstance(n, str) and n.endswith((".yaml", ".yml"))):
        parent = (path.parent / name).resolve()
        if parent in seen:
            raise ValueError(f"defaults: {name} includes itself")
        if parent.is_file():
            above, lost = _with_parents(_load_yaml(parent.read_text(encoding="utf-8-sig")), parent, (*seen, parent))
            merged, missing = _merge(merged, above), missing or lost
        elif parent.name not in KNOWN_PARENTS:
            missing = f"the parent {name} is not at hand"
    return _merge(merged, {k: v for k, v in tree.items() if k != "defaults"}), missing


KNOWN_PARENTS = ("grpo_math_1B.yaml",)  # NeMo-RL's base, whose values are the mapping's defaults


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(under)
    for key, value in over.items():
        old = out.get(key)
        out[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def _refer(value: Any, settings: Mapping[str, Any], seen: tuple[str, ...]) -> Any:
    """Resolve `${other.key}`; anything else in `${}` is Unresolved."""
    if not isinstance(value, str) or "${" not in value:
        return value
    whole = REFERENCE.fullmatch(value.strip())
    name = whole[1].strip() if whole else ""
    if name in settings and name not in seen:
        return _refer(settings[name], settings, (*seen, name))
    return Unresolved(value)


def _toml(text: str, path: Path) -> Config:
    del path
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not TOML: {error}") from None
    return Config("toml", text, flatten(tree), tree=tree)


def _python(text: str, path: Path) -> Config:
    del path
    calls, imported = read_python(text)
    return Config("python", text, {}, words=imported, calls=calls)


def _shell(text: str, path: Path) -> Config:
    """Settings are `key=value` words and `--key value` flags of every command; a file that a flag names is read under them."""
    script = parse(text)
    settings: dict[str, Any] = {}
    words: list[str] = []
    for command in script.commands:
        words += command
        settings |= _flags(command)
        settings |= dict(_override(word) for word in command if _is_override(word))
    base = next((scalar(w.partition("=")[2]) for w in words if w.startswith("config=")), None)
    base = base or settings.get("config") or next((w for w in words if w.endswith(".toml")), None)
    tree, incomplete = _base(base, path)
    return Config("shell", text, {**flatten(tree), **settings}, tuple(words), tree, incomplete=incomplete)


def _base(name: Any, path: Path) -> tuple[dict[str, Any], str]:
    """The file that a script builds on, if it is at hand: beside the script or in a folder above it."""
    if not isinstance(name, str) or not name.endswith((".yaml", ".yml", ".toml")):
        return {}, ""
    found = next((p for folder in path.resolve().parents if (p := folder / name).is_file()), None)
    if found is None:
        return {}, "" if name.endswith(EASYR1_BASE) else f"the file {name} is not at hand"
    config = read(found)
    return dict(config.tree), config.incomplete


EASYR1_BASE = "examples/config.yaml"  # whose values are the mapping's defaults


def _is_override(word: str) -> bool:
    return bool(re.match(r"\+{0,2}[A-Za-z_][\w.]*=", word)) and not word.startswith("--")


def _value(text: str) -> Any:
    return Unresolved(text.replace(MARK, "")) if MARK in text else scalar(text)


def _override(word: str) -> tuple[str, Any]:
    key, _, value = word.lstrip("+").partition("=")
    return key, _value(value)


def _flags(command: list[str]) -> dict[str, Any]:
    """`--name value ...`, `--name=value` and `--name` (True); dashes in names as underscores, several values as a list."""
    out: dict[str, Any] = {}
    name, values = "", []
    for word in [*command, "--"]:
        if not word.startswith("--"):
            values.append(word)
            continue
        if name:
            read_values = [_value(v) for v in values if v]
            out[name] = True if not read_values else read_values[0] if len(read_values) == 1 else read_values
        name, equals, value = word[2:].partition("=")
        name, values = name.replace("-", "_"), [value] if equals else []
    return out
