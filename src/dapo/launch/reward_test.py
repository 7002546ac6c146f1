"""Grade the replies of a file and say why: for people whose scores are all 0."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dapo.data.sources import jsonl_rows
from dapo.rewards.verifier import make_verifier
from dapo.types import Problem, Score

REPLY, GOLD = ("response", "text", "completion"), ("gold", "answer")


def _cases(path: Path) -> Iterator[tuple[int, Problem, str]]:
    """(line number, problem, reply) of each line. Errors: ValueError naming file, line and field."""
    for number, row in jsonl_rows(path, key=""):
        reply, gold = (next((str(row[k]) for k in names if row.get(k) is not None), None) for names in (REPLY, GOLD))
        if reply is None or gold is None:
            missing = REPLY if reply is None else GOLD
            raise ValueError(
                f"{path.name}, line {number} has none of the fields {', '.join(missing)}; it has {sorted(row)}"
            )
        yield number, Problem(str(row.get("id", number)), str(row.get("problem", "")), gold), reply


def grade_file(verifier_name: str, path: Path, time_limit_s: float) -> list[dict[str, Any]]:
    """Line, gold answer, extracted answer, outcome, why and value for each line of `path`, graded one by one.

    Errors: ValueError for a bad line, an empty file or an unknown verifier; OSError if the file cannot be read.
    """
    cases = list(_cases(path))
    if not cases:
        raise ValueError(f'{path} has no lines; each should be like {{"gold": "4", "response": "Answer: 4"}}')
    verifier = make_verifier(verifier_name, time_limit_s)
    try:
        verifier.start()
        return [
            _verdict(number, problem, verifier.submit(problem, [text]).result()[0]) for number, problem, text in cases
        ]
    finally:
        verifier.close()


def _verdict(number: int, problem: Problem, score: Score) -> dict[str, Any]:
    return {
        "line": number,
        "gold": problem.answer,
        "extracted": score.extracted,
        "outcome": score.outcome,
        "why": score.why,
        "value": score.value,
    }
