r"""The reference verifier of DAPO (`math_dapo`), as its rule is described in ALGORITHMS.md section 2.

The last 300 characters; the last match of `(?i)Answer\s*:\s*([^\n]+)`; Minerva normalisation of both sides; equality of
strings. Its known false negatives (`Answer: 540.`, `**Answer:** 540`) and false positive (`Answer: 541 = 540`) are kept,
so that runs compare with published ones. Time is linear in 300 characters: it needs no process of its own.
"""

import re

from dapo.types import Problem, Score

TAIL = 300
ANSWER = re.compile(r"(?i)Answer\s*:\s*([^\n]+)")

_REPLACED = (
    ("an ", ""), ("a ", ""), (".$", "$"), ("\\$", ""), (r"\ ", ""), (" ", ""), ("mbox", "text"), (",\\text{and}", ","),
    ("\\text{and}", ","), ("\\text{m}", "\\text{}"),
)  # fmt: skip
_REMOVED = (
    "square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", "\\ldots", "sue", "points",
    "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students",
    "childrentickets", "multiples", "\\text{s}", "\\text{.}", "\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}",
    "\\text{}", r"\mathrm{th}", r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', "\\dots",
)  # fmt: skip
_UNWRAPPED = (
    (re.compile(r"(.*?)(\$)(.*?)(\$)(.*)"), "$\\3$"),
    (re.compile(r"(\\text\{)(.*?)(\})"), "\\2"),
    (re.compile(r"(\\textbf\{)(.*?)(\})"), "\\2"),
    (re.compile(r"(\\overline\{)(.*?)(\})"), "\\2"),
    (re.compile(r"(\\boxed\{)(.*)(\})"), "\\2"),
    (re.compile(r"(frac)([^{])(.)"), "frac{\\2}{\\3}"),
    (re.compile(r"(sqrt)([^{])"), "sqrt{\\2}"),
)


def normalise(answer: str) -> str:
    """Minerva's normal form of a final answer (Lewkowycz et al. 2022, appendix D.1)."""
    answer = answer.split("=")[-1]
    for old, new in _REPLACED:
        answer = answer.replace(old, new)
    for old in _REMOVED:
        answer = answer.replace(old, "")
    for pattern, new in _UNWRAPPED:
        answer = pattern.sub(new, answer)
    answer = answer.replace("$", "")
    if answer.replace(",", "").isdigit():
        answer = answer.replace(",", "")
    return answer.strip()


def grade(problem: Problem, text: str) -> Score:
    """Correct if the normal forms of the last "Answer:" in the tail and of the problem's answer are the same string."""
    matches = ANSWER.findall(text[-TAIL:])
    if not matches:
        return Score("incorrect", None, f"no 'Answer:' in the last {TAIL} characters")
    extracted, gold = normalise(matches[-1]), normalise(problem.answer)
    if extracted == gold:
        return Score("correct", extracted, "equal after normalisation")
    return Score("incorrect", extracted, f"{extracted!r} is not {gold!r}")
