"""From a file to the launches in it: YAML without tags, TOML, shell by a tokenizer, Python by its syntax tree; none is run."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dapo.conformance.foreign.config import MAX_DEPTH, MAX_KEYS, Config, Unresolved, flatten, scalar
from dapo.conformance.foreign.python import read_python
from dapo.conformance.foreign.shell import MARK, parse

LIMIT = 2_000_000  # bytes; a configuration is smaller
REFERENCE = re.compile(r"\$\{([^${}]+)\}")
OVERRIDE = re.compile(r"\+{0,2}[A-Za-z_][\w.@/-]*=")
KNOWN_PARENTS = {"grpo_math_1B.yaml"}  # NeMo-RL's base, whose values are the mapping's defaults
KNOWN_GROUPS = {
    "_self_",
    "ppo_trainer",
    "ppo_megatron_trainer",
    "dapo_trainer",
    "dapo_megatron_trainer",
}  # the same for verl
KNOWN_BASE = "examples/config.yaml"  # the same for EasyR1
SPEAKS = {"echo", "printf", "cat", "cp", "mv", "pip", "pip3", "git", "cd", "export", "unset", "source", "mkdir", "rm"}
ELSEWHERE = {
    f"{MARK}$@",
    f"{MARK}$*",
    f"{MARK}${{@}}",
    f"{MARK}${{@:1}}",
    f"{MARK}${{@:2}}",
}  # arguments given at run time


def read(path: Path) -> list[Config]:
    """The launches of a file; one, but for shell scripts. Errors: ValueError saying why it cannot be read; OSError."""
    text = _text(path)
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


def _text(path: Path) -> str:
    if path.stat().st_size > LIMIT:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; a configuration file has at most {LIMIT}")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text: {error}") from None


def _yaml(text: str, path: Path) -> list[Config]:
    tree, incomplete = _with_parents(_load_yaml(text), path, (path.resolve(),))
    return [Config("yaml", _resolved(flatten(tree)), tree=tree, incomplete=incomplete)]


def _resolved(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: _refer(value, settings, ()) for key, value in settings.items()}


def _load_yaml(text: str) -> dict[str, Any]:
    """Every scalar is read as text first, so tags and dates mean nothing. Errors: ValueError."""
    try:
        tree = _plain(yaml.load(text, Loader=yaml.BaseLoader), 0, [0])  # BaseLoader makes text only
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from None
    if not isinstance(tree, dict):
        raise ValueError("not a table of settings")
    return tree


def _plain(node: Any, depth: int, count: list[int]) -> Any:
    """The tree with its scalars read; aliases are copied, and neither they nor nesting may grow without bound."""
    count[0] += 1
    if count[0] > MAX_KEYS or depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_KEYS} settings, or nested deeper than {MAX_DEPTH}")
    if isinstance(node, dict):
        under = _plain(node["<<"], depth + 1, count) if isinstance(node.get("<<"), dict) else {}
        return {**under, **{str(k): _plain(v, depth + 1, count) for k, v in node.items() if k != "<<"}}
    if isinstance(node, list):
        return [_plain(item, depth + 1, count) for item in node]
    return scalar(node)


def _with_parents(tree: dict[str, Any], path: Path, seen: tuple[Path, ...]) -> tuple[dict[str, Any], str]:
    """The tree over those that its `defaults` names, as far as they are at hand beside it; and what is missing.

    Known bases of the systems need not be at hand: their values are the mapping's defaults.
    """
    parents = tree.get("defaults")
    names = [parents] if isinstance(parents, str) else parents if isinstance(parents, list) else []
    merged: dict[str, Any] = {}
    missing = ""
    for name in (n for n in names if isinstance(n, str) and n not in KNOWN_GROUPS):
        parent = (path.parent / (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")).resolve()
        if parent in seen:
            raise ValueError(f"defaults: {name} includes itself")
        if parent.is_file():
            above, lost = _with_parents(_load_yaml(_text(parent)), parent, (*seen, parent))
            merged, missing = _merge(merged, above), missing or lost
        elif parent.name not in KNOWN_PARENTS:
            missing = missing or f"the parent {name} is not at hand"
    return _merge(merged, {k: v for k, v in tree.items() if k != "defaults"}), missing


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


def _load_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"not TOML: {error}") from None


def _toml(text: str, path: Path) -> list[Config]:
    del path
    tree = _load_toml(text)
    return [Config("toml", flatten(tree), tree=tree)]


def _python(text: str, path: Path) -> list[Config]:
    del path
    calls, imported, attributes = read_python(text)
    return [Config("python", attributes, words=imported, calls=calls)]


def _shell(text: str, path: Path) -> list[Config]:
    """Every command that could launch something, with its own settings only."""
    commands = [c for c in parse(text).commands if c[0] not in SPEAKS and len(c) > 1]
    return [_command(command, path) for command in commands]


def _command(command: list[str], path: Path) -> Config:
    """`key=value` words and `--key value` flags, over the files that `config=`, `--config` and `@` name."""
    words = [w for w in command if w not in ELSEWHERE]
    flags = _flags(words)
    overrides: dict[str, Any] = {}
    for word in (w for w in words if OVERRIDE.match(w)):
        overrides |= _override(word)
    tree, incomplete = _bases(words, {**flags, **overrides}, path)
    settings = {**flatten(tree), **flags, **overrides}
    if len(settings) > MAX_KEYS:
        raise ValueError(f"more than {MAX_KEYS} settings")
    return Config("shell", _resolved(settings), tuple(words), tree=tree, incomplete=incomplete)


def _bases(words: list[str], settings: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], str]:
    """(the tables of the files that a command builds on, what is not at hand)."""
    named = [("", settings.get(key)) for key in ("config", "config_file")]
    for i, word in enumerate(words[:-1]):
        if word == "@":
            before = words[i - 1] if i else ""
            named.append((before.removeprefix("--") if before.startswith("--") else "", words[i + 1]))
    tree: dict[str, Any] = {}
    missing = "a configuration that --config-name names" if "config_name" in settings else ""
    for mount, name in named:
        if not isinstance(name, str) or not name.endswith((".yaml", ".yml", ".toml")):
            continue
        found = _find(name, path)
        if found is None:
            missing = missing or ("" if name.endswith(KNOWN_BASE) else f"the file {name}")
            continue
        inside = _load_toml(_text(found)) if name.endswith(".toml") else None
        if inside is None:
            inside, lost = _with_parents(_load_yaml(_text(found)), found, (found.resolve(),))
            missing = missing or lost.removesuffix(" is not at hand")
        tree = _merge(tree, {mount: inside} if mount else inside)
    return tree, f"{missing} is not at hand" if missing else ""


def _find(name: str, path: Path) -> Path | None:
    """A file that a script names: beside it, or in a folder above it within the same repository."""
    folders = [path.resolve().parent]
    roots = [i for i, folder in enumerate(path.resolve().parents) if (folder / ".git").exists()]
    if roots:
        folders = list(path.resolve().parents)[: roots[0] + 1]
    return next((p for folder in folders if (p := folder / name).is_file()), None)


def _value(text: str) -> Any:
    return Unresolved(text.replace(MARK, "") or "a branch decides") if MARK in text else scalar(text)


def _override(word: str) -> dict[str, Any]:
    """key=value; a Hydra table key={a:1,b:2} gives a key for each entry."""
    key, _, value = word.lstrip("+").partition("=")
    if not (value.startswith("{") and value.endswith("}")):
        return {key: _value(value)}
    pairs = [item.partition(":") for item in value[1:-1].split(",")]
    if MARK in value or "{" in value[1:] or not all(colon for _, colon, _ in pairs):
        return {key: Unresolved(value.replace(MARK, ""))}
    return {f"{key}.{name.strip()}": scalar(inner) for name, _, inner in pairs}


def _flags(command: list[str]) -> dict[str, Any]:
    """`--name value ...`, `--name=value` and `--name` (True); dashes in names as underscores, several values as a list."""
    out: dict[str, Any] = {}
    name, values = "", []
    for word in [*command, "--"]:
        if not word.startswith("--"):
            values.append(word)
            continue
        if name:
            read_values = [_value(v) for v in values if v and not OVERRIDE.match(v)]
            several = read_values if len(read_values) > 1 else (read_values or [True])[0]
            out[name] = Unresolved("a branch decides") if values[:1] == [MARK] else several
        branch = MARK in word.partition("=")[0]
        name, equals, value = word[2:].replace(MARK, "" if branch else MARK).partition("=")
        name, values = name.replace("-", "_"), [value] if equals else [MARK] if branch else []
    return out
