"""Generated arithmetic problems: endless, checkable, and with a held-out split that training can never see.

The held-out split of a worded task is decided by the operation and the *unordered* operands, so that no wording and no
order of the same numbers leaks from one split into the other. That of chains is decided by the whole expression.
"""

import hashlib
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Literal

from dapo.types import Problem

Split = Literal["train", "held-out"]

NAMES = ("Tom", "Anna", "Omar", "Mei", "Luis", "Sara", "Ivan", "Ruth")
THINGS = ("apples", "books", "coins", "stamps", "shells", "cards", "pens", "marbles")
WORDINGS = {
    "+": (
        "What is {a} plus {b}?",
        "Add {a} and {b}.",
        "Find the sum of {a} and {b}.",
        "{n} has {a} {o} and gets {b} more. How many {o} does {n} have now?",
        "There are {a} red {o} and {b} blue {o}. How many {o} are there?",
        "One box holds {a} {o}, another holds {b}. How many {o} do they hold together?",
    ),
    "-": (
        "What is {a} minus {b}?",
        "What is left of {a} when {b} is taken away?",
        "Find the difference: {a} minus {b}.",
        "{n} has {a} {o} and gives away {b}. How many {o} are left?",
        "{n} had {a} {o} and lost {b}. How many {o} are left?",
        "There were {a} {o} and {b} were sold. How many {o} are left?",
        "{n} needs {a} {o} and has {b}. How many more {o} does {n} need?",
        "Of {a} {o}, {b} are red and the others blue. How many {o} are blue?",
    ),
    "*": (
        "What is {a} times {b}?",
        "Multiply {a} by {b}.",
        "Find the product of {a} and {b}.",
        "There are {a} boxes with {b} {o} in each. How many {o} are there?",
        "{n} buys {a} bags of {b} {o}. How many {o} does {n} buy?",
    ),
}
APPLY: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


def held_out(key: str, percent: int) -> bool:
    """True for a fixed pseudo-random `percent` of all keys, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") % 100 < percent


def _pair_key(op: str, a: int, b: int) -> str:
    return f"{op} {min(a, b)} {max(a, b)}"


def _worded(family: str, op: str, a: int, b: int, wording: int, rng: random.Random) -> Problem:
    text = WORDINGS[op][wording].format(a=a, b=b, n=rng.choice(NAMES), o=rng.choice(THINGS))
    key = _pair_key(op, a, b)
    return Problem(
        id=f"{family}:{a}{op}{b}:{wording}", text=text, answer=str(APPLY[op](a, b)), family=family, cluster=key
    )


def one_digit(split: Split, rng: random.Random) -> Iterator[Problem]:
    """Sums, differences (never negative) and products of the digits 1 to 9, in words; 20 % of the pairs are held out."""
    cells = []
    for op, a, b in itertools.product("+-*", range(1, 10), range(1, 10)):
        if (op != "-" or a >= b) and held_out(_pair_key(op, a, b), 20) == (split == "held-out"):
            cells.append((op, a, b))
    yield from _each_wording("one_digit", cells, rng)


def two_digit_sum(split: Split, rng: random.Random) -> Iterator[Problem]:
    """Sums of two-digit numbers, in words; 10 % of the pairs are held out."""
    cells = [
        ("+", a, b)
        for a, b in itertools.product(range(10, 100), repeat=2)
        if held_out(_pair_key("+", a, b), 10) == (split == "held-out")
    ]
    yield from _each_wording("two_digit_sum", cells, rng)


def _each_wording(family: str, cells: list[tuple[str, int, int]], rng: random.Random) -> Iterator[Problem]:
    """Every cell once in a random wording, then every cell once in another, until all wordings are used."""
    orders = [rng.sample(range(len(WORDINGS[op])), len(WORDINGS[op])) for op, _, _ in cells]
    for turn in range(max(map(len, orders))):
        for i in rng.sample(range(len(cells)), len(cells)):
            if turn < len(orders[i]):
                op, a, b = cells[i]
                yield _worded(family, op, a, b, orders[i][turn], rng)


def chain(split: Split, rng: random.Random) -> Iterator[Problem]:
    """Sums and differences of 2 to 7 digits, such as 7+5-3+8, never below 0 on the way; 5 % are held out."""
    while True:
        value = rng.randint(1, 9)
        expression = str(value)
        for _ in range(rng.randint(1, 6)):
            digit = rng.randint(1, 9)
            sign = "-" if digit <= value and rng.random() < 0.5 else "+"
            value = APPLY[sign](value, digit)
            expression += f"{sign}{digit}"
        if held_out(f"chain {expression}", 5) == (split == "held-out"):
            yield Problem(
                id=f"chain:{expression}", text=expression, answer=str(value), family="chain", cluster=expression
            )


TASKS: dict[str, Callable[[Split, random.Random], Iterator[Problem]]] = {
    "one_digit": one_digit,
    "two_digit_sum": two_digit_sum,
    "chain": chain,
}


def generate(task: str, split: Split, count: int, seed: int) -> list[Problem]:
    """The first `count` distinct problems of `task` (all of them, if the task has fewer).

    Errors: ValueError if the task is unknown; it names the tasks there are.
    """
    if task not in TASKS:
        raise ValueError(f"unknown arithmetic task {task!r}; known: {', '.join(sorted(TASKS))}")
    rng = random.Random(f"{task} {split} {seed}")
    found: dict[str, Problem] = {}
    for problem in TASKS[task](split, rng):
        found.setdefault(problem.id, problem)
        if len(found) >= count:
            break
    return list(found.values())
