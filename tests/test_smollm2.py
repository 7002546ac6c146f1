"""A few real steps of SmolLM2-135M-Instruct: the quickstart's recipe, cut short. scripts/test fetches the model."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
from test_run import ENV, steps_of

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct"


def test_three_steps_of_the_quickstart(tmp_path):
    assert (MODEL / "CONVERTED.txt").is_file(), "run scripts/fetch_smollm2.py first, or scripts/test"
    out = tmp_path / "run"
    overrides = [
        "train.steps=3", "rollout.prompts_per_step=4", "train.updates_per_step=2", "data.source=arithmetic:one_digit",
        "eval.size=5", "eval.k=2", "launch.threads=1", "train.save_every=3",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "dapo", "train", "recipes/quickstart.toml", *overrides, "--out", str(out)],
        capture_output=True, text=True, env=ENV, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: DAPO" in done.stdout
    steps = steps_of(out)
    assert len(steps) == 3
    for s in steps:
        assert s["first_ratio_deviation"] <= 1e-6  # in bfloat16
        assert s["gap"]["mean"] < 0.1
        assert all(u["applied"] and math.isfinite(u["grad_norm"]) and u["grad_norm"] > 0 for u in s["updates"])
    rows = pq.read_table(out / "rollouts" / "step-000001.parquet").to_pylist()
    assert any(r["text"].startswith("Answer: ") for r in rows)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["model"]["dtype"] in ("bfloat16", "float32")


def test_the_tokenizer_keeps_its_digits():
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    assert tokenizer.convert_ids_to_tokens(tokenizer("\n\n1234").input_ids) == ["ĊĊ", "1", "2", "3", "4"]
    assert tokenizer.eos_token_id == 2
