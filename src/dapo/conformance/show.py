"""Verdicts for a person: on a run, and on another system's configuration. Needs neither torch nor a run in this process."""

from collections.abc import Sequence

from rich.console import Console

from dapo.conformance.judge import Judgement

MARK = {"pass": "[green]pass[/green]", "fail": "[red]FAIL[/red]", "not shown": "[yellow]not shown[/yellow]"}


def print_judgement(console: Console, judgement: Judgement, others: Sequence[Judgement] = ()) -> None:
    """The clauses with their evidence, the verdict, and in a line each what the other algorithms would say."""
    for f in judgement.findings:
        mark = MARK[f.verdict]
        console.print(f"  {f.clause.number:>4} {mark} [bold]{f.clause.part}[/bold]: ", end="", highlight=False)
        console.print(f.evidence, markup=False, highlight=False, soft_wrap=True)
    console.print(f"verdict: {judgement.sentence}", style="bold", markup=False, highlight=False, soft_wrap=True)
    for other in others:
        line = f"as {other.algorithm.upper()}: {other.sentence}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
