"""The recipe: its schema, its presets, and the checks that need no data and no model.

A recipe is a TOML file with the sections below. `[algo] base` names an algorithm and fills the rest of [algo] with that
algorithm's vetted values; a key set beside it is a deviation, and `Recipe.deviations` lists it. An unknown key, a wrong
value or a contradiction is a ConfigError that names the key, the value and the fix.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator


class ConfigError(ValueError):
    """The recipe cannot be run as it is written. The message names the key and the fix."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class Message(Section):
    role: Literal["system", "user", "assistant"]
    content: str


class Model(Section):
    path: str = Field(description="folder or hub name of the starting model")
    dtype: Literal["auto", "bfloat16", "float32"] = Field("auto", description="compute precision; auto: bfloat16")
    device: Literal["auto", "cpu", "cuda"] = "auto"


class Data(Section):
    source: str = Field(description="arithmetic:TASK[=COUNT][+...], or a .jsonl / .parquet file")
    size: int = Field(2000, ge=1, description="problems drawn from a generated task without a COUNT")
    problem_field: str = "problem"
    answer_field: str = "answer"
    template: str = Field("{{ problem }}", description="Jinja template of the user's turn")
    messages: tuple[Message, ...] = Field((), description="turns before the user's: system prompt, worked examples")
    max_prompt_tokens: int = Field(1024, ge=1)
    overlong_prompts: Literal["error", "drop"] = Field("error", description="prompts beyond max_prompt_tokens")
    duplicates: Literal["keep", "drop"] = "keep"


class Reward(Section):
    verifier: str = Field("dapo_math", description="dapo_math, number, or python:MODULE:FUNCTION")
    correct: float = 1.0
    incorrect: float = -1.0
    time_limit_s: float = Field(10.0, gt=0, description="wall limit for a python reward on one group")
    max_ungraded: float = Field(0.1, ge=0, le=1, description="stop if more responses of a step cannot be graded")


class Rollout(Section):
    prompts_per_step: int = Field(16, ge=1, description="N: groups trained on in a step")
    group_size: int = Field(8, ge=2, description="G: responses to a prompt")
    max_prompts_per_step: int | None = Field(None, ge=1, description="prompts tried before giving up; None: 10 N")
    surplus: Literal["requeue", "drop", "carry"] = "requeue"
    on_underfill: Literal["stop", "partial", "error"] = "stop"
    max_rows: int = Field(256, ge=1, description="responses decoded at the same time")


class SamplingSection(Section):
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    max_new_tokens: int = Field(512, ge=1, description="generation limit, in response tokens")


class Algo(Section):
    base: Literal["dapo", "grpo"] = Field(description="the algorithm whose vetted values fill this section")
    eps_low: float = Field(ge=0, lt=1, description="lower clip bound is 1 - eps_low")
    eps_high: float = Field(ge=0, description="upper clip bound is 1 + eps_high")
    dual_clip: float | None = Field(None, gt=1, description="bound c on the loss of negative advantages; None: off")
    advantage: Literal["group-std", "group-mean"] = "group-std"
    filter: Literal["none", "resample"] = Field(description="resample: dynamic sampling on correctness")
    aggregation: Literal[
        "token-mean", "prompt-mean", "token-mean-legacy", "sequence-mean", "sequence-sum", "constant"
    ] = Field(description="how token losses become one number")
    length: Literal["none", "soft-punishment", "mask-truncated"] = Field(description="what long responses get")
    L_max: int | None = Field(None, ge=1, description="length of full punishment; None: sampling.max_new_tokens")
    L_cache: int | None = Field(None, ge=1, description="length of the soft zone; None: L_max / 5, as in the paper")
    kl_coef: float = Field(ge=0, description="weight of the KL term (k3) to the starting model; 0: no term")


PRESETS: dict[str, dict[str, Any]] = {
    "dapo": {
        "eps_low": 0.2, "eps_high": 0.28, "dual_clip": None, "advantage": "group-std", "filter": "resample",
        "aggregation": "token-mean", "length": "soft-punishment", "kl_coef": 0.0,
    },
    "grpo": {
        "eps_low": 0.2, "eps_high": 0.2, "dual_clip": None, "advantage": "group-std", "filter": "none",
        "aggregation": "sequence-mean", "length": "none", "kl_coef": 0.04,
    },
}  # fmt: skip


class Train(Section):
    steps: int = Field(ge=1, description="rollout steps")
    updates_per_step: int = Field(4, ge=1, description="gradient updates per rollout step")
    lr: float = Field(1e-6, gt=0)
    warmup_steps: int = Field(0, ge=0, description="linear warm-up, in rollout steps")
    schedule: Literal["constant", "cosine"] = "constant"
    weight_decay: float = Field(0.0, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.999, ge=0, lt=1)
    grad_clip: float = Field(1.0, gt=0, description="bound on the global gradient norm")
    micro_batch_tokens: int = Field(8192, ge=1, description="tokens in one forward and backward pass")
    save_every: int = Field(10, ge=1, description="rollout steps between checkpoints")
    keep_checkpoints: int = Field(2, ge=1)
    max_bad_updates: int = Field(3, ge=1, description="stop after so many non-finite updates in a row")
    seed: int = Field(0, ge=0)


class Eval(Section):
    suites: tuple[str, ...] = Field((), description="held-out sources; arithmetic tasks use their held-out split")
    size: int = Field(200, ge=1, description="problems of each suite")
    k: int = Field(8, ge=1, description="samples a problem before and after training")
    every: int | None = Field(None, ge=1, description="rollout steps between evaluations on the way; None: none")
    k_on_the_way: int = Field(2, ge=1)
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)


class Record(Section):
    rollouts: bool = Field(True, description="write every response to rollouts/*.parquet")


class Launch(Section):
    threads: int | None = Field(None, ge=1, description="CPU threads; None: all cores")


class Recipe(Section):
    """A whole run. Built by `load_recipe`; frozen."""

    model: Model
    data: Data
    reward: Reward = Reward()
    rollout: Rollout = Rollout()
    sampling: SamplingSection = SamplingSection()
    algo: Algo
    train: Train
    eval: Eval = Eval()
    record: Record = Record()
    launch: Launch = Launch()

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        for problem in _contradictions(self):
            raise ValueError(problem)
        return self

    @property
    def L_max(self) -> int:
        return self.algo.L_max or self.sampling.max_new_tokens

    @property
    def L_cache(self) -> int:
        return self.algo.L_cache or max(1, self.L_max // 5)

    @property
    def max_prompts_per_step(self) -> int:
        return self.rollout.max_prompts_per_step or 10 * self.rollout.prompts_per_step

    @property
    def deviations(self) -> dict[str, dict[str, Any]]:
        """Keys of [algo] whose value differs from the preset of `algo.base`: {key: {"preset": .., "here": ..}}."""
        mine = self.algo.model_dump()
        preset = PRESETS[self.algo.base]
        return {k: {"preset": v, "here": mine[k]} for k, v in preset.items() if mine[k] != v}


def _contradictions(r: Recipe) -> Iterator[str]:
    """Everything in a recipe that contradicts something else in it, as messages that name key, value and fix."""
    n, u = r.rollout.prompts_per_step, r.train.updates_per_step
    if n % u:
        yield (
            f"train.updates_per_step = {u} does not divide rollout.prompts_per_step = {n}; "
            f"use one of {[d for d in range(1, n + 1) if n % d == 0]}"
        )
    if r.algo.length == "soft-punishment" and r.L_cache >= r.L_max:
        yield (
            f"algo.L_cache = {r.L_cache} must be below algo.L_max = {r.L_max}: the soft zone is the last L_cache "
            f"tokens of L_max; use for example algo.L_cache = {max(1, r.L_max // 5)}"
        )
    if r.algo.length == "soft-punishment" and r.L_max > r.sampling.max_new_tokens:
        yield (
            f"algo.L_max = {r.L_max} is beyond sampling.max_new_tokens = {r.sampling.max_new_tokens}: no response "
            f"could ever get the full punishment; set algo.L_max = {r.sampling.max_new_tokens}"
        )
    if r.algo.length != "soft-punishment" and (r.algo.L_max or r.algo.L_cache):
        yield (
            f"algo.L_max / algo.L_cache are set but algo.length = {r.algo.length!r} does not use them; "
            f'remove them or set algo.length = "soft-punishment"'
        )
    if r.algo.eps_high < r.algo.eps_low:
        yield f"algo.eps_high = {r.algo.eps_high} is below algo.eps_low = {r.algo.eps_low}; swap them"
    if r.reward.correct <= r.reward.incorrect:
        yield f"reward.correct = {r.reward.correct} must be above reward.incorrect = {r.reward.incorrect}"
    if r.max_prompts_per_step < n:
        yield (
            f"rollout.max_prompts_per_step = {r.max_prompts_per_step} is below rollout.prompts_per_step = {n}: "
            f"a step could never be filled; use at least {n}, better {10 * n}"
        )
    if r.train.warmup_steps > r.train.steps:
        yield f"train.warmup_steps = {r.train.warmup_steps} is more than train.steps = {r.train.steps}; lower it"


def leaves(section: type[BaseModel] = Recipe, prefix: str = "") -> Iterator[str]:
    """Every key of the schema as section.key."""
    for name, info in section.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from leaves(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _unknown(key: str) -> str:
    known = list(leaves())
    section, _, last = key.rpartition(".")
    elsewhere = [k for k in known if k.rpartition(".")[2] == last]  # the right key in the wrong section
    inside = [k for k in known if k.startswith(f"{section}.")]
    close = (
        elsewhere or difflib.get_close_matches(key, inside, 1, 0.75) or difflib.get_close_matches(key, known, 1, 0.5)
    )
    hint = f"did you mean {close[0]}?" if close else "see the keys with: dapo train --help-keys"
    return f"unknown key {key}; {hint}"


def parse_override(text: str) -> tuple[str, Any]:
    """`section.key=value` as (key, value); the value is read as TOML, or as a plain string if it is not TOML."""
    key, equals, raw = text.partition("=")
    if not equals or "." not in key:
        raise ConfigError(f"override {text!r} is not of the form section.key=value, for example train.steps=20")
    try:
        value = tomllib.loads(f"v = {raw}")["v"]
    except tomllib.TOMLDecodeError:
        value = raw
    return key.strip(), value


def _merge(raw: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    for key, value in overrides.items():
        section, _, name = key.partition(".")
        table = raw.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{section} must be a section, written [{section}]")
        table[name] = value


def _describe_one(item: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return _unknown(key)
    if item["type"] == "missing":
        return f"{key} is missing; add it to the recipe"
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    options = [w.strip("' ") for w in str(item.get("ctx", {}).get("expected", "")).replace(" or ", ",").split(",")]
    near = difflib.get_close_matches(str(item["input"]), options, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{key} = {item['input']!r}: {item['msg'][0].lower()}{item['msg'][1:]}{hint}"


def build_recipe(raw: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Recipe:
    """A checked Recipe from nested tables. Errors: ConfigError, one line for each fault."""
    tables: dict[str, Any] = {k: dict(v) if isinstance(v, dict) else v for k, v in raw.items()}
    _merge(tables, overrides or {})
    algo = tables.get("algo")
    if isinstance(algo, dict):
        if "base" not in algo:
            raise ConfigError(f"algo.base is missing; set it to one of {sorted(PRESETS)}")
        preset = PRESETS.get(str(algo["base"]), PRESETS["dapo"])  # so that the only complaint is about a wrong base
        tables["algo"] = {**preset, **algo}
    try:
        return Recipe.model_validate(tables)
    except ValidationError as error:
        raise ConfigError("\n".join(_describe_one(item) for item in error.errors())) from None


def load_recipe(path: Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Read and check a recipe file. Errors: ConfigError."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"recipe {path} does not exist; give a file or the name of a packaged recipe") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"recipe {path} is not valid TOML: {error}") from None
    return build_recipe(raw, overrides)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = "".join(c if c >= " " and c not in '"\\\x7f' else f"\\u{ord(c):04x}" for c in value)
        return f'"{escaped}"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml_value(v)}" for k, v in value.items()) + " }"
    return repr(value)


def to_toml(recipe: Recipe) -> str:
    """The resolved recipe as TOML: every key, so that it means the same under later presets. None is left out."""
    lines: list[str] = []
    for section, table in recipe.model_dump().items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {_toml_value(value)}" for key, value in table.items() if value is not None]
        lines.append("")
    return "\n".join(lines)
