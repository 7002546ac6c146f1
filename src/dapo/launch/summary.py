"""The end of a run, for a person: accuracy before and after, the fate of every token, what the run was, replies."""

import json
from pathlib import Path

from rich.console import Console

from dapo.conformance.evidence import Evidence
from dapo.conformance.judge import judge_all
from dapo.conformance.show import print_judgement
from dapo.launch.console import evaluation_table, ledger_table
from dapo.record.events import read_events, token_fates


def _replies(run: Path, step: int) -> dict[tuple[str, str], dict[str, str]]:
    path = run / "eval" / f"step-{step:06d}.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    return {(row["suite"], row["id"]): {**row, **row["replies"][0]} for row in rows}


def print_samples(console: Console, run: Path, last: int, per_suite: int = 3) -> None:
    """First replies to the first held-out problems of each suite, before and after: not chosen by outcome."""
    before, after = _replies(run, 0), _replies(run, last)
    for suite in dict.fromkeys(s for s, _ in after):
        for key in [k for k in after if k[0] == suite and k in before][:per_suite]:
            console.print(f"  {after[key]['problem']}  (answer {after[key]['answer']})", markup=False, highlight=False)
            for name, row in (("before", before[key]), ("after", after[key])):
                console.print(
                    f"    {name:>6} {row['outcome']:>9}: {row['text'][:120]!r}", markup=False, highlight=False
                )


def print_summary(console: Console, run: Path) -> None:
    """Everything a newcomer wants to know when a run has ended; reads only the run directory."""
    events = read_events(run / "events.jsonl")
    evaluations = {e["step"]: e["suites"] for e in events if e["kind"] == "eval"}
    steps = [e["step"] for e in events if e["kind"] == "step"]
    console.print()
    if evaluations and max(evaluations) > 0:
        console.print(evaluation_table(evaluations.get(0, []), evaluations[max(evaluations)]))
    console.print(ledger_table(token_fates(events)))
    if evaluations and max(evaluations) > 0:
        console.print("replies to held-out problems:", style="italic")
        print_samples(console, run, max(evaluations))
    if steps:
        console.print("\nwhat this run was (dapo check):", style="italic")
        print_judgement(console, *judge_all(Evidence(run)))
    console.print(f"run directory: {run}", highlight=False, soft_wrap=True)
    console.print(
        f"next: dapo check {run} --card; dapo eval {run} --k 16",
        markup=False,
        soft_wrap=True,
    )
