"""The command line. It parses before it imports torch; each command imports what it needs.

Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 `check` found the run not to be what it claims, 75 stopped early
but resumable.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from dapo.config import NEIGHBOURS, ConfigError, Recipe, is_recipe, leaves, load_recipe, parse_override

app = typer.Typer(
    help="Reinforcement learning with verifiable rewards: DAPO, with GRPO and DCPO beside it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
reward_app = typer.Typer(help="Look at how replies are graded.", no_args_is_help=True)
app.add_typer(reward_app, name="reward")
FAILED, USAGE, NOT_AS_CLAIMED, RESUMABLE = 1, 2, 3, 75
RecipeArgument = Annotated[str, typer.Argument(help="a recipe file, or the name of a packaged recipe")]
Overrides = Annotated[list[str] | None, typer.Argument(help="section.key=value ...")]
JsonFlag = Annotated[bool, typer.Option("--json", help="print one JSON document")]


def _fail(message: str, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise typer.Exit(code)


def packaged_recipes() -> Path:
    """The folder of the recipes that come with the package."""
    import importlib.util

    spec = importlib.util.find_spec("dapo_recipes")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("the packaged recipes are not installed; give the path of a recipe file")
    return Path(next(iter(spec.submodule_search_locations)))


def find_recipe(name: str) -> Path:
    """A file as it stands; else a packaged recipe of that name. Errors: ConfigError listing the packaged ones."""
    if Path(name).is_file():
        return Path(name)
    folder = packaged_recipes()
    path = folder / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.toml")))
        raise ConfigError(f"recipe {name!r} is neither a file nor a packaged recipe; packaged are: {known}")
    return path


def _read(name: str, overrides: list[str] | None) -> tuple[Path, Recipe]:
    try:
        path = find_recipe(name)
        return path, load_recipe(path, dict(parse_override(o) for o in overrides or []))
    except ConfigError as error:
        _fail(str(error), USAGE)


def choose_out(stem: str, resume: bool) -> Path:
    """runs/STEM, or with a number behind it: the first that is free, or when resuming the last that is there."""
    taken = [p for n in range(1, 10_000) if (p := Path("runs") / (stem if n == 1 else f"{stem}-{n}")).is_dir()]
    if resume:
        return max(taken, key=lambda p: p.stat().st_mtime, default=Path("runs") / stem)
    n = 1
    while (out := Path("runs") / (stem if n == 1 else f"{stem}-{n}")).exists():
        n += 1
    return out


def _print_keys(wanted: bool) -> None:
    if wanted:
        print("\n".join(leaves()))
        raise typer.Exit


@app.command()
def train(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="run directory; default: runs/RECIPE")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue from the last checkpoint")] = False,
    _help_keys: Annotated[
        bool,
        typer.Option("--help-keys", is_eager=True, callback=_print_keys, help="list every key of a recipe and stop"),
    ] = False,
) -> None:
    """Train by a recipe."""
    path, parsed = _read(recipe, overrides)
    from rich.console import Console

    from dapo.launch.console import StepConsole
    from dapo.launch.local import prepare, start
    from dapo.launch.summary import print_summary
    from dapo.rollout.collect import TooManyUngraded
    from dapo.train.loop import NotFinite, Stopped, Underfilled

    console = Console()
    try:
        folder = out or choose_out(path.stem, resume)
        prepared = prepare(parsed, path.parent)
        with StepConsole(console, parsed.train.steps, 0) as view:
            view.say(f"{path.stem}: {len(prepared.prompts)} problems, run directory {folder}")
            local = start(prepared, folder, resume, view)
            with local.run:
                local.train()
    except ValueError as error:
        _fail(str(error), USAGE)
    except Stopped as stop:
        print(f"stopped: {stop}", file=sys.stderr)
        raise typer.Exit(RESUMABLE) from None
    except (Underfilled, TooManyUngraded, NotFinite, OSError) as error:
        _fail(str(error), FAILED)
    print_summary(console, folder)


@app.command()
def check(
    target: Annotated[
        str, typer.Argument(help="a run directory, a recipe, or another system's configuration or script")
    ],
    claim: Annotated[str | None, typer.Option(help="dapo, grpo or dcpo; default: what the recipe is based on")] = None,
    card: Annotated[
        bool, typer.Option("--card", help="print a run's Markdown card for a model card or a paper")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say what a run was, clause by clause, from what was observed; or what a configuration may be called."""
    if Path(target).is_dir():
        conforms = _check_run(Path(target), claim, card, as_json)
    elif card:
        _fail(f"--card needs a run directory, and {target} is none", USAGE)
    elif (recipe := _as_recipe(target)) is not None:
        conforms = _check_recipe(recipe, claim, as_json)
    else:
        conforms = _check_foreign(Path(target), claim, as_json)
    if not conforms:
        raise typer.Exit(NOT_AS_CLAIMED)


def _as_recipe(target: str) -> Recipe | None:
    """A recipe of ours: a TOML file with [algo] base, or a packaged one; None for other files. Errors: exit 2."""
    path = Path(target)
    if path.is_file() and not (path.suffix == ".toml" and is_recipe(path)):
        return None
    return _read(target, None)[1]


def _check_run(target: Path, claim: str | None, card: bool, as_json: bool) -> bool:
    from rich.console import Console

    from dapo.conformance.card import card as make_card
    from dapo.conformance.evidence import Evidence
    from dapo.conformance.judge import judge_all
    from dapo.conformance.show import print_judgement

    try:
        evidence = Evidence(target)
        judgement, others = judge_all(evidence, claim)
        text = make_card(evidence, judgement, others) if card else ""
    except (ValueError, OSError) as error:
        _fail(str(error), USAGE)
    if card:
        print(text)
    elif as_json:
        print(json.dumps({**judgement.as_json(), "others": {o.algorithm: o.sentence for o in others}}, indent=1))
    else:
        print_judgement(Console(), judgement, others)
    neighbour = claim is None and evidence.recipe.known_as in NEIGHBOURS
    if neighbour and not (card or as_json):
        print(f"{evidence.recipe.known_as} has no clauses of its own; these are its base's")
    return judgement.conforms or neighbour


def _check_recipe(recipe: Recipe, claim: str | None, as_json: bool) -> bool:
    from dataclasses import asdict

    from rich.console import Console

    from dapo.conformance.recipes import judge_recipe
    from dapo.conformance.show import print_standing

    try:
        standing = judge_recipe(recipe, claim)
    except ValueError as error:
        _fail(str(error), USAGE)
    if as_json:
        print(json.dumps(asdict(standing), indent=1))
    else:
        print_standing(Console(), standing)
    return standing.conforms


def _check_foreign(target: Path, claim: str | None, as_json: bool) -> bool:
    from rich.console import Console

    from dapo.conformance.foreign.inspect import inspect_file
    from dapo.conformance.show import print_inspection

    if claim not in (None, "dapo"):
        _fail(f"--claim {claim!r}: another system's configuration is compared with dapo only", USAGE)
    try:
        inspection = inspect_file(target)
    except (ValueError, OSError) as error:
        _fail(str(error), USAGE)
    if as_json:
        print(json.dumps(inspection.as_json(), indent=1))
    else:
        print_inspection(Console(), inspection)
    return inspection.conforms or claim is None


@app.command(name="eval")
def evaluate_command(
    model: Annotated[str, typer.Argument(help="a run directory, a model folder, or a hub name")],
    suite: Annotated[list[str] | None, typer.Option(help="arithmetic:TASK or a problem file; repeatable")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="recipe for prompt, verifier and limits; default: the run's")
    ] = None,
    k: Annotated[int | None, typer.Option(help="samples a problem")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Evaluate a model on held-out suites: avg@k with a 95 % interval."""
    run = Path(model)
    is_run = (run / "recipe.toml").is_file()
    if recipe is None and not is_run:
        _fail(f"{model} is not a run directory: say with --recipe how to ask it and how to grade", USAGE)
    path, parsed = _read(recipe or str(run / "recipe.toml"), None)
    from rich.console import Console

    from dapo.launch.console import evaluation_table
    from dapo.launch.evaluate import evaluate_model

    try:
        results = evaluate_model(model, parsed, path.parent, suite or list(parsed.eval.suites), k or parsed.eval.k)
    except (ValueError, OSError) as error:
        _fail(str(error), USAGE)
    summaries = [r.summary() for r in results]
    if as_json:
        print(json.dumps(summaries, indent=1))
    else:
        Console().print(evaluation_table([], summaries))


@reward_app.command(name="test")
def reward_test(
    file: Annotated[Path, typer.Argument(help='JSONL, each line like {"gold": "4", "response": "Answer: 4"}')],
    verifier: Annotated[str, typer.Option(help="as reward.verifier: dapo_math, number, or python:MODULE:FUNCTION")],
    time_limit: Annotated[float, typer.Option(help="wall limit for a python reward, in seconds", min=0.001)] = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Grade the replies of a file: what was extracted, the verdict, and why, for each line."""
    from collections import Counter

    from dapo.launch.reward_test import grade_file

    try:
        verdicts = grade_file(verifier, file, time_limit)
    except (ValueError, OSError) as error:
        _fail(str(error), USAGE)
    counts = Counter(v["outcome"] for v in verdicts)
    if as_json:
        print(json.dumps({"verifier": verifier, "counts": counts, "verdicts": verdicts}, indent=1))
        return
    for v in verdicts:
        value = "" if v["value"] is None else f" value {v['value']:g}"
        extracted = "nothing" if v["extracted"] is None else ascii(v["extracted"])
        print(f"line {v['line']}: {v['outcome']}{value} | extracted {extracted} | gold {v['gold']!a} | {v['why']}")
    print(", ".join(f"{counts[o]} {o}" for o in ("correct", "incorrect", "ungraded")))


@app.command()
def selftest() -> None:
    """Train the packaged tiny model for two steps and check the machinery: a few seconds, no network."""
    from dapo.launch.selftest import run_selftest

    failed = False
    for name, ok, detail in run_selftest(packaged_recipes()):
        print(f"{'ok  ' if ok else 'FAIL'} {name}: {detail}")
        failed |= not ok
    if failed:
        raise typer.Exit(FAILED)


def main() -> None:
    """The entry point of the `dapo` command."""
    app()
