"""The attention that trainer and engine share, registered with transformers under the name "dapo".

Grouped queries are folded into the rows of one matrix product, so keys and values are never repeated; on CPUs this beats
both stock paths at the lengths of reasoning on small models (docs/LOG.md). An engine passes `kv_store=` through the
model's keyword arguments to keep and extend keys and values; nothing here depends on the cache classes of transformers.
"""

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

NAME = "dapo"


class KeyValueStore(Protocol):
    """Receives the new keys and values (B, K heads, new tokens, D) of a layer; returns all that the queries may see."""

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]: ...


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    kv_store: KeyValueStore | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Scaled dot-product attention with a boolean mask (B, 1, queries, keys), True where a query may see a key.

    query: (B, H, queries, D); key, value: (B, K, new tokens, D) with K a divisor of H. Returns (B, queries, H, D).
    Errors: ValueError for soft-capped scores and sliding windows, which prefix trees cannot do exactly.
    """
    if softcap is not None or sliding_window is not None:
        raise ValueError(f"attention with softcap = {softcap}, sliding_window = {sliding_window} is not supported")
    if kv_store is not None:
        key, value = kv_store.extend(module.layer_idx, key, value)  # type: ignore[arg-type]
    b, h, t, d = query.shape
    k = key.shape[1]
    folded = query.reshape(b, k, h // k * t, d)
    score = torch.matmul(folded, key.transpose(2, 3)).view(b, k, h // k, t, -1)
    score = score.to(torch.promote_types(score.dtype, torch.float32)) * (scaling if scaling is not None else d**-0.5)
    score = score.masked_fill(~attention_mask[:, :, None], float("-inf"))
    weight = torch.softmax(score, dim=-1).to(query.dtype)
    out = torch.matmul(weight.view(b, k, h // k * t, -1), value).view(b, h, t, d)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, grouped_attention)
