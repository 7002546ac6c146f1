"""From admitted groups to micro-batches: advantages, loss weights, prefix-tree rows.

Everything that must not depend on the cut is decided here, before any forward pass, from the whole mini-batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dapo.algo import reduce
from dapo.algo.advantages import group_mean_advantages, group_std_advantages
from dapo.config import Recipe
from dapo.models.packing import Packed, Row, build_rows, stack
from dapo.types import Group
from dapo.types import Sequence as Seq

ROW_TOKENS = 512  # beyond this, attention over other sequences' tokens costs more than sharing prefixes saves


@dataclass(frozen=True)
class MicroBatch:
    """B sequences, T tokens of the longest response, U distinct response tokens in the trees.

    node_U: the node whose final state predicts the token; target_U: the token. place_BT: which of the U tokens stands
    there (0 in the padding). mask_BT: True on tokens that enter the loss. length_B: response tokens, masked or not.
    number_B: the sequence's number in the step.
    """

    packed: Packed
    node_U: Tensor
    target_U: Tensor
    place_BT: Tensor
    mask_BT: Tensor
    advantage_B: Tensor
    weight_B: Tensor
    number_B: Tensor
    length_B: Tensor


@dataclass(frozen=True)
class MiniBatch:
    """What one gradient update sees: micro-batches, and the numbers that its loss is divided by."""

    micro: tuple[MicroBatch, ...]
    aggregation: str
    groups: int
    responses: int
    tokens: int
    weight_min: float
    weight_max: float


def advantages(group: Group, kind: str) -> list[float]:
    """Advantages of the graded rollouts of a group from their shaped rewards, in order."""
    reward_G = torch.tensor([r.reward + r.punishment for r in group.graded], dtype=torch.float64)
    function = {"group-std": group_std_advantages, "group-mean": group_mean_advantages}[kind]
    return [float(a) for a in function(reward_G)]


def sequences_of(groups: Sequence[Group], kind: str) -> list[Seq]:
    """The graded responses of all groups, with their advantages; `group` is the position of the group."""
    return [
        Seq(group.prompt_ids, r.completion.token_ids, a, i, r.completion.finish == "length")
        for i, group in enumerate(groups)
        for r, a in zip(group.graded, advantages(group, kind), strict=True)
    ]


def loss_weights(sequences: Sequence[Seq], recipe: Recipe, micro_batch_B: Tensor) -> tuple[Tensor, Tensor]:
    """(weight_B, loss_length_B) of a whole mini-batch, by algo.aggregation; masked responses have loss length 0."""
    masked = recipe.algo.length == "mask-truncated"
    length_B = torch.tensor([0.0 if masked and s.truncated else float(len(s.response_ids)) for s in sequences])
    group_B = torch.tensor([s.group for s in sequences])
    weight_B = {
        "token-mean": lambda: reduce.token_mean(length_B),
        "prompt-mean": lambda: reduce.prompt_mean(length_B, group_B),
        "token-mean-legacy": lambda: reduce.token_mean_legacy(length_B, micro_batch_B),
        "sequence-mean": lambda: reduce.sequence_mean(length_B),
        "sequence-sum": lambda: reduce.sequence_sum(length_B),
        "constant": lambda: reduce.constant(length_B, recipe.sampling.max_new_tokens),
    }[recipe.algo.aggregation]()
    return weight_B, length_B


def plan(groups: Sequence[Group], recipe: Recipe, device: torch.device) -> list[MiniBatch]:
    """The mini-batches of a step: whole groups, in order, divided as evenly as they go into train.updates_per_step.

    A partial batch gives fewer or smaller mini-batches, each with its own, right denominators.
    """
    sequences = sequences_of(groups, recipe.algo.advantage)
    minibatches = []
    for part in np.array_split(np.arange(len(groups)), recipe.train.updates_per_step):
        numbers = [i for i, s in enumerate(sequences) if part.size and part[0] <= s.group <= part[-1]]
        if numbers:
            minibatches.append(_minibatch(sequences, numbers, recipe, device))
    return minibatches


def _minibatch(every: Sequence[Seq], numbers: list[int], recipe: Recipe, device: torch.device) -> MiniBatch:
    chosen = [every[n] for n in numbers]
    rows = build_rows([s.prompt_ids + s.response_ids for s in chosen], ROW_TOKENS)
    cuts = _cut(rows, recipe.train.micro_batch_tokens)
    micro_batch_B = torch.zeros(len(chosen), dtype=torch.long)
    for k, cut in enumerate(cuts):
        micro_batch_B[[m for row in cut for m in row.members]] = k
    weight_B, loss_length_B = loss_weights(chosen, recipe, micro_batch_B)
    micro = tuple(_micro_batch(cut, chosen, numbers, weight_B, loss_length_B, device) for cut in cuts)
    used_B = weight_B[loss_length_B > 0]
    return MiniBatch(
        micro,
        aggregation=recipe.algo.aggregation,
        groups=len({s.group for s in chosen}),
        responses=len(chosen),
        tokens=int(loss_length_B.sum()),
        weight_min=float(used_B.min()) if len(used_B) else 0.0,
        weight_max=float(used_B.max()) if len(used_B) else 0.0,
    )


def _cut(rows: list[Row], budget: int) -> list[list[Row]]:
    """Rows, longest first, into micro-batches of at most `budget` tokens with their padding (at least one row each)."""
    cuts: list[list[Row]] = []
    for row in sorted(rows, key=len, reverse=True):
        if cuts and (len(cuts[-1]) + 1) * len(cuts[-1][0]) <= budget:
            cuts[-1].append(row)
        else:
            cuts.append([row])
    return cuts


def _micro_batch(
    rows: list[Row],
    chosen: Sequence[Seq],
    numbers: list[int],
    weight_B: Tensor,
    loss_length_B: Tensor,
    device: torch.device,
) -> MicroBatch:
    packed = stack(rows, device)
    members = [m for row in rows for m in row.members]
    lengths = [len(chosen[m].response_ids) for m in members]
    node_BT = np.zeros((len(members), max(1, *lengths)), dtype=np.int64)
    before_BT = np.zeros_like(node_BT)
    real_BT = np.arange(node_BT.shape[1]) < np.array(lengths)[:, None]
    for b, (m, path) in enumerate(zip(members, packed.path, strict=True)):
        first = len(chosen[m].prompt_ids)
        node_BT[b, : lengths[b]] = path[first:]
        before_BT[b, : lengths[b]] = path[first - 1 : -1]
    node_U, first_U, inverse = np.unique(node_BT[real_BT], return_index=True, return_inverse=True)
    place_BT = np.zeros_like(node_BT)
    place_BT[real_BT] = inverse
    in_loss_BT = real_BT & (loss_length_B[members].numpy() > 0)[:, None]
    return MicroBatch(
        packed=packed,
        node_U=torch.from_numpy(before_BT[real_BT][first_U]).to(device),
        target_U=packed.ids_Rn.flatten()[torch.from_numpy(node_U).to(device)],
        place_BT=torch.from_numpy(place_BT).to(device),
        mask_BT=torch.from_numpy(in_loss_BT).to(device),
        advantage_B=torch.tensor([chosen[m].advantage for m in members], dtype=torch.float32, device=device),
        weight_B=weight_B[members].to(device),
        number_B=torch.tensor([numbers[m] for m in members], device=device),
        length_B=torch.tensor(lengths, device=device),
    )
