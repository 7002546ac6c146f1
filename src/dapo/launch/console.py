"""What a person sees while a run is going: a progress bar on a terminal, one line a step everywhere, a summary."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from dapo.eval.run import SuiteResult


def _percent(value: float | None) -> str:
    return "  --" if value is None else f"{value:4.0%}"


def _number(value: float | None, form: str) -> str:
    return "--" if value is None else format(value, form)


def step_line(event: Mapping[str, Any], total: int) -> str:
    """One step in one line."""
    groups, seconds = event["groups"], event["seconds"]
    families = event["accuracy_by_family"]
    each = " ".join(f"{k} {_percent(v).strip()}" for k, v in families.items()) if len(families) > 1 else ""
    return (
        f"step {event['step']:3d}/{total} acc {_percent(event['accuracy'])}{' (' + each + ')' if each else ''} | "
        f"groups {groups['kept']} kept {groups['all_right']} right {groups['all_wrong']} wrong | "
        f"entropy {_number(event['entropy'], '.2f')} len {_number(event['length'], '.1f')} | "
        f"clip low {_number(event['clip_low'], '.1%')} high {_number(event['clip_high'], '.1%')} | "
        f"loss {_number(event['loss'], '+.4f')} | "
        f"gen {seconds['generate']:.1f} logp {seconds['logprobs']:.1f} upd {seconds['update']:.1f} s"
    )


class StepConsole:
    """Progress of collection within a step and of the run; use as a context manager."""

    def __init__(self, console: Console, total_steps: int, done: int) -> None:
        self.console = console
        self._total = total_steps
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._run = self._progress.add_task("steps", total=total_steps, completed=done, note="")
        self._inner: TaskID = self._progress.add_task("groups", total=1, note="")

    def __enter__(self) -> "StepConsole":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def inner(self, what: str, done: int, total: int, note: str) -> None:
        """Progress of what is going on inside a step or an evaluation."""
        self._progress.update(self._inner, description=what, completed=done, total=total, note=note)

    def step(self, event: Mapping[str, Any]) -> None:
        self._progress.update(self._run, completed=event["step"])
        self.console.print(step_line(event, self._total), highlight=False, soft_wrap=True)

    def evaluation(self, step: int, results: Sequence[SuiteResult]) -> None:
        for r in results:
            a = r.accuracy
            self.console.print(
                f"eval at step {step}: {r.name} avg@{r.k} {a.mean:.1%} (95 % interval {a.low:.1%} to {a.high:.1%}), "
                f"{len(r.answers)} problems, {r.tokens / max(r.seconds, 1e-9):.0f} tokens/s",
                highlight=False,
                soft_wrap=True,
            )

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def _interval(result: Mapping[str, Any]) -> str:
    mean, low, high = (100 * result[key] for key in ("accuracy", "low", "high"))
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"


def evaluation_table(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Table:
    """Accuracy before and after, with intervals."""
    table = Table(title="held-out accuracy in % [95 % interval over clusters of problems]", title_justify="left")
    for name in ("suite", "problems", "avg@k", "before", "after"):
        table.add_column(name, justify="left" if name == "suite" else "right", no_wrap=True)
    first = {r["suite"]: r for r in before}
    for r in after:
        b = first.get(r["suite"])
        table.add_row(
            r["suite"].removeprefix("arithmetic:"),
            str(r["problems"]),
            str(r["k"]),
            _interval(b) if b else "--",
            _interval(r),
        )
    return table


def ledger_table(ledger: Mapping[str, Mapping[str, float]]) -> Table:
    """The fate of everything that was generated."""
    table = Table(title="the fate of every generated token", title_justify="left")
    for name in ("fate", "groups", "responses", "tokens", "share", "seconds"):
        table.add_column(name, justify="left" if name == "fate" else "right")
    total = ledger["generated"]["tokens"] or 1
    for fate, t in ledger.items():
        if fate == "carried_in" and not t["groups"]:
            continue
        share = f"{t['tokens'] / total:.1%}"
        table.add_row(fate, *(f"{t[u]:.0f}" for u in ("groups", "responses", "tokens")), share, f"{t['seconds']:.1f}")
    return table
