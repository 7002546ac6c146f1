"""Problems from `arithmetic:TASK[=COUNT][+...]`, JSONL or parquet; plain {problem, answer} or the DAPO-Math-17k schema.

Every fault of a row is an error that names the file, the row and the fix; nothing is dropped without being counted.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dapo.data import arithmetic
from dapo.types import Problem


@dataclass(frozen=True)
class Loaded:
    """Problems in the order of their source, the fingerprint of that source, and how many duplicates were dropped."""

    problems: tuple[Problem, ...]
    fingerprint: str
    dropped_duplicates: int = 0


@dataclass(frozen=True)
class Fields:
    """Where a row keeps its problem and answer; a dot goes into a nested field, as in reward_model.ground_truth."""

    problem: str = "problem"
    answer: str = "answer"


def load_problems(source: str, split: arithmetic.Split, size: int, seed: int, fields: Fields, drop: bool) -> Loaded:
    """All problems of a source; of each generated task its COUNT, or `size`. `drop` leaves out repeated problems.

    Errors: ValueError naming data.source, the row and the fix: no such file, no rows, a field missing, an answer empty,
    one problem with two different answers, text that is not UTF-8 or has NUL or lone surrogates.
    """
    if source.startswith("arithmetic:"):
        problems = []
        for part in source.removeprefix("arithmetic:").split("+"):
            task, _, count = part.partition("=")
            if count and not count.isdigit():
                raise ValueError(f"data.source = {source!r}: {part!r} should be TASK or TASK=COUNT")
            problems += arithmetic.generate(task, split, int(count or size), seed)
    else:
        problems = list(_from_file(Path(source), fields))
    if not problems:
        raise ValueError(f"data.source = {source!r} has no problems; give a file with at least one row")
    kept, dropped = _check_duplicates(problems, source, drop)
    return Loaded(tuple(kept), fingerprint(kept), dropped)


def fingerprint(problems: list[Problem] | tuple[Problem, ...]) -> str:
    """SHA-256 over the ids, texts and answers, in order."""
    digest = hashlib.sha256()
    for p in problems:
        digest.update(json.dumps([p.id, p.text, p.answer]).encode())
    return digest.hexdigest()


def _check_duplicates(problems: list[Problem], source: str, drop: bool) -> tuple[list[Problem], int]:
    first: dict[str, Problem] = {}
    kept = []
    for p in problems:
        earlier = first.setdefault(p.text, p)
        if earlier.answer != p.answer:
            raise ValueError(
                f"data.source = {source!r}: {earlier.id} and {p.id} are the same problem with different answers, "
                f"{earlier.answer!r} and {p.answer!r}; correct or remove one of them"
            )
        if earlier is p or not drop:
            kept.append(p)
    ids = Counter(p.id for p in kept)
    seen: Counter[str] = Counter()
    unique = []
    for p in kept:
        seen[p.id] += 1
        unique.append(replace(p, id=f"{p.id}#{seen[p.id]}") if ids[p.id] > 1 else p)
    return unique, len(problems) - len(kept)


def _from_file(path: Path, fields: Fields) -> Iterator[Problem]:
    if not path.is_file():
        raise ValueError(
            f"data.source = {str(path)!r} is not a file; give a .jsonl or .parquet file, or arithmetic:TASK with one of "
            f"{', '.join(sorted(arithmetic.TASKS))}"
        )
    rows = {".jsonl": jsonl_rows, ".parquet": _parquet_rows}.get(path.suffix)
    if rows is None:
        raise ValueError(f"data.source = {str(path)!r}: {path.suffix or 'no'} suffix is not .jsonl or .parquet")
    for number, row in rows(path):
        yield _problem(row, fields, f"{path.name}:{number}")


def jsonl_rows(path: Path, key: str = "data.source: ") -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line that is not blank; a byte order mark is no data.

    Errors: ValueError naming file and line, after `key`, if it is not UTF-8, not JSON, or no JSON object.
    """
    for number, raw in enumerate(path.read_bytes().split(b"\n"), start=1):
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if not raw.strip():
            continue
        try:
            row = json.loads(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ValueError(f"{key}{path.name}, line {number} is not UTF-8 ({error.reason})") from None
        except json.JSONDecodeError as error:
            raise ValueError(f"{key}{path.name}, line {number} is not JSON ({error.msg})") from None
        if not isinstance(row, dict):
            raise ValueError(f"{key}{path.name}, line {number} is not a JSON object")
        yield number, row


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    for batch in pq.ParquetFile(path).iter_batches(batch_size=4096):
        for row in batch.to_pylist():
            number += 1
            yield number, row


def _dig(row: dict[str, Any], field: str) -> Any:
    value: Any = row
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _problem(row: dict[str, Any], fields: Fields, where: str) -> Problem:
    text = _dig(row, fields.problem)
    answer = _dig(row, fields.answer)
    if text is None and isinstance(row.get("prompt"), list):  # DAPO-Math-17k: the user's turn is the whole prompt
        text = "\n".join(turn.get("content", "") for turn in row["prompt"] if turn.get("role") == "user")
    if answer is None:
        answer = _dig(row, "reward_model.ground_truth")
    for key, field, value in (("problem_field", fields.problem, text), ("answer_field", fields.answer, answer)):
        if value is None:
            raise ValueError(f"data.source: {where} has no field {field!r}; set data.{key} to one of {sorted(row)}")
        if not str(value).strip():
            raise ValueError(f"data.source: {where} has an empty {field!r}; fill it in or remove the row")
    for value in (str(text), str(answer)):
        if "\x00" in value or any(0xD800 <= ord(c) < 0xE000 for c in value):
            raise ValueError(f"data.source: {where} holds a NUL or a lone surrogate; remove it from the row")
    return Problem(
        id=str(row.get("id") or where),
        text=str(text),
        answer=str(answer),
        family=str(row.get("source") or row.get("data_source") or Path(where).stem),
        cluster=str(text),
    )
