"""The exact-number rule: the last "Answer:" line must hold one number, equal to the gold answer as a fraction.

Stricter and fairer than the reference rule on plain numbers: `Answer: 540.`, `**Answer:** 540`, `540.0` and a Unicode
minus are understood, `Answer: 541 = 540` is wrong. Numbers compare exactly, at any length; nothing is evaluated.
"""

import re
from fractions import Fraction

from dapo.types import Problem, Score

ANSWER = re.compile(r"(?i)answer\W*?[:：]([^\n]*)")
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:/\d+)?")
MAX_DIGITS = 4000  # Python's own limit for converting text to an integer is 4300


def parse(text: str) -> Fraction | None:
    """The number that `text` is, apart from emphasis, dollar signs, thousands separators and a final full stop."""
    text = text.replace("−", "-").strip("*$ \t\r\n").removesuffix(".").strip("*$ ")
    if re.fullmatch(r"[+-]?\d{1,3}(?:(,\d{3})+|( \d{3})+)(\.\d+)?", text):
        text = text.replace(",", "").replace(" ", "")
    if len(text) > MAX_DIGITS or not NUMBER.fullmatch(text) or text.isascii() is False:
        return None
    numerator, _, denominator = text.partition("/")
    if denominator and ("." in numerator or int(denominator) == 0):
        return None
    return Fraction(numerator) / int(denominator or 1)


def grade(problem: Problem, text: str) -> Score:
    """Correct if the last "Answer:" line holds exactly the gold number."""
    lines = ANSWER.findall(text)
    if not lines:
        return Score("incorrect", None, "no 'Answer:'")
    extracted, gold = parse(lines[-1]), parse(problem.answer)
    if gold is None:
        return Score("ungraded", None, f"the gold answer {problem.answer!r} is not a number")
    if extracted is None:
        return Score("incorrect", lines[-1].strip(), "the last 'Answer:' is not one number")
    return Score("correct" if extracted == gold else "incorrect", str(extracted), f"{extracted} against {gold}")
