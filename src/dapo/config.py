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
    correct: float = Field(description="reward of a correct answer")
    incorrect: float = Field(description="reward of a wrong answer")
    no_answer: float = Field(description="reward where the verifier found no answer")
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
    base: Literal["dapo", "grpo", "dcpo"] = Field(description="the algorithm whose vetted values fill this section")
    ratio: Literal["token", "sequence", "token-geometric", "none"] = Field(description="level of pi_theta / pi_old")
    bounds: Literal["fixed", "adaptive", "total-variation", "log"] = Field(description="bounds by the old probability")
    eps_low: float = Field(ge=0, description="how far the ratio may fall; fixed: down to 1 - eps_low")
    eps_high: float = Field(ge=0, description="how far the ratio may rise; fixed: up to 1 + eps_high")
    outside: Literal["min", "clip-weight", "mask"] = Field(description="what happens to a token outside the bounds")
    dual_clip: float = Field(ge=0, description="cap on the ratio of negative advantages, above 1; 0: off")
    advantage: Literal["group-std", "group-mean", "leave-one-out", "batch-std", "batch-whitened", "smooth"] = Field(
        description="baseline and scale"
    )
    filter: Literal["none", "drop", "drop-rescale", "resample"] = Field(
        description="groups with all answers alike; drop: not trained, still in the denominators; drop-rescale: in "
        "neither; resample: dynamic sampling"
    )
    allow_smooth_filter: bool = Field(False, description='confirms advantage = "smooth" together with a filter')
    aggregation: Literal[
        "token-mean", "prompt-mean", "token-mean-legacy", "sequence-mean", "sequence-sum", "only-token-mean", "constant"
    ] = Field(description="how token losses become one number")
    length: Literal["none", "soft-punishment", "mask-truncated"] = Field(description="what long responses get")
    L_max: int | None = Field(None, ge=1, description="length of full punishment; None: sampling.max_new_tokens")
    L_cache: int | None = Field(None, ge=1, description="length of the soft zone; None: L_max / 5, as in the paper")
    kl_coef: float = Field(ge=0, description="weight of the KL divergence from the starting model; 0: none")
    kl_in: Literal["loss", "reward"] = Field(description="where the KL divergence goes")
    kl_estimator: Literal["k1", "k2", "k3"] = Field(description="how it is estimated, token by token")
    correction: Literal["off", "truncate-token", "truncate-sequence", "mask-token"] = Field(
        description="weights pi_old / pi_engine against the mismatch of sampler and trainer"
    )
    rho_low: float | None = Field(None, gt=0, lt=1, description="mask-token: lower limit of the weights; None: 0.5")
    rho_high: float | None = Field(None, gt=1, description="upper limit of the weights; None: 2")


TOKEN_LEVEL = ("token-mean", "prompt-mean", "token-mean-legacy")  # the three readings of "token-level loss"
_GRPO: dict[str, Any] = {
    "algo.ratio": "token", "algo.bounds": "fixed", "algo.eps_low": 0.2, "algo.eps_high": 0.2, "algo.outside": "min",
    "algo.dual_clip": 0.0, "algo.advantage": "group-std", "algo.filter": "none", "algo.aggregation": "sequence-mean",
    "algo.length": "none", "algo.kl_coef": 0.04, "algo.kl_in": "loss", "algo.kl_estimator": "k3",
    "algo.correction": "off", "reward.correct": 1.0, "reward.incorrect": -1.0, "reward.no_answer": -1.0,
}  # fmt: skip
PRESETS: dict[str, dict[str, Any]] = {
    "grpo": _GRPO,
    "dapo": {
        **_GRPO, "algo.eps_high": 0.28, "algo.filter": "resample", "algo.aggregation": "token-mean",
        "algo.length": "soft-punishment", "algo.kl_coef": 0.0,
    },
    "dcpo": {
        **_GRPO, "algo.bounds": "adaptive", "algo.eps_low": 0.16, "algo.eps_high": 0.2, "algo.dual_clip": 10.0,
        "algo.advantage": "smooth", "algo.aggregation": "only-token-mean", "algo.kl_coef": 0.0,
        "reward.incorrect": 0.0,
    },
}  # fmt: skip
NEIGHBOURS: dict[str, dict[str, Any]] = {  # over the preset of GRPO: the published algorithms beside the three bases
    "Dr.GRPO": {"algo.advantage": "group-mean", "algo.aggregation": "constant", "algo.kl_coef": 0.0},
    "GSPO": {"algo.ratio": "sequence", "algo.eps_low": 3e-4, "algo.eps_high": 4e-4, "algo.kl_coef": 0.0},
    "CISPO": {
        "algo.outside": "clip-weight", "algo.eps_low": 1.0, "algo.aggregation": "token-mean", "algo.kl_coef": 0.0,
    },
    "GMPO": {
        "algo.ratio": "token-geometric", "algo.bounds": "log", "algo.eps_low": 0.4, "algo.eps_high": 0.4,
        "algo.kl_coef": 0.0,
    },
    "RLOO": {
        "algo.ratio": "none", "algo.advantage": "leave-one-out", "algo.aggregation": "sequence-sum", "algo.kl_coef": 0.0,
    },
    "REINFORCE++ baseline": {
        "algo.advantage": "batch-whitened", "algo.aggregation": "token-mean", "algo.kl_coef": 0.0,
    },
    "Lite PPO": {"algo.advantage": "batch-std", "algo.aggregation": "token-mean", "algo.kl_coef": 0.0},
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
    reward: Reward
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
        """Keys whose value differs from the preset of `algo.base`: {section.key: {"preset": .., "here": ..}}."""
        here = self.flat()
        preset = PRESETS[self.algo.base]
        return {k: {"preset": v, "here": here[k]} for k, v in preset.items() if here[k] != v}

    @property
    def known_as(self) -> str | None:
        """The published algorithm whose settings these are, of the three bases and the neighbours; None if of none."""
        here = self.flat()
        named = {name.upper(): preset for name, preset in PRESETS.items()}
        named |= {name: {**PRESETS["grpo"], **changes} for name, changes in NEIGHBOURS.items()}
        idle = {"algo.eps_low", "algo.eps_high"} if self.algo.ratio == "none" else set()
        met = (name for name, preset in named.items() if all(here[k] == v or k in idle for k, v in preset.items()))
        return next(met, None)

    def flat(self) -> dict[str, Any]:
        """Every value by section.key."""
        return {f"{s}.{k}": v for s, table in self.model_dump().items() for k, v in table.items()}


def _contradictions(r: Recipe) -> Iterator[str]:
    """Everything in a recipe that contradicts something else in it, as messages that name key, value and fix."""
    yield from _batch_contradictions(r)
    yield from _length_contradictions(r)
    yield from _ratio_contradictions(r)
    yield from _term_contradictions(r)
    yield from _filter_contradictions(r)


def _batch_contradictions(r: Recipe) -> Iterator[str]:
    n, u = r.rollout.prompts_per_step, r.train.updates_per_step
    if n % u:
        yield (
            f"train.updates_per_step = {u} does not divide rollout.prompts_per_step = {n}; "
            f"use one of {[d for d in range(1, n + 1) if n % d == 0]}"
        )
    if r.reward.correct <= max(r.reward.incorrect, r.reward.no_answer):
        yield (
            f"reward.correct = {r.reward.correct} must be above reward.incorrect = {r.reward.incorrect} and "
            f"reward.no_answer = {r.reward.no_answer}"
        )
    if r.max_prompts_per_step < n:
        yield (
            f"rollout.max_prompts_per_step = {r.max_prompts_per_step} is below rollout.prompts_per_step = {n}: "
            f"a step could never be filled; use at least {n}, better {10 * n}"
        )
    if r.train.warmup_steps > r.train.steps:
        yield f"train.warmup_steps = {r.train.warmup_steps} is more than train.steps = {r.train.steps}; lower it"


def _length_contradictions(r: Recipe) -> Iterator[str]:
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
        both = "; masking truncated responses and punishing them are alternatives, never both on"
        yield (
            f"algo.L_max / algo.L_cache are set but algo.length = {r.algo.length!r} does not use them"
            f'{both if r.algo.length == "mask-truncated" else ""}; remove them or set algo.length = "soft-punishment"'
        )


def _ratio_contradictions(r: Recipe) -> Iterator[str]:
    a = r.algo
    if a.bounds == "fixed" and a.outside == "min" and a.ratio != "none":
        if a.eps_high < a.eps_low:
            yield f"algo.eps_high = {a.eps_high} is below algo.eps_low = {a.eps_low}; swap them"
        if a.eps_low >= 1:
            yield f"algo.eps_low = {a.eps_low}: the lower bound 1 - eps_low would be {1 - a.eps_low:g}; use less than 1"
    if a.ratio == "none" and (a.bounds, a.outside, a.dual_clip) != ("fixed", "min", 0):
        yield (
            'algo.ratio = "none" has no ratio to bound; remove algo.bounds, algo.outside and algo.dual_clip, or use '
            'algo.ratio = "token"'
        )
    if a.ratio == "none" and r.train.updates_per_step > 1:
        yield (
            f'algo.ratio = "none" does not correct for samples of an earlier policy, and train.updates_per_step = '
            f"{r.train.updates_per_step} makes them so; set train.updates_per_step = 1"
        )
    if a.ratio in ("sequence", "token-geometric") and a.bounds in ("adaptive", "total-variation"):
        yield (
            f"algo.bounds = {a.bounds!r} is a function of a token's probability, and algo.ratio = {a.ratio!r} bounds "
            f'a sequence; use algo.ratio = "token", or algo.bounds = "fixed" or "log"'
        )
    if a.ratio == "token-geometric" and a.outside != "min":
        yield f'algo.ratio = "token-geometric" clips pessimistically; set algo.outside = "min", not {a.outside!r}'
    if 0 < a.dual_clip <= 1:
        yield f"algo.dual_clip = {a.dual_clip} must be above 1, or 0 for none; the reproduction's script has 10"
    if a.dual_clip and (a.outside != "min" or a.ratio == "token-geometric"):
        yield (
            f'algo.dual_clip = {a.dual_clip} belongs to the clipped minimum; remove it, or use algo.outside = "min" '
            f'with algo.ratio = "token" or "sequence"'
        )


def _term_contradictions(r: Recipe) -> Iterator[str]:
    a = r.algo
    if a.kl_coef == 0 and (a.kl_in, a.kl_estimator) != ("loss", "k3"):
        yield (
            f"algo.kl_in = {a.kl_in!r} and algo.kl_estimator = {a.kl_estimator!r} have no effect with algo.kl_coef = 0; set "
            f"algo.kl_coef, or remove them"
        )
    if a.correction in ("truncate-token", "mask-token") and a.ratio in ("sequence", "token-geometric"):
        yield (
            f"algo.correction = {a.correction!r} weighs tokens, and algo.ratio = {a.ratio!r} makes all tokens of a "
            f'response one; use algo.correction = "truncate-sequence"'
        )
    if a.correction == "off" and (a.rho_low or a.rho_high):
        yield (
            'algo.rho_low / algo.rho_high are set but algo.correction = "off" does not use them; remove them or set '
            'algo.correction = "truncate-token"'
        )
    if a.correction != "mask-token" and a.rho_low:
        yield f'algo.rho_low = {a.rho_low} is used by algo.correction = "mask-token" only; remove it'


def _filter_contradictions(r: Recipe) -> Iterator[str]:
    a = r.algo
    if a.filter != "none" and a.advantage == "smooth" and not a.allow_smooth_filter:
        yield (
            f'algo.filter = {a.filter!r} throws away the groups from which algo.advantage = "smooth" still learns (all '
            f'answers alike, but unlike earlier visits); set algo.filter = "none", or confirm with '
            f"algo.allow_smooth_filter = true"
        )
    if a.allow_smooth_filter and (a.filter == "none" or a.advantage != "smooth"):
        yield 'algo.allow_smooth_filter confirms algo.advantage = "smooth" with a filter, and there is no such pair'
    if a.filter == "drop" and a.aggregation == "token-mean-legacy":
        yield (
            'algo.filter = "drop" keeps dropped groups in the denominators, and algo.aggregation = "token-mean-legacy" '
            'divides by micro-batches, in which they are not; use algo.filter = "drop-rescale"'
        )
    if a.kl_in == "reward" and (a.filter == "drop" or (a.filter != "none" and a.advantage == "smooth")):
        yield (
            f'algo.kl_in = "reward" needs log-probabilities of every group whose reward counts, and algo.filter = '
            f'{a.filter!r} leaves some out; use algo.filter = "none", or algo.kl_in = "loss"'
        )
    if a.ratio == "none" and r.rollout.surplus == "carry":
        yield (
            'algo.ratio = "none" does not correct for samples of an earlier policy, and rollout.surplus = "carry" trains on '
            'them; use rollout.surplus = "requeue"'
        )
    if r.rollout.surplus == "carry" and a.filter != "resample":
        yield (
            f'rollout.surplus = "carry" needs informative groups beyond the batch, and algo.filter = {a.filter!r} '
            f'generates none; use rollout.surplus = "requeue"'
        )


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
        for key, value in preset.items():
            section, _, name = key.partition(".")
            table = tables.setdefault(section, {})
            if isinstance(table, dict):
                table.setdefault(name, value)
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


def is_recipe(path: Path) -> bool:
    """True for a TOML file with [algo] base, whatever else is wrong with it."""
    try:
        algo = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("algo")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return False
    return isinstance(algo, dict) and "base" in algo


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
