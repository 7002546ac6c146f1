"""Prefix-tree packing: many token sequences as rows in which every shared prefix stands once.

A row holds a tree of tokens. Each token attends to its ancestors and to itself, and its position is its depth, so what
the model computes for it is what it would compute in the plain sequence; equal prefixes (a system prompt, the prompt
shared by G responses, the first words of replies that begin alike) are computed once, forward and backward.
Exact by construction; tests/test_packing.py compares it with one row per sequence.

Left out: models with sliding-window or linear attention, for which ancestors are not the whole context.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Packed:
    """R rows of n columns (padded). A node is a column of a row, numbered row * n + column.

    ids_Rn, position_Rn: token and depth of each node. mask_R1nn: True where the query (third axis) may see the key.
    path: for each sequence, the nodes of its tokens in order.
    """

    ids_Rn: Tensor
    position_Rn: Tensor
    mask_R1nn: Tensor
    path: tuple[np.ndarray, ...]

    @property
    def n_rows(self) -> int:
        return self.ids_Rn.shape[0]

    @property
    def n_columns(self) -> int:
        return self.ids_Rn.shape[1]


class Row:
    """A tree under construction, and which sequences are in it (`members`, `paths`).

    Nodes are numbered in order of creation, so a parent comes before its children.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.depth: list[int] = []
        self.children: dict[tuple[int, int], int] = {}  # (parent, token) -> node; the root's parent is -1
        self.paths: list[np.ndarray] = []
        self.members: list[int] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def shared(self, tokens: Sequence[int]) -> int:
        """How many leading tokens of the sequence are in the tree already."""
        node = -1
        for i, token in enumerate(tokens):
            found = self.children.get((node, token))
            if found is None:
                return i
            node = found
        return len(tokens)

    def add(self, number: int, tokens: Sequence[int]) -> None:
        self.members.append(number)
        path, node = [], -1
        for depth, token in enumerate(tokens):
            child = self.children.get((node, token))
            if child is None:
                child = self.children[(node, token)] = len(self.tokens)
                self.tokens.append(token)
                self.depth.append(depth)
            path.append(child)
            node = child
        self.paths.append(np.array(path, dtype=np.int64))

    def visible(self, size: int) -> np.ndarray:
        """(size, size) ancestor-or-self matrix; padding columns see themselves only, so that no softmax is empty."""
        see = np.eye(size, dtype=bool)
        done = 0
        for path in self.paths:
            new = path[np.searchsorted(path, done) :]  # nodes of a path ascend, and those of earlier paths are below
            if len(new):
                see[np.ix_(new, path)] = np.tri(len(new), len(path), len(path) - len(new), dtype=bool)
                done = int(path[-1]) + 1
        return see


def build_rows(sequences: Sequence[Sequence[int]], row_tokens: int) -> list[Row]:
    """Put sequences, in order, into trees of at most `row_tokens` nodes (or one sequence, if that is longer).

    Neighbours share best: give the responses of a prompt one after the other. Errors: ValueError if a sequence is empty.
    """
    rows = [Row()]
    for number, tokens in enumerate(sequences):
        if not len(tokens):
            raise ValueError("cannot pack an empty sequence")
        if rows[-1].paths and len(rows[-1]) + len(tokens) - rows[-1].shared(tokens) > row_tokens:
            rows.append(Row())
        rows[-1].add(number, tokens)
    return rows


def stack(rows: Sequence[Row], device: torch.device) -> Packed:
    """Rows as tensors, padded to the longest. The sequences are numbered row by row."""
    size = max(len(row) for row in rows)
    ids = np.zeros((len(rows), size), dtype=np.int64)
    position = np.zeros((len(rows), size), dtype=np.int64)
    for r, row in enumerate(rows):
        ids[r, : len(row)] = row.tokens
        position[r, : len(row)] = row.depth
    mask = np.stack([row.visible(size) for row in rows])[:, None]
    return Packed(
        torch.from_numpy(ids).to(device),
        torch.from_numpy(position).to(device),
        torch.from_numpy(mask).to(device),
        tuple(path + r * size for r, row in enumerate(rows) for path in row.paths),
    )


def pack(sequences: Sequence[Sequence[int]], row_tokens: int, device: torch.device) -> Packed:
    """`build_rows` and `stack` in one: sequences keep their order."""
    return stack(build_rows(sequences, row_tokens), device)
