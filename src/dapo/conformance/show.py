"""Verdicts for a person: on a run, and on another system's configuration. Needs neither torch nor a run in this process."""

from collections.abc import Sequence

from rich.console import Console

from dapo.conformance.foreign.inspect import Inspection
from dapo.conformance.judge import Judgement
from dapo.conformance.recipes import Standing

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


COLOURS = {
    "on-as-paper": "green", "on-different-value": "yellow", "off": "red", "set-but-no-effect": "red", "conflict": "red",
    "needs-code": "magenta", "unknown-key": "red",
}  # fmt: skip


def _clean(text: str) -> str:
    """Text from a foreign file as a terminal may show it: no control characters, no lone surrogates."""
    printable = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return printable.encode("utf-8", "backslashreplace").decode()


def print_inspection(console: Console, inspection: Inspection) -> None:
    """Each part with what the file says, the paper's value and the reason; then what a run of it may be called."""
    console.print(f"{inspection.system}, read by its keys of {inspection.version}", style="italic", highlight=False)
    for f in inspection.findings:
        console.print(f"  [{COLOURS[f.verdict]}]{f.verdict:>18}[/] [bold]{f.part}[/bold]: ", end="", highlight=False)
        reason = f"; {f.why}" if f.why else ""
        paper = f" [paper: {f.paper}]" if f.paper and f.verdict != "on-as-paper" else ""
        console.print(_clean(f"{f.seen}{reason}{paper}"), markup=False, highlight=False, soft_wrap=True)
    console.print(f"verdict: {inspection.sentence}", style="bold", markup=False, highlight=False, soft_wrap=True)


def print_standing(console: Console, standing: Standing) -> None:
    """Every setting of a recipe that is not the algorithm's, then what it may be called."""
    for key, (here, there) in standing.differences.items():
        line = f"  {key} = {here!r} ({standing.algorithm.upper()}: {there!r})"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"verdict: {standing.sentence}", style="bold", markup=False, highlight=False, soft_wrap=True)
