"""The policy: log-probabilities of a batch, and one clipped update on a mini-batch (one process, CPU or one GPU)."""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from dapo.algo.diagnostics import Observed
from dapo.algo.objective import Objective, policy_loss
from dapo.models.loading import hidden_states, output_layer
from dapo.models.logprobs import chosen_logprobs
from dapo.train.batch import MicroBatch, MiniBatch
from dapo.train.optim import MasterAdamW


@dataclass(frozen=True)
class Update:
    """What one gradient update did, and by which numbers. `applied` False: not finite, and nothing was changed."""

    loss: float
    grad_norm: float
    applied: bool
    lr: float
    entropy: float
    observed: Observed
    objective: Objective


class Policy(Protocol):
    """The seam between the loop and whatever holds the weights."""

    def logprobs(self, batches: Sequence[MiniBatch], reference: bool = False) -> list[list[Tensor]]:
        """Log-probabilities (B, T) of each micro-batch of each mini-batch, without gradient."""

    def update(
        self, batch: MiniBatch, logp_old: Sequence[Tensor], logp_ref: Sequence[Tensor] | None, lr: float
    ) -> Update:
        """One gradient update."""

    def weights(self) -> Mapping[str, Tensor] | None:
        """Weights for the engine; None if the engine shares the model."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """(weights, optimiser state) for a checkpoint."""

    def load_state(self, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None: ...


class LocalPolicy:
    """A Hugging Face model with float32 master weights; `temperature` is that of sampling."""

    def __init__(
        self, model: Any, optimizer: MasterAdamW, objective: Objective, temperature: float, reference: bool = False
    ) -> None:
        """`reference`: keep a frozen copy of the model as it is now, for KL divergences."""
        self._model, self._optimizer = model, optimizer
        self._objective, self._temperature = objective, temperature
        self._reference = copy.deepcopy(model).requires_grad_(False) if reference else None

    @torch.no_grad()
    def logprobs(self, batches: Sequence[MiniBatch], reference: bool = False) -> list[list[Tensor]]:
        model = self._reference if reference else self._model
        return [[self._forward(model, micro)[0] for micro in batch.micro] for batch in batches]

    def update(
        self, batch: MiniBatch, logp_old: Sequence[Tensor], logp_ref: Sequence[Tensor] | None, lr: float
    ) -> Update:
        total, entropy, observed = 0.0, 0.0, Observed()
        for i, micro in enumerate(batch.micro):
            logp_BT, entropy_BT = self._forward(self._model, micro)
            loss, seen = policy_loss(
                logp_BT,
                logp_old[i],
                micro.advantage_B,
                micro.mask_BT,
                micro.weight_B,
                self._objective,
                logp_ref[i] if logp_ref is not None else None,
                micro.logp_gen_BT,
            )
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.accumulate()
            total += float(loss.detach())
            entropy += float(entropy_BT[micro.mask_BT].sum())
            observed = observed + seen
        norm = self._optimizer.gradient_norm()
        applied = math.isfinite(total) and math.isfinite(norm)
        if applied:
            self._optimizer.step(lr, norm)
        else:
            self._optimizer.discard()
        return Update(total, norm, applied, lr, entropy, observed, self._objective)

    def weights(self) -> None:
        return None

    def state(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return self._optimizer.weights(), self._optimizer.moments()

    def load_state(self, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        self._optimizer.load(weights, moments)

    def _forward(self, model: Any, micro: MicroBatch) -> tuple[Tensor, Tensor]:
        """(logp_BT, entropy_BT); the padding holds the values of some real token, and the mask leaves it out."""
        hidden_ND = hidden_states(model, micro.packed).flatten(0, 1)
        logp_U, entropy_U = chosen_logprobs(
            hidden_ND[micro.node_U], *output_layer(model), micro.target_U, self._temperature
        )
        return logp_U[micro.place_BT], entropy_U[micro.place_BT]
