"""Log-probabilities and entropies of chosen tokens without the matrix of all logits.

The output layer is applied in chunks of positions; only the log-normaliser of each position is kept, and the backward
pass computes the logits of a chunk again. Memory: chunk x vocabulary, whatever the batch.
"""

from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = 32 * 2**20  # logits held at a time (fp32: 128 MiB)


def _chunks(n: int, vocabulary: int) -> list[slice]:
    size = max(1, CHUNK_ELEMENTS // vocabulary)
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


class _ChosenLogprobs(torch.autograd.Function):
    """(hidden_ND, weight_VD, bias_V, target_N, temperature) -> (logp_N, entropy_N); the entropy has no gradient."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_N: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        normaliser_N = torch.empty(len(target_N), dtype=torch.float32, device=hidden_ND.device)
        logp_N, entropy_N = torch.empty_like(normaliser_N), torch.empty_like(normaliser_N)
        if hidden_ND.dtype == torch.float64:
            normaliser_N, logp_N, entropy_N = (x.double() for x in (normaliser_N, logp_N, entropy_N))
        for s in _chunks(len(target_N), len(weight_VD)):
            logits_CV = _logits(hidden_ND[s], weight_VD, bias_V, temperature)
            normaliser_N[s] = torch.logsumexp(logits_CV, -1)
            logp_N[s] = logits_CV.gather(1, target_N[s, None])[:, 0] - normaliser_N[s]
            probability_CV = torch.exp(logits_CV - normaliser_N[s, None])
            entropy_N[s] = normaliser_N[s] - torch.einsum("cv,cv->c", probability_CV, logits_CV)
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V, target_N, normaliser_N)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy_N)
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        grad_N = grads[0]
        hidden_ND, weight_VD, bias_V, target_N, normaliser_N = ctx.saved_tensors
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        d_hidden = torch.empty_like(hidden_ND) if need_hidden else None
        accumulate = torch.promote_types(weight_VD.dtype, torch.float32)
        d_weight = torch.zeros_like(weight_VD, dtype=accumulate) if need_weight else None
        d_bias = torch.zeros_like(bias_V, dtype=accumulate) if need_bias and bias_V is not None else None
        for s in _chunks(len(target_N), len(weight_VD)):
            logits_CV = _logits(hidden_ND[s], weight_VD, bias_V, ctx.temperature)
            d_logits = torch.exp(logits_CV - normaliser_N[s, None]).mul_(-grad_N[s, None])
            d_logits.scatter_add_(1, target_N[s, None], grad_N[s, None])
            d_logits = (d_logits / ctx.temperature).to(hidden_ND.dtype)
            if d_hidden is not None:
                d_hidden[s] = d_logits @ weight_VD
            if d_weight is not None:
                d_weight += d_logits.T @ hidden_ND[s]
            if d_bias is not None:
                d_bias += d_logits.sum(0)
        return (
            d_hidden,
            None if d_weight is None else d_weight.to(weight_VD.dtype),
            None if d_bias is None or bias_V is None else d_bias.to(bias_V.dtype),
            None,
            None,
        )


def _logits(hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, temperature: float) -> Tensor:
    logits_CV = torch.nn.functional.linear(hidden_CD, weight_VD, bias_V)
    return logits_CV.to(torch.promote_types(logits_CV.dtype, torch.float32)) / temperature


def chosen_logprobs(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_N: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-probability of target_N and entropy, from the final hidden states that predict them.

    hidden_ND: final hidden states, after the last norm. Logits are divided by `temperature`, so the log-probabilities
    are those of the distribution that was sampled from. Both results are float32 (float64 for float64 input).
    """
    result: tuple[Tensor, Tensor] = _ChosenLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden_ND, weight_VD, bias_V, target_N, temperature
    )
    return result
