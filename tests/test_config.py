"""Recipes: every mistake is one clear error that names the key and the fix; resolved recipes round-trip."""

import tomllib
from pathlib import Path

import pytest

from dapo.config import PRESETS, ConfigError, build_recipe, leaves, load_recipe, parse_override, to_toml

RAW = {
    "model": {"path": "m"},
    "data": {"source": "arithmetic:chain"},
    "algo": {"base": "dapo"},
    "train": {"steps": 3},
}


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("train.stps=3", "unknown key train.stps; did you mean train.steps?"),
        ("sampling.max_tokens=3", "did you mean sampling.max_new_tokens?"),
        ("rollout.lr=3", "unknown key rollout.lr; did you mean train.lr?"),
        ("algo.filter=resampl", "did you mean 'resample'?"),
        ("algo.base=dappo", "did you mean 'dapo'?"),
        ("train.steps=many", "train.steps = 'many'"),
        ("train.steps=0", "train.steps = 0: input should be greater than or equal to 1"),
        ("algo.L_cache=600", "algo.L_cache = 600 must be below algo.L_max = 512"),
        ("algo.L_max=600", "beyond sampling.max_new_tokens = 512"),
        ("train.updates_per_step=5", "does not divide rollout.prompts_per_step = 16; use one of [1, 2, 4, 8, 16]"),
        ("rollout.max_prompts_per_step=3", "a step could never be filled"),
        ("algo.eps_high=0.1", "algo.eps_high = 0.1 is below algo.eps_low = 0.2"),
        ("reward.correct=-2", "reward.correct = -2.0 must be above"),
        ("train.warmup_steps=4", "more than train.steps = 3"),
        ("algo.length=none algo.L_cache=3", "does not use them"),
        ("model.path", "not of the form section.key=value"),
        ("steps=3", "not of the form section.key=value"),
    ],
)
def test_mistakes_are_named_with_their_fix(override, says):
    with pytest.raises(ConfigError) as error:
        build_recipe(RAW, dict(parse_override(o) for o in override.split()))
    assert says in str(error.value)


def test_a_missing_key_a_missing_base_and_a_missing_file():
    with pytest.raises(ConfigError, match=r"train\.steps is missing"):
        build_recipe({**RAW, "train": {}})
    with pytest.raises(ConfigError, match=r"algo\.base is missing"):
        build_recipe({**RAW, "algo": {}})
    with pytest.raises(ConfigError, match="algo is missing"):
        build_recipe({k: v for k, v in RAW.items() if k != "algo"})
    with pytest.raises(ConfigError, match="model must be a section"):
        build_recipe({**RAW, "model": "x"}, {"model.path": "y"})
    with pytest.raises(ConfigError, match="does not exist"):
        load_recipe(Path("no/such.toml"))


def test_a_file_that_is_not_toml(tmp_path):
    (tmp_path / "r.toml").write_text("a = = 1")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_recipe(tmp_path / "r.toml")


def test_the_base_fills_its_values_and_deviations_are_listed():
    dapo = build_recipe(RAW)
    assert {k: dapo.flat()[k] for k in PRESETS["dapo"]} == PRESETS["dapo"]
    assert dapo.deviations == {}
    changed = build_recipe(RAW, {"algo.eps_high": 0.3, "algo.filter": "none"})
    assert changed.deviations == {
        "algo.eps_high": {"preset": 0.28, "here": 0.3},
        "algo.filter": {"preset": "resample", "here": "none"},
    }


def test_resolved_recipes_round_trip():
    text = 'a "quoted"\n\ttext \\ with \x7f and ünïcode'
    recipe = build_recipe({**RAW, "data": {**RAW["data"], "messages": [{"role": "system", "content": text}]}})
    assert build_recipe(tomllib.loads(to_toml(recipe))) == recipe


def test_the_schema_stays_small():
    assert len(list(leaves())) <= 90
