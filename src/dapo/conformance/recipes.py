"""A recipe of ours against an algorithm, before any run: what its settings may be called, and what a run must still show."""

from dataclasses import dataclass
from typing import Any

from dapo.config import NEIGHBOURS, PRESETS, TOKEN_LEVEL, Recipe
from dapo.conformance.spec import SPECS

DEPARTURES = {  # keys that make a run depart from an algorithm without taking its name; any other key of a preset does
    "algo.eps_low", "algo.eps_high", "algo.dual_clip", "algo.correction", "algo.kl_estimator", "reward.correct",
    "reward.incorrect", "reward.no_answer",
}  # fmt: skip


@dataclass(frozen=True)
class Standing:
    """A recipe, judged by its settings. `differences`: {key: (here, the algorithm's)}."""

    algorithm: str
    differences: dict[str, tuple[Any, Any]]
    conforms: bool
    sentence: str


def judge_recipe(recipe: Recipe, claim: str | None = None) -> Standing:
    """Errors: ValueError if the claim is unknown."""
    algorithm = claim or recipe.algo.base
    if algorithm not in SPECS:
        raise ValueError(f"--claim {algorithm!r} is unknown; use one of {', '.join(SPECS)}")
    here, name = recipe.flat(), algorithm.upper()
    differences = {k: (here[k], v) for k, v in PRESETS[algorithm].items() if here[k] != v}
    if claim is None and recipe.known_as in NEIGHBOURS:
        shown = f"{recipe.known_as} by its settings (base: {name})"
        return Standing(algorithm, differences, True, shown)
    core = [k for k in differences if k not in DEPARTURES and not _allowed(algorithm, k, here)]
    raised = here["algo.eps_high"] > here["algo.eps_low"]
    core += ["algo.eps_high"] if algorithm == "dapo" and not raised else []
    core += ["algo.eps_high"] if algorithm == "grpo" and raised else []
    shown = ", ".join(f"{k} = {here[k]!r} ({name}: {PRESETS[algorithm][k]!r})" for k in core or differences)
    other = f" (its settings are those of {recipe.known_as})" if recipe.known_as else ""
    if core:
        return Standing(algorithm, differences, False, f"not {name}{other}: {shown}")
    if differences:
        return Standing(algorithm, differences, True, f"{name} with named departures, by its settings: {shown}")
    return Standing(algorithm, differences, True, f"{name} by its settings; what a run did is for its record to show")


def _allowed(algorithm: str, key: str, here: dict[str, Any]) -> bool:
    """The three readings of token-level are DAPO; the paper's GRPO has a coefficient, and its users run without."""
    if key == "algo.aggregation":
        return algorithm == "dapo" and here[key] in TOKEN_LEVEL
    return key == "algo.kl_coef" and algorithm == "grpo"
