"""Two steps of DAPO on the packaged tiny model, and the invariants that must hold on any machine."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from dapo.config import load_recipe
from dapo.conformance.evidence import Evidence
from dapo.conformance.judge import judge
from dapo.launch.console import StepConsole
from dapo.launch.local import prepare, start

SMALL = {
    "train.steps": 2, "train.save_every": 2, "rollout.prompts_per_step": 4, "train.updates_per_step": 2,
    "eval.suites": [], "train.warmup_steps": 0, "launch.threads": 1,
}  # fmt: skip
GAP_LIMIT = 1e-3


def run_selftest(recipes: Path) -> Iterator[tuple[str, bool, str]]:
    """(what, whether it holds, the figure) of each check."""
    recipe = load_recipe(recipes / "tiny-dapo.toml", SMALL)
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        with StepConsole(Console(quiet=True), 2, 0) as view:
            local = start(prepare(recipe, recipes), out, resume=False, view=view)
            with local.run:
                local.train()
        evidence = Evidence(out)
        steps = evidence.steps
        yield "training", len(steps) == 2, f"{len(steps)} steps, accuracy before filtering {steps[-1]['accuracy']:.0%}"
        gap = max(s["gap"]["max"] for s in steps)
        yield "engine against trainer", gap < GAP_LIMIT, f"largest log-probability difference {gap:.1e} nats in float32"
        for f in judge(evidence, "dapo").findings:
            if f.clause.part in ("old policy", "ledger", "advantage", "token-level loss"):
                yield f.clause.part, f.verdict == "pass", f.evidence
