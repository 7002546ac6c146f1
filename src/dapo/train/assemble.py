"""From the recipe's words to the functions and numbers of algo/: the one place where both are known."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dapo.algo import advantages, bounds, clip, correction, kl, ratio, reduce
from dapo.algo.objective import Objective
from dapo.config import Algo, Recipe
from dapo.types import Sequence as Seq

RATIOS = {
    "token": ratio.token_log_ratio, "sequence": ratio.sequence_log_ratio, "token-geometric": ratio.token_log_ratio,
    "none": ratio.token_log_ratio,
}  # fmt: skip
BOUNDS = {
    "fixed": bounds.fixed_bounds, "adaptive": bounds.adaptive_bounds, "log": bounds.log_bounds,
    "total-variation": bounds.total_variation_bounds,
}  # fmt: skip
ACTIONS = {"min": clip.clipped_loss, "clip-weight": clip.weight_clipped_loss, "mask": clip.masked_loss}
WHOLE_ACTIONS = {"token-geometric": clip.geometric_loss, "none": clip.plain_loss}  # by ratio: they leave no choice
ESTIMATORS = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3}
CORRECTIONS = {
    "off": None, "truncate-token": correction.truncated_per_token, "truncate-sequence": correction.truncated_per_sequence,
    "mask-token": correction.masked_per_token,
}  # fmt: skip
GROUP_ADVANTAGES = {
    "group-std": advantages.group_std_advantages, "group-mean": advantages.group_mean_advantages,
    "leave-one-out": advantages.leave_one_out_advantages,
}  # fmt: skip
BATCH_ADVANTAGES = {
    "batch-std": advantages.batch_std_advantages, "batch-whitened": advantages.batch_whitened_advantages,
}  # fmt: skip
RHO_LOW, RHO_HIGH = 0.5, 2.0


def make_objective(algo: Algo) -> Objective:
    """The objective of a recipe's [algo]."""
    return Objective(
        eps_low=algo.eps_low,
        eps_high=algo.eps_high,
        dual_clip=algo.dual_clip or None,
        kl_coef=algo.kl_coef if algo.kl_in == "loss" else 0.0,
        bounds=BOUNDS[algo.bounds],
        ratio=RATIOS[algo.ratio],
        action=WHOLE_ACTIONS.get(algo.ratio) or ACTIONS[algo.outside],
        kl=ESTIMATORS[algo.kl_estimator],
        correction=CORRECTIONS[algo.correction],
        rho_low=algo.rho_low or RHO_LOW,
        rho_high=algo.rho_high or RHO_HIGH,
    )


def loss_weights(sequences: Sequence[Seq], recipe: Recipe, micro_batch_B: Tensor) -> tuple[Tensor, Tensor]:
    """(weight_B, loss_length_B) of a whole mini-batch, by algo.aggregation; masked responses have loss length 0.

    In float64: a float32 sum of lengths is wrong beyond 16 million tokens.
    """
    masked = recipe.algo.length == "mask-truncated"
    lengths = [0 if masked and s.truncated else len(s.response_ids) for s in sequences]
    length_B = torch.tensor(lengths, dtype=torch.float64)
    group_B = torch.tensor([s.group for s in sequences])
    weight_B = {
        "token-mean": lambda: reduce.token_mean(length_B),
        "prompt-mean": lambda: reduce.prompt_mean(length_B, group_B),
        "token-mean-legacy": lambda: reduce.token_mean_legacy(length_B, micro_batch_B),
        "sequence-mean": lambda: reduce.sequence_mean(length_B),
        "sequence-sum": lambda: reduce.sequence_sum(length_B),
        "only-token-mean": lambda: reduce.only_token_mean(length_B),
        "constant": lambda: reduce.constant(length_B, recipe.sampling.max_new_tokens),
    }[recipe.algo.aggregation]()
    return weight_B, length_B
