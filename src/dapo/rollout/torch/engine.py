"""The embedded engine: prefill in prefix trees, decode all active rows together, refill a row as soon as it is free.

It generates with the very model object that the trainer updates, so `load` copies nothing in local mode.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dapo.models.loading import hidden_states, output_layer
from dapo.models.packing import pack
from dapo.rollout.torch.cache import Capture, RowCache
from dapo.rollout.torch.sampler import draw, uniform
from dapo.rollout.torch.scheduler import Row, Scheduler
from dapo.types import Completion, Finish, Request, Sampling

PREFILL_TOKENS = 1024  # prompts are prefilled ahead of need, up to about so many tokens at once


class TorchEngine:
    """Continuous batching over one model. `eos` ends a response; at most `max_rows` responses run at a time."""

    def __init__(self, model: Any, eos: frozenset[int], max_rows: int) -> None:
        self._model = model
        self._device = next(model.parameters()).device
        self._eos = eos
        self._scheduler = Scheduler(max_rows)
        self._cache = RowCache(max_rows)
        self._prompts: dict[int, tuple[Tensor, Tensor]] = {}  # group -> keys and values, logits after the prompt
        self._version = 0

    def submit(self, requests: Iterable[Request]) -> None:
        self._scheduler.add(requests)

    def load(self, weights: Mapping[str, Any] | None, version: int) -> None:
        """None: the model is shared and already holds the new weights. What older weights computed is forgotten."""
        if weights is not None:
            with torch.no_grad():
                for name, parameter in self._model.named_parameters():
                    parameter.copy_(weights[name])
        self._version = version
        self._prompts.clear()

    @torch.no_grad()
    def poll(self) -> list[Completion]:
        scheduler = self._scheduler
        done: list[Completion] = []
        while not done and (scheduler.waiting or scheduler.active):
            done += self._refill()
            if scheduler.active:
                done += self._decode()
        return done

    def cancel(self, group_ids: Collection[int]) -> list[Completion]:
        ids = set(group_ids)
        stopped = [row.complete("cancelled", self._version) for row in self._scheduler.drop_waiting(ids)]
        for i in reversed(range(len(self._scheduler.active))):
            row = self._scheduler.active[i]
            if row.request.group_id in ids:
                stopped.append(row.complete("cancelled", self._version))
                self._retire(i)
        for group in ids & self._prompts.keys():
            del self._prompts[group]
        return stopped

    def _refill(self) -> list[Completion]:
        """Start waiting requests in free rows; their first token comes from the prompt's last position."""
        done: list[Completion] = []
        while self._scheduler.waiting and self._scheduler.free_rows:
            if self._scheduler.waiting[0].group_id not in self._prompts:
                self._prefill()
            ready = self._ready()
            first = len(self._scheduler.active)
            rows = self._scheduler.start(ready)
            logits = torch.stack([self._prompts[row.request.group_id][1] for row in rows])
            for i, row in enumerate(rows):
                prompt = row.request.prompt_ids
                room = len(prompt) + row.request.sampling.max_new_tokens
                self._cache.put(first + i, self._prompts[row.request.group_id][0], room)
            self._forget_started_prompts()
            done += self._append(rows, logits)
        return done

    def _ready(self) -> int:
        """How many requests at the head of the queue have a prefilled prompt and a free row."""
        count = 0
        for request in self._scheduler.waiting:
            if count == self._scheduler.free_rows or request.group_id not in self._prompts:
                break
            count += 1
        return count

    def _forget_started_prompts(self) -> None:
        waiting = {request.group_id for request in self._scheduler.waiting}
        for group in self._prompts.keys() - waiting:
            del self._prompts[group]

    def _prefill(self) -> None:
        """Compute the prompts of the next waiting groups, at least one."""
        groups: list[Request] = []
        tokens = 0
        for request in self._scheduler.next_groups():
            if request.group_id in self._prompts:
                continue
            tokens += len(request.prompt_ids)
            if groups and tokens > PREFILL_TOKENS:
                break
            groups.append(request)
        packed = pack([r.prompt_ids for r in groups], PREFILL_TOKENS // 2, self._device)
        capture = Capture()
        hidden_ND = hidden_states(self._model, packed, kv_store=capture).flatten(0, 1)
        last = torch.as_tensor(np.array([path[-1] for path in packed.path]), device=self._device)
        logits_PV = self._logits(hidden_ND[last])
        for request, kv, logits_V in zip(groups, capture.of_sequences(packed), logits_PV, strict=True):
            self._prompts[request.group_id] = (kv, logits_V)

    def _decode(self) -> list[Completion]:
        """One token for every active row."""
        rows = self._scheduler.active
        position_N = torch.tensor([row.next_position for row in rows], device=self._device)
        mask = self._cache.begin_step(position_N)
        out = self._model.base_model(
            input_ids=torch.tensor([[row.tokens[-1]] for row in rows], device=self._device),
            position_ids=position_N[:, None],
            attention_mask=mask,
            use_cache=False,
            kv_store=self._cache,
        )
        return self._append(list(rows), self._logits(out.last_hidden_state[:, 0]))

    def _logits(self, hidden_ND: Tensor) -> Tensor:
        weight_VD, bias_V = output_layer(self._model)
        return torch.nn.functional.linear(hidden_ND, weight_VD, bias_V)

    def _append(self, rows: list[Row], logits_NV: Tensor) -> list[Completion]:
        """Draw a token for each of `rows`, and retire those that it ends."""
        seeds = np.array([row.request.seed for row in rows], dtype=np.uint64)
        u_N = torch.from_numpy(uniform(seeds, np.array([len(row.tokens) for row in rows]))).to(self._device)
        by_sampling: dict[Sampling, list[int]] = {}
        for i, row in enumerate(rows):
            by_sampling.setdefault(row.request.sampling, []).append(i)
        for sampling, index in by_sampling.items():
            every = len(index) == len(rows)
            token_N, logp_N = draw(logits_NV if every else logits_NV[index], sampling, u_N if every else u_N[index])
            for i, token, logp in zip(index, token_N.tolist(), logp_N.tolist(), strict=True):
                rows[i].tokens.append(token)
                rows[i].logp.append(logp)
        return self._retire_finished()

    def _retire_finished(self) -> list[Completion]:
        done = []
        for i in reversed(range(len(self._scheduler.active))):
            row = self._scheduler.active[i]
            finish: Finish | None = None
            if row.tokens[-1] in self._eos:
                finish = "stop"
            elif len(row.tokens) >= row.request.sampling.max_new_tokens:
                finish = "length"
            if finish is not None:
                done.append(row.complete(finish, self._version))
                self._retire(i)
        return done[::-1]

    def _retire(self, i: int) -> None:
        moved = self._scheduler.retire(i)
        if moved is not None:
            self._cache.move(moved, i, self._scheduler.active[i].next_position)
