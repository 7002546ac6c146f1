"""From admitted groups to micro-batches: loss weights and prefix-tree rows.

Everything that must not depend on the cut is decided here, before any forward pass, from the whole mini-batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dapo.algo.filters import is_informative
from dapo.config import Recipe
from dapo.models.packing import Packed, Row, build_rows, stack
from dapo.train.assemble import loss_weights
from dapo.types import Group
from dapo.types import Sequence as Seq

ROW_TOKENS = 512  # beyond this, attention over other sequences' tokens costs more than sharing prefixes saves


@dataclass(frozen=True)
class MicroBatch:
    """B sequences, T tokens of the longest response, U distinct response tokens in the trees.

    node_U: the node whose final state predicts the token; target_U: the token. place_BT: which of the U tokens stands
    there (0 in the padding). mask_BT: True on tokens that enter the loss. length_B: response tokens, masked or not.
    number_B: the sequence's number in the step. logp_gen_BT: the engine's log-probabilities (0 in the padding).
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
    logp_gen_BT: Tensor


@dataclass(frozen=True)
class MiniBatch:
    """What one gradient update sees: micro-batches, and the numbers that its loss is divided by.

    groups, responses: those trained. denominator_responses, tokens: in the denominators, with filter "drop" those of
    dropped groups too. weight_min, weight_max: of the trained tokens.
    """

    micro: tuple[MicroBatch, ...]
    aggregation: str
    groups: int
    responses: int
    denominator_responses: int
    tokens: int
    weight_min: float
    weight_max: float


def in_loss(group: Group, recipe: Recipe) -> bool:
    """False for groups that filter "drop" keeps in the denominators but not in the loss."""
    return recipe.algo.filter != "drop" or is_informative(group.n_correct, len(group.graded))


def sequences_of(groups: Sequence[Group], recipe: Recipe) -> list[Seq]:
    """The graded responses of all groups, in order; `group` is the position of the group."""
    return [
        Seq(
            group.prompt_ids,
            r.completion.token_ids,
            r.completion.logp_gen,
            i,
            r.completion.finish == "length",
            in_loss(group, recipe),
        )
        for i, group in enumerate(groups)
        for r in group.graded
    ]


def with_advantages(batches: Sequence[MiniBatch], advantage_N: Sequence[float]) -> list[MiniBatch]:
    """The batches with the advantages of the step's sequences, by number."""
    every_N = torch.tensor(advantage_N, dtype=torch.float32)
    return [
        replace(
            batch,
            micro=tuple(
                replace(micro, advantage_B=every_N.to(micro.number_B.device)[micro.number_B]) for micro in batch.micro
            ),
        )
        for batch in batches
    ]


def plan(groups: Sequence[Group], recipe: Recipe, device: torch.device) -> list[MiniBatch]:
    """The mini-batches of a step: whole groups, in order, divided as evenly as they go into train.updates_per_step.

    A partial batch gives fewer or smaller mini-batches, each with its own, right denominators. Advantages are 0 until
    `with_advantages` sets them.
    """
    sequences = sequences_of(groups, recipe)
    numbers = np.cumsum([s.trained for s in sequences]) - 1
    minibatches = []
    for part in np.array_split(np.arange(len(groups)), recipe.train.updates_per_step):
        mine = [i for i, s in enumerate(sequences) if part.size and part[0] <= s.group <= part[-1]]
        if any(sequences[i].trained for i in mine):
            minibatches.append(_minibatch([sequences[i] for i in mine], numbers[mine].tolist(), recipe, device))
    return minibatches


def _minibatch(chosen: Sequence[Seq], numbers: list[int], recipe: Recipe, device: torch.device) -> MiniBatch:
    trained = [i for i, s in enumerate(chosen) if s.trained]
    rows = build_rows([chosen[i].prompt_ids + chosen[i].response_ids for i in trained], ROW_TOKENS)
    cuts = [
        [(row, [trained[m] for m in row.members]) for row in cut] for cut in _cut(rows, recipe.train.micro_batch_tokens)
    ]
    micro_batch_B = torch.zeros(len(chosen), dtype=torch.long)
    for k, cut in enumerate(cuts):
        micro_batch_B[[m for _, members in cut for m in members]] = k
    weight_B, loss_length_B = loss_weights(chosen, recipe, micro_batch_B)
    micro = tuple(_micro_batch(cut, chosen, numbers, weight_B, loss_length_B, device) for cut in cuts)
    used_B = weight_B[trained][loss_length_B[trained] > 0]
    return MiniBatch(
        micro,
        aggregation=recipe.algo.aggregation,
        groups=len({chosen[i].group for i in trained}),
        responses=len(trained),
        denominator_responses=len(chosen),
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
    cut: list[tuple[Row, list[int]]],
    chosen: Sequence[Seq],
    numbers: list[int],
    weight_B: Tensor,
    loss_length_B: Tensor,
    device: torch.device,
) -> MicroBatch:
    packed = stack([row for row, _ in cut], device)
    members = [m for _, mine in cut for m in mine]
    lengths = [len(chosen[m].response_ids) for m in members]
    node_BT = np.zeros((len(members), max(1, *lengths)), dtype=np.int64)
    before_BT = np.zeros_like(node_BT)
    logp_gen_BT = np.zeros(node_BT.shape, dtype=np.float32)
    real_BT = np.arange(node_BT.shape[1]) < np.array(lengths)[:, None]
    for b, (m, path) in enumerate(zip(members, packed.path, strict=True)):
        first = len(chosen[m].prompt_ids)
        node_BT[b, : lengths[b]] = path[first:]
        before_BT[b, : lengths[b]] = path[first - 1 : -1]
        logp_gen_BT[b, : lengths[b]] = chosen[m].logp_gen
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
        advantage_B=torch.zeros(len(members), device=device),
        weight_B=weight_B[members].float().to(device),
        number_B=torch.tensor([numbers[m] for m in members], device=device),
        length_B=torch.tensor(lengths, device=device),
        logp_gen_BT=torch.from_numpy(logp_gen_BT).to(device),
    )
