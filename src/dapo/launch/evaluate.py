"""Evaluate one model, outside a run."""

from pathlib import Path

from dapo.config import Recipe
from dapo.eval.run import SuiteResult, evaluate
from dapo.launch.local import prepare, set_up_torch
from dapo.models.loading import load_model
from dapo.rewards.verifier import make_verifier
from dapo.rollout.torch.engine import TorchEngine
from dapo.train import checkpoint
from dapo.types import Sampling


def model_folder(model: str) -> str:
    """A run directory's newest whole checkpoint; anything else as it stands. Errors: ValueError."""
    run = Path(model)
    if not (run / "recipe.toml").is_file():
        return model
    for path in reversed(checkpoint.listing(run / "checkpoints")):
        checkpoint.verify(path)
        return str(path.resolve())
    raise ValueError(f"{model} has no checkpoint yet; let it run on, or evaluate the model it starts from")


def evaluate_model(model: str, recipe: Recipe, recipe_folder: Path, suites: list[str], k: int) -> list[SuiteResult]:
    """avg@k of `model` on the suites, asked and graded as the recipe says. Errors: ValueError naming key and fix."""
    if not suites:
        raise ValueError("no suite to evaluate on; give --suite or set eval.suites in the recipe")
    changed = recipe.model_copy(
        update={
            "model": recipe.model.model_copy(update={"path": model_folder(model)}),
            "eval": recipe.eval.model_copy(update={"suites": tuple(suites)}),
        }
    )
    prepared = prepare(changed, recipe_folder)
    set_up_torch(changed, prepared.device)
    engine = TorchEngine(
        load_model(prepared.model_path, prepared.dtype, prepared.device, len(prepared.tokens.tokenizer)),
        prepared.tokens.eos,
        recipe.rollout.max_rows,
    )
    verifier = make_verifier(recipe.reward.verifier, recipe.reward.time_limit_s)
    sampling = Sampling(recipe.eval.temperature, recipe.eval.top_p, 0, recipe.sampling.max_new_tokens)
    try:
        return [
            evaluate(suite, engine, verifier, prepared.tokens.decode, sampling, k, recipe.train.seed)
            for suite in prepared.suites
        ]
    finally:
        verifier.close()
