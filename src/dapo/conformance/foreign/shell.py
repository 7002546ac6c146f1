"""Shell scripts by a tokenizer: words, literal variables and arrays, arithmetic. Nothing is run.

What needs running (command substitution, variables of the environment, a variable that a branch or loop sets differently)
is marked, and becomes Unresolved. Left out: functions' arguments, globs, process substitution.
"""

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field

MARK = "\ue000"  # stands before text that could not be resolved
NAME = re.compile(r"[A-Za-z_]\w*")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
OPENING, CLOSING = {"if", "for", "while", "until", "case"}, {"fi", "done", "esac"}
LIMIT = 100_000
SEPARATORS = "\n;&|"


@dataclass
class Script:
    """The commands of a script as words, after substitution; `variables` as they stand in the end."""

    commands: list[list[str]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)


def parse(text: str) -> Script:
    """Errors: ValueError for a quote or a bracket that is never closed."""
    return _Parser(text).run()


class _Parser:
    """Reads one script from left to right, with the variables known so far."""

    def __init__(self, text: str) -> None:
        self._text = re.sub(
            r"\\\r?\n", " ", re.sub(r"(?<!<)<<-?\s*['\"]?(\w+)['\"]?.*?\n\s*\1\s*?\n", "\n", text, flags=re.S)
        )
        self._at = 0
        self._depth = 0
        self._perhaps = False  # behind && or ||
        self._script = Script()

    def run(self) -> Script:
        words: list[str] = []
        while self._at < len(self._text):
            if self._skip_blank_and_comment():
                continue
            char = self._text[self._at]
            if char in SEPARATORS or char in "()":
                self._finish(words)
                words = []
                double = self._text.startswith((char * 2), self._at) and char in "&|"
                self._perhaps = double or (self._perhaps and char not in "\n;")
                self._at += 1 + double
            elif not words and (found := ASSIGNMENT.match(self._text, self._at)):
                self._assign(found)
            else:
                words += self._word()
                if words == ["export"] or (words and words[0] in ("local", "declare", "readonly") and len(words) == 1):
                    words = []
        self._finish(words)
        return self._script

    def _skip_blank_and_comment(self) -> bool:
        if self._text[self._at] in " \t\r":
            self._at += 1
            return True
        if self._text[self._at] == "#":
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end
            return True
        return False

    def _finish(self, words: list[str]) -> None:
        if not words:
            return
        self._depth += (words[0] in OPENING) - (words[0] in CLOSING)
        if words[0] == "for" and len(words) > 1:
            self._script.variables[words[1]] = f"{MARK}${words[1]}"
        elif words[0] in ("then", "else", "do", "elif") and len(words) > 1:
            self._script.commands.append(words[1:])
        elif words[0] not in ("then", "else", "do"):
            self._script.commands.append(words)

    def _assign(self, found: re.Match[str]) -> None:
        name, plus = found.groups()
        self._at = found.end()
        if self._at < len(self._text) and self._text[self._at] == "(":
            self._at += 1
            items = self._items()
            self._script.arrays[name] = (self._script.arrays.get(name, []) if plus else []) + items
            return
        ends = " \t\r\n;&|)"
        value = "" if self._at >= len(self._text) or self._text[self._at] in ends else "".join(self._word())
        before = self._script.variables.get(name)
        if plus:
            value = (before or "") + value
        if (self._depth > 0 or self._perhaps) and value != before:
            value = f"{MARK}${name}"  # a branch or a loop decides
        if len(value) > LIMIT:
            raise ValueError(f"the variable {name} is longer than {LIMIT} characters")
        self._script.variables[name] = value

    def _items(self) -> list[str]:
        items: list[str] = []
        while self._at < len(self._text):
            if self._text[self._at] == "\n" or self._skip_blank_and_comment():
                self._at += self._at < len(self._text) and self._text[self._at] == "\n"
                continue
            if self._text[self._at] == ")":
                self._at += 1
                return items
            items += self._word()
        raise ValueError("an array's bracket is never closed")

    def _word(self) -> list[str]:
        """One word, after substitution; an unquoted or quoted "${array[@]}" gives several."""
        start = self._at
        out, quote, quoted = [""], "", False
        while self._at < len(self._text):
            char = self._text[self._at]
            if not quote and (char in " \t\r()" or char in SEPARATORS):
                break
            self._at += 1
            if char in "'\"" and quote in ("", char):
                quote, quoted = "" if quote else char, True
            elif quote == "'":
                out[-1] += char
            else:
                self._expand(char, out)
        if quote:
            raise ValueError(f"a quote is never closed, near {self._text[start : start + 40]!r}")
        if self._at == start:
            self._at += 1  # a stray bracket
        return [word for word in out if word] or ([""] if quoted else [])

    def _expand(self, char: str, out: list[str]) -> None:
        """A character outside single quotes, with what it introduces."""
        if char == "\\" and self._at < len(self._text):
            out[-1] += self._text[self._at]
            self._at += 1
        elif char == "`":
            out[-1] += MARK + self._until("`", "`")
        elif char == "$":
            self._dollar(out)
        else:
            out[-1] += char

    def _dollar(self, out: list[str]) -> None:
        if self._text.startswith("((", self._at):
            self._at += 2
            out[-1] += self._arithmetic(self._until("))", "$(("))
            return
        if self._text.startswith("(", self._at):
            self._at += 1
            out[-1] += f"{MARK}$({self._balanced()})"
            return
        if self._text.startswith("{", self._at):
            self._at += 1
            self._braced(self._until("}", "${"), out)
            return
        found = NAME.match(self._text, self._at)
        if found:
            self._at = found.end()
            out[-1] += self._value(found[0])
            return
        out[-1] += f"{MARK}${self._text[self._at : self._at + 1]}"  # $1, $@, $?
        self._at += 1

    def _until(self, end: str, what: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise ValueError(f"{what} is never closed")
        inside = self._text[self._at : stop]
        self._at = stop + len(end)
        return inside

    def _balanced(self) -> str:
        start, level = self._at, 1
        while self._at < len(self._text):
            level += {"(": 1, ")": -1}.get(self._text[self._at], 0)
            self._at += 1
            if level == 0:
                return self._text[start : self._at - 1]
        raise ValueError("$( is never closed")

    def _value(self, name: str) -> str:
        if name in self._script.arrays:
            return (self._script.arrays[name] or [""])[0]
        return self._script.variables.get(name, f"{MARK}${name}")

    def _braced(self, inside: str, out: list[str]) -> None:
        if array := re.fullmatch(r"(\w+)\[[@*]\]", inside):
            items = self._script.arrays.get(array[1], [f"{MARK}${{{inside}}}"])
            out[-1] += items[0] if items else ""
            out += items[1:]
        elif NAME.fullmatch(inside):
            out[-1] += self._value(inside)
        elif default := re.fullmatch(r"(\w+):?[-=](.*)", inside, re.S):
            known = self._script.variables.get(default[1])
            given = _Parser(default[2] + " ")._with(self._script)._word() if default[2] else [""]
            out[-1] += known if known is not None else "".join(given)
        else:
            out[-1] += f"{MARK}${{{inside}}}"

    def _with(self, script: Script) -> "_Parser":
        self._script = script
        return self

    def _arithmetic(self, expression: str) -> str:
        named = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda found: self._value(found[1]), expression)
        try:
            return str(_integer(ast.parse(named.strip(), mode="eval").body))
        except (ValueError, SyntaxError, ZeroDivisionError, OverflowError):
            return f"{MARK}$(({expression}))"


OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip


def _integer(node: ast.expr) -> int:
    """An arithmetic expression of literals. Errors: ValueError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_integer(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_integer(node.left), _integer(node.right))
    raise ValueError("not arithmetic on integers")
