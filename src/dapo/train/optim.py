"""AdamW on float32 master weights, whatever the precision of the model; the norm is taken before clipping.

At the learning rates of reinforcement learning, steps below about 0.4 % of a weight vanish in bfloat16, so the weights
that the optimiser moves are float32 and the model holds a rounded copy.
"""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn


def learning_rate(step: int, peak: float, warmup_steps: int, total_steps: int, schedule: str) -> float:
    """The rate of rollout step `step` (from 0): linear warm-up, then constant, or a half cosine down to 0."""
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if schedule == "constant":
        return peak
    done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


class MasterAdamW:
    """Owns the float32 weights and moments of named parameters."""

    def __init__(
        self,
        named: Iterable[tuple[str, nn.Parameter]],
        betas: tuple[float, float],
        weight_decay: float,
        grad_clip: float,
    ) -> None:
        trainable = [(name, p) for name, p in named if p.requires_grad]
        self._names = [name for name, _ in trainable]
        self._parameters = [p for _, p in trainable]
        self._masters = [
            p if p.dtype in (torch.float32, torch.float64) else nn.Parameter(p.detach().float())
            for p in self._parameters
        ]
        self._grad_clip = grad_clip
        self._adam = torch.optim.AdamW(self._masters, lr=0.0, betas=betas, weight_decay=weight_decay, fused=True)

    def accumulate(self) -> None:
        """Add the gradients of a micro-batch, in the model's precision, to the float32 sums."""
        for p, master in zip(self._parameters, self._masters, strict=True):
            if p is master or p.grad is None:
                continue
            if master.grad is None:
                master.grad = p.grad.float()
            else:
                master.grad += p.grad
            p.grad = None

    def gradient_norm(self) -> float:
        """The global norm of what was accumulated."""
        norms = [torch.linalg.vector_norm(m.grad) for m in self._masters if m.grad is not None]
        return float(torch.linalg.vector_norm(torch.stack(norms)))

    def step(self, lr: float, norm: float) -> None:
        """Clip to grad_clip, given the norm; update; round into the model."""
        if norm > self._grad_clip:
            torch._foreach_mul_([m.grad for m in self._masters if m.grad is not None], self._grad_clip / norm)
        for group in self._adam.param_groups:
            group["lr"] = lr
        self._adam.step()
        self.refresh()
        self.discard()

    def discard(self) -> None:
        """Forget the gradients."""
        self._adam.zero_grad(set_to_none=True)
        for p in self._parameters:
            p.grad = None

    @torch.no_grad()
    def refresh(self) -> None:
        """Round the master weights into the model's parameters."""
        pairs = [(p, m) for p, m in zip(self._parameters, self._masters, strict=True) if p is not m]
        if pairs:
            torch._foreach_copy_([p for p, _ in pairs], [m for _, m in pairs])

    def weights(self) -> dict[str, Tensor]:
        """The float32 weights by parameter name."""
        return {name: m.detach() for name, m in zip(self._names, self._masters, strict=True)}

    def moments(self) -> dict[str, Tensor]:
        """Adam's state as flat tensors: exp_avg.NAME, exp_avg_sq.NAME, step.NAME."""
        out = {}
        for name, master in zip(self._names, self._masters, strict=True):
            for key, value in self._adam.state.get(master, {}).items():
                out[f"{key}.{name}"] = value
        return out

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        """Restore `weights()` and `moments()`. Errors: KeyError if a weight is missing."""
        for name, master in zip(self._names, self._masters, strict=True):
            master.copy_(weights[name])
            if moments:
                self._adam.state[master] = {
                    key: moments[f"{key}.{name}"].to(master.device, copy=True)
                    for key in ("step", "exp_avg", "exp_avg_sq")
                }
        self.refresh()
