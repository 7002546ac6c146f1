"""Every recipe that is shipped, and what may and may not be combined."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dapo.config import NEIGHBOURS, PRESETS, ConfigError, build_recipe, is_recipe, load_recipe, parse_override, to_toml
from dapo.conformance.recipes import judge_recipe
from dapo.train.assemble import make_objective

FOLDER = Path(__file__).parents[1] / "recipes"
RECIPES = sorted(FOLDER.glob("*.toml"))
RAW = {
    "model": {"path": "m"},
    "data": {"source": "arithmetic:chain"},
    "algo": {"base": "grpo"},
    "train": {"steps": 3, "updates_per_step": 1},
}


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_every_recipe_is_what_its_name_says(path):
    recipe = load_recipe(path)
    standing = judge_recipe(recipe)
    assert standing.conforms, standing.sentence
    tables = tomllib.loads(path.read_text())
    assert is_recipe(path)
    assert build_recipe(tomllib.loads(to_toml(recipe))) == recipe
    named = {"dr-grpo": "Dr.GRPO", "reinforce-pp": "REINFORCE++ baseline", "lite-ppo": "Lite PPO"}
    stem = path.stem.removeprefix("tiny-").removeprefix("smollm2-135m-")
    algorithm = named.get(stem) or ("DAPO" if stem == "quickstart" else stem.partition("-")[0].upper())
    assert standing.sentence.startswith(algorithm)
    assert tables["algo"]["base"] in PRESETS
    assert make_objective(recipe.algo).eps_high == recipe.algo.eps_high


def test_all_recipes_are_there():
    stems = {p.stem for p in RECIPES}
    bases = {f"{size}-{base}" for size in ("tiny", "smollm2-135m") for base in PRESETS}
    large = {"dapo-qwen2.5-32b", "grpo-qwen2.5-32b", "dcpo-qwen2.5-math-7b", "grpo-qwen2.5-math-7b"}
    neighbours = {f"tiny-{n}" for n in ("dr-grpo", "gspo", "cispo", "gmpo", "rloo", "reinforce-pp", "lite-ppo")}
    assert stems == bases | large | neighbours | {"quickstart"}
    assert len(neighbours) == len(NEIGHBOURS)
    known = {load_recipe(FOLDER / f"{stem}.toml").known_as for stem in neighbours}
    assert known == set(NEIGHBOURS)


@pytest.mark.parametrize("size", ["tiny", "smollm2-135m"])
def test_the_base_recipes_differ_in_the_algorithm_only(size):
    tables = [tomllib.loads((FOLDER / f"{size}-{base}.toml").read_text()) for base in PRESETS]
    for table in tables:
        assert table.pop("algo")["base"] in PRESETS
    assert tables[0] == tables[1] == tables[2]


@pytest.mark.parametrize(
    "pair", [("dapo-qwen2.5-32b", "grpo-qwen2.5-32b"), ("dcpo-qwen2.5-math-7b", "grpo-qwen2.5-math-7b")]
)
def test_the_published_ones_and_their_baselines_differ_in_the_algorithm_only(pair):
    a, b = (tomllib.loads((FOLDER / f"{name}.toml").read_text()) for name in pair)
    for table in (a, b):
        del table["algo"]
        table["reward"] = {"verifier": table["reward"]["verifier"]}
    assert a == b


def test_the_paper_in_numbers():
    r = load_recipe(FOLDER / "dapo-qwen2.5-32b.toml")
    assert (r.algo.eps_low, r.algo.eps_high, r.L_max, r.L_cache, r.algo.kl_coef) == (0.2, 0.28, 20480, 4096, 0.0)
    assert (r.rollout.prompts_per_step, r.rollout.group_size, r.train.updates_per_step) == (512, 16, 16)
    assert r.rollout.prompts_per_step * r.rollout.group_size / r.train.updates_per_step == 512
    assert (r.train.lr, r.train.warmup_steps, r.eval.k, r.eval.top_p, r.deviations) == (1e-6, 20, 32, 0.7, {})


@pytest.mark.parametrize(
    "name", ["dapo-qwen2.5-32b", "grpo-qwen2.5-32b", "dcpo-qwen2.5-math-7b", "grpo-qwen2.5-math-7b"]
)
def test_every_line_of_a_published_recipe_says_where_it_is_from(name):
    for line in (FOLDER / f"{name}.toml").read_text().splitlines():
        if " = " in line and not line.startswith(("#", "base")):
            assert line.partition("#")[2].strip(), line


def test_a_neighbour_is_known_by_all_its_settings():
    for name, changes in NEIGHBOURS.items():
        assert build_recipe(RAW, changes).known_as == name
        without = dict(list(changes.items())[:-1])
        assert build_recipe(RAW, without).known_as != name
    assert build_recipe(RAW, {**NEIGHBOURS["RLOO"], "algo.eps_high": 0.9}).known_as == "RLOO"  # which has no bounds
    assert [build_recipe({**RAW, "algo": {"base": b}}).known_as for b in PRESETS] == [b.upper() for b in PRESETS]


CONTRADICTIONS = [
    ("algo.length=mask-truncated algo.L_cache=3", "masking truncated responses and punishing them are alternatives"),
    ("algo.advantage=smooth algo.filter=resample", 'confirm with algo.allow_smooth_filter = true'),
    ("algo.advantage=smooth algo.filter=drop", "throws away the groups from which"),
    ("algo.allow_smooth_filter=true", "there is no such pair"),
    ("algo.ratio=none train.updates_per_step=2", "set train.updates_per_step = 1"),
    ("algo.ratio=none algo.outside=mask", "has no ratio to bound"),
    ("algo.ratio=none algo.dual_clip=3", "has no ratio to bound"),
    ("algo.ratio=sequence algo.bounds=adaptive", "is a function of a token's probability"),
    ("algo.ratio=token-geometric algo.bounds=total-variation", "is a function of a token's probability"),
    ("algo.ratio=token-geometric algo.outside=mask", "clips pessimistically"),
    ("algo.ratio=token-geometric algo.dual_clip=3", "belongs to the clipped minimum"),
    ("algo.outside=clip-weight algo.dual_clip=3", "belongs to the clipped minimum"),
    ("algo.dual_clip=0.5", "algo.dual_clip = 0.5 must be above 1, or 0 for none"),
    ("algo.eps_low=1 algo.eps_high=1", "the lower bound 1 - eps_low would be 0; use less than 1"),
    ("algo.eps_high=0.1", "algo.eps_high = 0.1 is below algo.eps_low = 0.2; swap them"),
    ("algo.kl_coef=0 algo.kl_in=reward",  "have no effect with algo.kl_coef = 0"),
    ("algo.kl_coef=0 algo.kl_estimator=k1", "algo.kl_estimator = 'k1' have no effect with algo.kl_coef = 0"),
    ("algo.ratio=none algo.filter=resample rollout.surplus=carry", "trains on them; use rollout.surplus"),
    ("algo.advantage=smooth algo.filter=resample algo.allow_smooth_filter=true algo.kl_in=reward", "leaves some out"),
    ("algo.correction=truncate-token algo.ratio=sequence", 'use algo.correction = "truncate-sequence"'),
    ("algo.rho_high=3", 'algo.correction = "off" does not use them'),
    ("algo.correction=truncate-token algo.rho_low=0.3", 'is used by algo.correction = "mask-token" only'),
    ("algo.filter=drop algo.aggregation=token-mean-legacy", 'use algo.filter = "drop-rescale"'),
    ("algo.filter=drop algo.kl_in=reward", "needs log-probabilities of every group whose reward counts"),
    ("rollout.surplus=carry", 'algo.filter = \'none\' generates none; use rollout.surplus = "requeue"'),
    ("reward.no_answer=2", "reward.no_answer = 2.0"),
]  # fmt: skip


@pytest.mark.parametrize(("overrides", "says"), CONTRADICTIONS, ids=[c[0] for c in CONTRADICTIONS])
def test_what_contradicts_itself_is_refused_with_the_reason(overrides, says):
    with pytest.raises(ConfigError) as error:
        build_recipe(RAW, dict(parse_override(o) for o in overrides.split()))
    assert says in str(error.value)


@pytest.mark.parametrize(
    "overrides",
    [
        "algo.advantage=smooth algo.filter=resample algo.allow_smooth_filter=true",
        "algo.ratio=sequence algo.bounds=log algo.dual_clip=3 algo.correction=truncate-sequence",
        "algo.bounds=total-variation algo.outside=mask algo.correction=mask-token algo.rho_low=0.5 algo.rho_high=5",
        "algo.eps_low=5 algo.outside=clip-weight",
        "algo.kl_in=reward algo.kl_estimator=k1 algo.filter=drop-rescale",
        "algo.filter=drop algo.aggregation=constant algo.length=mask-truncated",
    ],
)
def test_what_does_not_contradict_itself_is_allowed(overrides):
    recipe = build_recipe(RAW, dict(parse_override(o) for o in overrides.split()))
    assert recipe.deviations
    assert recipe.known_as is None


@pytest.mark.parametrize(
    ("base", "overrides", "claim", "conforms", "says"),
    [
        ("dapo", {}, None, True, "DAPO by its settings; what a run did is for its record to show"),
        ("dapo", {"algo.eps_high": 0.3}, None, True, "DAPO with named departures, by its settings: algo.eps_high = 0.3"),
        ("dapo", {"algo.eps_high": 0.2}, None, False, "not DAPO: algo.eps_high = 0.2 (DAPO: 0.28)"),
        ("dapo", {"algo.aggregation": "prompt-mean"}, None, True, "DAPO with named departures"),
        ("dapo", {"algo.aggregation": "sequence-mean"}, None, False, "not DAPO: algo.aggregation = 'sequence-mean'"),
        ("dapo", {"algo.filter": "none"}, None, False, "not DAPO: algo.filter = 'none' (DAPO: 'resample')"),
        ("grpo", {"algo.filter": "resample"}, "dapo", False, "not DAPO: "),
        ("grpo", {"algo.kl_coef": 0.0}, None, True, "GRPO with named departures"),
        ("grpo", {"algo.eps_high": 0.28}, None, False, "not GRPO: algo.eps_high = 0.28"),
        ("grpo", NEIGHBOURS["GSPO"], None, True, "GSPO by its settings (base: GRPO)"),
        ("grpo", NEIGHBOURS["GSPO"], "grpo", False, "not GRPO (its settings are those of GSPO): algo.ratio = 'sequence'"),
        ("dcpo", {"algo.aggregation": "sequence-mean"}, None, False, "not DCPO: algo.aggregation"),
        ("dcpo", {"reward.incorrect": -1.0}, None, True, "DCPO with named departures"),
    ],
)  # fmt: skip
def test_a_recipe_is_judged_by_its_settings(base, overrides, claim, conforms, says):
    standing = judge_recipe(build_recipe({**RAW, "algo": {"base": base}}, overrides), claim)
    assert standing.conforms == conforms
    assert standing.sentence.startswith(says)


def test_an_unknown_claim():
    with pytest.raises(ValueError, match="--claim 'ppo' is unknown"):
        judge_recipe(build_recipe(RAW), "ppo")


def check(*arguments, code=0):
    done = subprocess.run([sys.executable, "-m", "dapo", "check", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_check_takes_recipes_by_name_and_by_file(tmp_path):
    assert "verdict: DAPO by its settings" in check("tiny-dapo")
    assert "algo.filter = 'none' (DAPO: 'resample')\n" in check(FOLDER / "tiny-grpo.toml", "--claim", "dapo", code=3)
    assert json.loads(check("tiny-gspo", "--json"))["sentence"] == "GSPO by its settings (base: GRPO)"
    assert "is unknown" in check("tiny-dapo", "--claim", "ppo", code=2)
    assert "neither a file nor a packaged recipe" in check("nonsense", code=2)
    assert "--card needs a run directory" in check("tiny-dapo", "--card", code=2)
    (tmp_path / "bad.toml").write_text('[algo]\nbase = "dapo"\nfilter = "x"\n')
    assert "algo.filter = 'x'" in check(tmp_path / "bad.toml", code=2)
