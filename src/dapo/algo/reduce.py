"""How token losses become one number: every reading is a weight for each token, fixed before the forward pass.

The loss of an update is sum_ij weight_i * loss_ij over all its sequences i and their tokens j. As the weights come from
the lengths of the *whole* mini-batch, cutting it into micro-batches or ranks and adding up changes nothing, nor
does padding. `token_mean_legacy` is the exception by nature: it is the mean of micro-batch means.

All functions: length_B (tokens of each response that enter the loss, >= 0) -> weight_B, one weight for every token of a
sequence. A batch without any token has weights 0. Source: ALGORITHMS 1.3, 3 and 6.
"""

import torch
from torch import Tensor


def _inverse(count: Tensor) -> Tensor:
    """1 / count, and 0 where count is 0."""
    return torch.where(count > 0, 1 / count.clamp(min=1), torch.zeros_like(count))


def token_mean(length_B: Tensor) -> Tensor:
    """Every token of the mini-batch weighs the same."""
    return torch.ones_like(length_B) * _inverse(length_B.sum())


def prompt_mean(length_B: Tensor, group_B: Tensor) -> Tensor:
    """DAPO eq. 8 to the letter: the token mean inside each group, then the mean over groups (group_B: group numbers)."""
    _, index_B = torch.unique(group_B, return_inverse=True)
    n_groups = int(index_B.max()) + 1 if length_B.numel() else 1
    tokens_P = torch.zeros(n_groups, dtype=length_B.dtype, device=length_B.device).index_add(0, index_B, length_B)
    return _inverse(tokens_P)[index_B] / n_groups


def token_mean_legacy(length_B: Tensor, micro_batch_B: Tensor) -> Tensor:
    """The original run's code: the token mean inside each micro-batch, then the mean over micro-batches.

    micro_batch_B: the number of the micro-batch of each sequence. Depends on the cut, by nature.
    """
    return prompt_mean(length_B, micro_batch_B)


def sequence_mean(length_B: Tensor) -> Tensor:
    """GRPO: the token mean inside each response, then the mean over responses."""
    return _inverse(length_B) / max(1, length_B.numel())


def sequence_sum(length_B: Tensor) -> Tensor:
    """The token sum inside each response, then the mean over responses."""
    return torch.ones_like(length_B) / max(1, length_B.numel())


def only_token_mean(length_B: Tensor) -> Tensor:
    """DCPO (OTM): the token mean inside each response, and the sum over responses."""
    return _inverse(length_B)


def constant(length_B: Tensor, horizon: int) -> Tensor:
    """Dr.GRPO: the token sum over a constant length, then the mean over responses. `horizon` never follows the padding."""
    return sequence_sum(length_B) / horizon
