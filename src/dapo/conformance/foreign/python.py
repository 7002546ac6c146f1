"""Python files by their syntax tree: calls with literal arguments, names bound to literals. Nothing is run."""

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any

from dapo.conformance.foreign.config import Call, Unresolved

LARGE = 10**15  # arithmetic beyond it is no setting
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def read_python(text: str) -> tuple[tuple[Call, ...], tuple[str, ...], dict[str, Any]]:
    """(all calls, all imported modules, attributes that are assigned as name.attribute). Errors: ValueError."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno or '?'} is not Python: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise ValueError("nested too deeply") from None
    names, attributes = _bindings(tree)
    alias = _aliases(tree)
    bound = {id(value): target.id for target, value in _assignments(tree) if isinstance(target, ast.Name)}
    calls = [
        Call(
            alias.get(_dotted(n.func), _dotted(n.func)),
            tuple(_value(a, names) for a in n.args),
            {k: v for keyword in n.keywords for k, v in _keyword(keyword, names)},
            bound.get(id(n), ""),
        )
        for n in ast.walk(tree)
        if isinstance(n, ast.Call)
    ]
    imported = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    imported += [f"{n.module or ''}.{a.name}" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names]
    return tuple(calls), tuple(imported), attributes


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Other names of imported things, and names of classes that inherit from one thing only."""
    out: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            out |= {a.asname: a.name for a in node.names if a.asname}
        elif isinstance(node, ast.ClassDef) and len(node.bases) == 1:
            base = _dotted(node.bases[0])
            out[node.name] = out.get(base, base)
    return out


def _assignments(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield node.target, node.value


def _bindings(tree: ast.AST) -> tuple[dict[str, Any], dict[str, Any]]:
    """({name: value}, {name.attribute: value}); what is bound more than once, in a loop or in place is Unresolved."""
    names: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    for target, value in _assignments(tree):
        table = names if isinstance(target, ast.Name) else attributes
        key = _dotted(target)
        table[key] = Unresolved(f"{key} is bound more than once") if key in table else _value(value, names)
    for node in ast.walk(tree):
        if isinstance(node, (ast.AugAssign, ast.For)):
            key = _dotted(node.target)
            (names if isinstance(node.target, ast.Name) else attributes)[key] = Unresolved(
                f"{key} is bound more than once"
            )
    return names, attributes


def _keyword(keyword: ast.keyword, names: dict[str, Any]) -> list[tuple[str, Any]]:
    value = _value(keyword.value, names)
    if keyword.arg is not None:
        return [(keyword.arg, value)]
    return list(value.items()) if isinstance(value, dict) else [("**", Unresolved(ast.unparse(keyword.value)))]


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id, Unresolved(node.id))
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(item, names) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [_value(k, names) if k is not None else Unresolved("**") for k in node.keys]
        return {str(k): _value(v, names) for k, v in zip(keys, node.values, strict=True)}
    if isinstance(node, ast.Call) and _dotted(node.func) == "dict" and not node.args:
        return {k: v for keyword in node.keywords for k, v in _keyword(keyword, names)}
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return _arithmetic(node, _value(node.left, names), _value(node.right, names))
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return Unresolved(ast.unparse(node))


def _arithmetic(node: ast.BinOp, left: Any, right: Any) -> Any:
    small = all(isinstance(x, (int, float)) and abs(x) < LARGE for x in (left, right))
    by_zero = right == 0 and isinstance(node.op, (ast.Div, ast.FloorDiv))
    return OPERATORS[type(node.op)](left, right) if small and not by_zero else Unresolved(ast.unparse(node))
