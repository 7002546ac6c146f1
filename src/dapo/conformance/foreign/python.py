"""Python files by their syntax tree: calls with literal arguments, names bound to literals. Nothing is run."""

import ast
import operator
from collections.abc import Callable
from typing import Any

from dapo.conformance.foreign.config import Call, Unresolved

OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def read_python(text: str) -> tuple[tuple[Call, ...], tuple[str, ...]]:
    """(all calls, all imported modules). Errors: ValueError if it is not Python."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno} is not Python: {error.msg}") from None
    names = _names(tree)
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    calls = [
        Call(
            _dotted(n.func),
            tuple(_value(a, names) for a in n.args),
            {k: v for keyword in n.keywords for k, v in _keyword(keyword, names)},
        )
        for n in nodes
    ]
    imported = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    imported += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    return tuple(calls), tuple(imported)


def _names(tree: ast.AST) -> dict[str, Any]:
    """Names that are bound once, to a literal; a name bound twice is Unresolved."""
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        for target in targets:
            if isinstance(target, ast.Name) and value is not None:
                name = target.id
                names[name] = Unresolved(f"{name} is bound more than once") if name in names else _value(value, names)
    return names


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
    if isinstance(node, ast.Call):
        return Unresolved(ast.unparse(node))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _value(node.left, names), _value(node.right, names)
        by_zero = right == 0 and isinstance(node.op, (ast.Div, ast.FloorDiv))
        if isinstance(left, (int, float)) and isinstance(right, (int, float)) and not by_zero:
            return OPERATORS[type(node.op)](left, right)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return Unresolved(ast.unparse(node))
