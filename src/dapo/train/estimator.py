"""Advantages of a step's responses, and what smooth standardisation remembers of each prompt from step to step."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dapo.algo.smooth import Visits, smooth_advantages
from dapo.train.assemble import BATCH_ADVANTAGES, GROUP_ADVANTAGES
from dapo.types import Group


class AdvantageEstimator:
    """algo.advantage with its memory: {problem id: Visits}, empty but for "smooth"."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._visits: dict[str, Visits] = {}

    def __call__(self, groups: Sequence[Group], penalty: Mapping[int, float] | None = None) -> list[list[float]]:
        """Advantages of the graded rollouts of each group, in order.

        penalty: what is taken from the reward of the n-th graded response of the step (the KL divergence in the reward).
        Each call counts as a visit to the prompts of `groups`.
        """
        rewards, number = [], 0
        for group in groups:
            shaped = [r.reward + r.punishment for r in group.graded]
            if penalty is not None:
                shaped = [reward - penalty[number + i] for i, reward in enumerate(shaped)]
            number += len(shaped)
            rewards.append(torch.tensor(shaped, dtype=torch.float64))
        return [advantage_G.tolist() for advantage_G in self._advantages(groups, rewards)]

    def _advantages(self, groups: Sequence[Group], rewards: list[Tensor]) -> list[Tensor]:
        if not groups:
            return []
        if self._kind == "smooth":
            return [self._visit(group, reward_G) for group, reward_G in zip(groups, rewards, strict=True)]
        if self._kind in BATCH_ADVANTAGES:
            return BATCH_ADVANTAGES[self._kind](rewards)
        return [GROUP_ADVANTAGES[self._kind](reward_G) for reward_G in rewards]

    def _visit(self, group: Group, reward_G: Tensor) -> Tensor:
        before = self._visits.get(group.problem.id, Visits())
        advantage_G, self._visits[group.problem.id] = smooth_advantages(reward_G, before)
        return advantage_G

    def state_dict(self) -> dict[str, Any]:
        return {name: [v.count, v.mean, v.var] for name, v in self._visits.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._visits = {name: Visits(*values) for name, values in state.items()}
