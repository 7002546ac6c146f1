"""Keys and values of the rows being decoded: dense, the active rows always the first ones.

Shapes: L layers, N rows, K key-value heads, C columns (token positions), D head width.
"""

import torch
from torch import Tensor

from dapo.models.packing import Packed

COLUMN_BLOCK = 32


class Capture:
    """Keeps the keys and values that a prefill computes, layer by layer (a KeyValueStore that adds no past)."""

    def __init__(self) -> None:
        self._layers: list[tuple[Tensor, Tensor]] = []

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        assert layer == len(self._layers)
        self._layers.append((key, value))
        return key, value

    def of_sequences(self, packed: Packed) -> list[Tensor]:
        """For each packed sequence its keys and values, as one tensor (2, L, K, tokens, D)."""
        both = torch.stack([torch.stack([k for k, _ in self._layers]), torch.stack([v for _, v in self._layers])])
        out = []
        for path in packed.path:
            row, columns = path[0] // packed.n_columns, torch.as_tensor(path % packed.n_columns, device=both.device)
            out.append(both[:, :, row].index_select(3, columns))
        return out


class RowCache:
    """Storage for up to `max_rows` rows; grows in columns as needed. A KeyValueStore for one decoding step.

    Keys are kept transposed, so that the product with the queries reads them along contiguous columns; otherwise the
    matrix library copies all of them at every step. The memory is kept until `clear`.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._key: Tensor | None = None  # (L, N, K, D, C)
        self._value: Tensor | None = None  # (L, N, K, C, D)
        self._rows = torch.empty(0, dtype=torch.long)
        self._position_N = torch.empty(0, dtype=torch.long)
        self._columns = 0

    def put(self, row: int, prompt_kv: Tensor, columns: int) -> None:
        """Start `row` with the keys and values of its prompt (2, L, K, tokens, D), with room for `columns` tokens."""
        key, value = self._reserve(prompt_kv, columns)
        n = prompt_kv.shape[3]
        key[:, row, :, :, :n] = prompt_kv[0].transpose(2, 3)
        value[:, row, :, :n] = prompt_kv[1]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` columns of row `source` over row `target`."""
        assert self._key is not None
        assert self._value is not None
        self._key[:, target, :, :, :length] = self._key[:, source, :, :, :length]
        self._value[:, target, :, :length] = self._value[:, source, :, :length]

    def begin_step(self, position_N: Tensor) -> Tensor:
        """Set where the next token of each active row goes; returns the mask (N, 1, 1, columns) of what it may see."""
        self._position_N = position_N
        self._rows = torch.arange(len(position_N), device=position_N.device)
        self._columns = int(position_N.max()) + 1
        see: Tensor = torch.arange(self._columns, device=position_N.device) <= position_N[:, None]
        return see[:, None, None]

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        assert self._key is not None
        assert self._value is not None
        n = len(self._rows)
        keys, values = self._key[layer], self._value[layer]
        keys[self._rows, :, :, self._position_N] = key[:, :, 0]
        values[self._rows, :, self._position_N] = value[:, :, 0]
        return keys[:n, :, :, : self._columns].transpose(2, 3), values[:n, :, : self._columns]

    def clear(self) -> None:
        """Give the memory back."""
        self._key = self._value = None

    def _reserve(self, like: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        have = 0 if self._value is None else self._value.shape[3]
        if self._key is not None and self._value is not None and columns <= have:
            return self._key, self._value
        columns = -(-columns // COLUMN_BLOCK) * COLUMN_BLOCK
        _, layers, heads, _, width = like.shape
        key = like.new_zeros((layers, self._max_rows, heads, width, columns))
        value = like.new_zeros((layers, self._max_rows, heads, columns, width))
        if self._key is not None and self._value is not None:
            key[..., :have] = self._key
            value[:, :, :, :have] = self._value
        self._key, self._value = key, value
        return key, value
