"""Shell scripts by a tokenizer: words, literal variables and arrays, arithmetic. Nothing is run.

What needs running (command substitution, positional arguments, variables of the environment without a default, whatever
a branch or a loop decides) is marked with MARK, and becomes Unresolved. Redirections, comments and here-documents are
left out.
"""

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field

MARK = "\ue000"  # stands in text that could not be resolved
NAME = re.compile(r"[A-Za-z_]\w*")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
REDIRECTION = re.compile(r"\d*(?:&>>?|>>|>&|>\||>|<&|<<<|<>|<)\s*")
HEREDOC = re.compile(r"\d*<<-?\s*(['\"]?)(\w+)\1")
OPENING, CLOSING = {"if", "for", "while", "until", "case", "select"}, {"fi", "done", "esac"}
GOES_ON = {"then", "else", "elif", "do", "{", "}", "!", "time", "if", "while", "until", "fi", "done", "esac", "export", "local",
           "declare", "readonly", "typeset"}  # fmt: skip
BLANKS, SEPARATORS = " \t\r", "\n;&|()"
BUDGET = 1_000_000  # characters that substitution may produce


@dataclass
class Script:
    """The commands of a script as words, after substitution, with the variables as they stand in the end."""

    commands: list[list[str]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)


def parse(text: str) -> Script:
    """Errors: ValueError for a quote or a bracket that is never closed, and for text that grows beyond BUDGET."""
    script = Script()
    _Parser(text, script).run()
    return script


class _Parser:
    """Reads one script from left to right, with the variables known so far."""

    def __init__(self, text: str, script: Script) -> None:
        self._text, self._script = text, script
        self._at = self._depth = self._spent = 0
        self._perhaps = False  # behind && or ||
        self._endings: list[str] = []  # of here-documents that begin at the next line
        self._locals: list[dict[str, str | None]] = []  # what functions' local variables hid

    def run(self) -> None:
        words: list[str] = []
        while self._at < len(self._text):
            if self._skip():
                continue
            if self._text[self._at] in SEPARATORS:
                self._finish(words)
                words = []
                self._separator()
            elif not words and (found := ASSIGNMENT.match(self._text, self._at)):
                self._assign(found)
            else:
                words = self._read_on(words)
        self._finish(words)

    def _read_on(self, words: list[str]) -> list[str]:
        """The words of a command with the next one; a keyword begins a new command behind it."""
        start = self._at
        found = self._word()
        if words or self._text[start : self._at] not in GOES_ON:
            return words + found
        keyword = found[0]
        self._depth += (keyword in OPENING) - (keyword in CLOSING)
        if keyword in ("local", "declare", "typeset") and self._locals:
            assignment = ASSIGNMENT.match(self._text, self._after_blanks())
            if assignment:
                self._locals[-1].setdefault(assignment[1], self._script.variables.get(assignment[1]))
        if keyword == "{":
            self._locals.append({})
        if keyword == "}" and self._locals:
            for name, value in self._locals.pop().items():
                self._script.variables.pop(name, None)
                self._script.variables |= {} if value is None else {name: value}
        return []

    def _after_blanks(self) -> int:
        at = self._at
        while at < len(self._text) and self._text[at] in BLANKS:
            at += 1
        return at

    def _skip(self) -> bool:
        """Blanks, continued lines, comments, redirections, here-documents."""
        if self._text[self._at] in BLANKS:
            self._at += 1
            return True
        if self._text.startswith(("\\\n", "\\\r\n"), self._at):
            self._at = self._text.index("\n", self._at) + 1
            return True
        if self._text[self._at] == "#":
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end
            return True
        return self._skip_redirection()

    def _skip_redirection(self) -> bool:
        heredoc = HEREDOC.match(self._text, self._at)
        if heredoc:
            self._endings.append(heredoc[2])
            self._at = heredoc.end()
            return True
        found = REDIRECTION.match(self._text, self._at)
        if not found:
            return False
        self._at = found.end()
        if self._at < len(self._text) and self._text[self._at] == "(":  # process substitution
            self._at += 1
            self._balanced()
        elif self._at < len(self._text) and self._text[self._at] not in SEPARATORS:
            self._word()
        return True

    def _separator(self) -> None:
        char = self._text[self._at]
        double = char in "&|" and self._text.startswith(char * 2, self._at)
        self._perhaps = double or (self._perhaps and char not in "\n;")
        self._at += 1 + double
        if char == "\n":
            for ending in self._endings:
                self._skip_lines(ending)
            self._endings = []

    def _skip_lines(self, ending: str) -> None:
        while self._at < len(self._text):
            end = self._text.find("\n", self._at)
            end = len(self._text) if end < 0 else end
            line = self._text[self._at : end]
            self._at = min(end + 1, len(self._text))
            if line.strip() == ending:
                return

    def _finish(self, words: list[str]) -> None:
        if not words:
            return
        self._depth += words[0] in OPENING
        if words[0] in ("for", "select") and len(words) > 1:
            self._script.variables[words[1]] = f"{MARK}${words[1]}"
            return
        self._script.commands.append(words)
        if words[0] == "eval":
            self._run_inside(" ".join(words[1:]))
        shells = [
            i for i, w in enumerate(words[:-2]) if w.rpartition("/")[2] in ("bash", "sh") and words[i + 1].endswith("c")
        ]
        if shells and words[shells[0] + 1].startswith("-"):
            self._run_inside(words[shells[0] + 2])

    def _run_inside(self, text: str) -> None:
        """A script within a word: bash -c "...". One that runs itself ends in a RecursionError, which `read` reports."""
        _Parser(text, self._script).run()

    def _assign(self, found: re.Match[str]) -> None:
        name, plus = found.groups()
        self._at = found.end()
        branch = self._depth > 0 or self._perhaps
        if self._text.startswith("(", self._at):
            self._at += 1
            items = [f"{item}{MARK}" if branch else item for item in self._items()]
            self._script.arrays[name] = (self._script.arrays.get(name, []) if plus or branch else []) + items
            return
        here = self._text[self._at : self._at + 1]
        value = "" if here == "" or here in BLANKS + SEPARATORS else " ".join(self._word())
        before = self._script.variables.get(name)
        value = (before or "") + value if plus else value
        if branch and value != before:
            value = f"{MARK}${name}"  # a branch or a loop decides
        self._script.variables[name] = self._emit(value)

    def _items(self) -> list[str]:
        items: list[str] = []
        while self._at < len(self._text):
            if self._text[self._at] == ")":
                self._at += 1
                return items
            if self._text[self._at] in SEPARATORS:
                self._at += 1
            elif not self._skip():
                items += self._word()
        raise ValueError("an array's bracket is never closed")

    def _emit(self, text: str) -> str:
        self._spent += len(text) + 1
        if self._spent > BUDGET:
            raise ValueError(f"its variables grow beyond {BUDGET} characters")
        return text

    def _word(self) -> list[str]:
        """One word, after substitution; arrays and unquoted variables with blanks give several."""
        start = self._at
        out, quote, quoted = [""], "", False
        while self._at < len(self._text):
            char = self._text[self._at]
            if not quote and (char in BLANKS or char in SEPARATORS or char in "<>"):
                break
            self._at += 1
            if char in "'\"" and quote in ("", char):
                quote, quoted = "" if quote else char, True
            elif quote == "'":
                out[-1] += char
            else:
                self._expand(char, out, bool(quote))
        if quote:
            raise ValueError(f"a quote is never closed, near {self._text[start : start + 40]!r}")
        return [self._emit(word) for word in out if word] or ([""] if quoted else [])

    def _expand(self, char: str, out: list[str], quoted: bool) -> None:
        """A character outside single quotes, with what it introduces."""
        if char == "\\" and self._at < len(self._text):
            out[-1] += self._text[self._at].strip("\n")
            self._at += 1
        elif char == "`":
            out[-1] += MARK + self._until("`", "`")
        elif char == "$":
            self._dollar(out, quoted)
        else:
            out[-1] += char

    def _dollar(self, out: list[str], quoted: bool) -> None:
        if not quoted and self._text.startswith(("'", '"'), self._at):
            return  # $'...' and $"...": the quote itself follows
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
            self._braced(self._balanced("{", "}"), out, quoted)
            return
        found = NAME.match(self._text, self._at)
        if found:
            self._at = found.end()
            self._put(self._value(found[0]), out, quoted)
            return
        out[-1] += f"{MARK}${self._text[self._at : self._at + 1]}"  # $1, $@, $?
        self._at += 1

    def _put(self, value: str, out: list[str], quoted: bool) -> None:
        """A variable's value; unquoted, it is split at blanks."""
        pieces = [value] if quoted else value.split() or [""]
        out[-1] += self._emit(pieces[0])
        out += [self._emit(piece) for piece in pieces[1:]]

    def _until(self, end: str, what: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise ValueError(f"{what} is never closed")
        inside = self._text[self._at : stop]
        self._at = stop + len(end)
        return inside

    def _balanced(self, opening: str = "(", closing: str = ")") -> str:
        start, level = self._at, 1
        while self._at < len(self._text):
            level += {opening: 1, closing: -1}.get(self._text[self._at], 0)
            self._at += 1
            if level == 0:
                return self._text[start : self._at - 1]
        raise ValueError(f"${opening} is never closed")

    def _value(self, name: str) -> str:
        if name in self._script.arrays:
            return (self._script.arrays[name] or [""])[0]
        return self._script.variables.get(name, f"{MARK}${name}")

    def _braced(self, inside: str, out: list[str], quoted: bool) -> None:
        if array := re.fullmatch(r"(\w+)\[[@*]\]", inside):
            items = self._script.arrays.get(array[1], [f"{MARK}${{{inside}}}"])
            out[-1] += self._emit(items[0]) if items else ""
            out += [self._emit(item) for item in items[1:]]
        elif NAME.fullmatch(inside):
            self._put(self._value(inside), out, quoted)
        elif default := re.fullmatch(r"([A-Za-z_]\w*)(:?)[-=](.*)", inside, re.S):
            known = self._script.variables.get(default[1])
            empty = known is None or (default[2] and not known)
            self._put("".join(_Parser(f'"{default[3]}"', self._script)._word()) if empty else known or "", out, quoted)
        else:
            out[-1] += f"{MARK}${{{inside}}}"

    def _arithmetic(self, expression: str) -> str:
        named = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda found: self._value(found[1]), expression)
        try:
            return str(_integer(ast.parse(named.strip()[:200], mode="eval").body))
        except (ValueError, SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
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
