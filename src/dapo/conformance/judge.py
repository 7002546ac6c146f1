"""A run's record against an algorithm's clauses, and the sentence that follows from it."""

from dataclasses import asdict, dataclass
from typing import Any

from dapo.conformance.evidence import Evidence
from dapo.conformance.learning import UNRECORDED
from dapo.conformance.spec import SPECS, Clause


@dataclass(frozen=True)
class Finding:
    """One clause, judged."""

    clause: Clause
    verdict: str
    evidence: str


@dataclass(frozen=True)
class Judgement:
    """All clauses of one algorithm over one run. `conforms`: the run may bear the algorithm's name."""

    algorithm: str
    findings: tuple[Finding, ...]
    conforms: bool
    sentence: str

    def as_json(self) -> dict[str, Any]:
        clauses = []
        for f in self.findings:
            fields = asdict(f.clause)
            del fields["judge"]
            clauses.append({**fields, "verdict": f.verdict, "evidence": f.evidence})
        return {"algorithm": self.algorithm, "conforms": self.conforms, "sentence": self.sentence, "clauses": clauses}


def judge(evidence: Evidence, algorithm: str) -> Judgement:
    """Errors: ValueError if the algorithm is unknown or the run has no step."""
    if algorithm not in SPECS:
        raise ValueError(f"--claim {algorithm!r} is unknown; use one of {', '.join(SPECS)}")
    if not evidence.steps:
        raise ValueError(f"{evidence.path} has no complete step yet: there is nothing to judge")
    findings = tuple(Finding(clause, *clause.judge(evidence)) for clause in SPECS[algorithm])
    base = evidence.recipe.known_as or evidence.recipe.algo.base.upper()
    return Judgement(algorithm, findings, *_conclude(algorithm.upper(), findings, base))


def judge_all(evidence: Evidence, claim: str | None = None) -> tuple[Judgement, tuple[Judgement, ...]]:
    """(the judgement on `claim`, or on the base of the recipe; those on the other algorithms)."""
    first = judge(evidence, claim or evidence.recipe.algo.base)
    return first, tuple(judge(evidence, name) for name in SPECS if name != first.algorithm)


def _parts(findings: list[Finding]) -> str:
    return ", ".join(f"{f.clause.part} ({f.clause.number})" for f in findings)


def _conclude(name: str, findings: tuple[Finding, ...], base: str) -> tuple[bool, str]:
    broken = [f for f in findings if f.verdict == "fail" and f.clause.core]
    departures = [f for f in findings if f.verdict == "fail" and not f.clause.core]
    unseen = [f for f in findings if f.verdict == "not shown"]
    missing = [f for f in unseen if f.clause.core and (not f.clause.occasional or f.evidence.startswith(UNRECORDED))]
    tail = f"; not shown: {_parts(unseen)}" if unseen else ""
    if broken:
        return False, f"not {name} (base: {base}): it lacks {_parts(broken)}{tail}"
    if missing:
        return False, f"not shown to be {name} (base: {base}): the record has no evidence of {_parts(missing)}"
    if departures:
        return True, f"{name} with named departures: {_parts(departures)}{tail}"
    return True, f"{name}{tail}"
