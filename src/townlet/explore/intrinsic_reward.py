"""Intrinsic reward: the interface of novelty bonuses, their construction, and novelty maps."""

from __future__ import annotations

from typing import Final, Protocol

import torch
from torch import Tensor

from townlet.errors import TownletError
from townlet.explore.count_based import CountBonus
from townlet.explore.rnd import RandomNetworkDistillation
from townlet.explore.spec import CountsSpec, RndSpec
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.state import State
from townlet.rng import Streams

CHUNK: Final = 4096  # observations of a map that are evaluated at once


class IntrinsicReward(Protocol):
    """Novelty of observations. Unweighted: agents apply the weight when they compute returns or targets."""

    def reward(self, obs: Tensor) -> Tensor:
        """Intrinsic reward [N] of the observations reached [N, D]; updates counts or normalization."""

    def novelty(self, obs: Tensor) -> Tensor:
        """Intrinsic reward [B] of any observations [B, D], without side effects."""

    def learn(self, obs: Tensor) -> dict[str, float]:
        """Train on observations [B, D], which lowers their novelty; returns metrics."""

    def state(self) -> State:
        """Everything that determines future rewards."""

    def restore(self, state: State) -> None:
        """Resume exactly from a state."""


def make_intrinsic_reward(
    spec: RndSpec | CountsSpec | None, layout: ObservationLayout, streams: Streams, device: str = "cpu"
) -> IntrinsicReward | None:
    """The intrinsic reward for observations of this layout; None without a spec."""
    if spec is None:
        return None
    if isinstance(spec, RndSpec):
        return RandomNetworkDistillation(spec, layout, streams, device)
    return CountBonus(spec, layout, streams, device)


def novelty_map(bonus: IntrinsicReward, layout: ObservationLayout, observations: Tensor) -> Tensor:
    """Novelty [C] of C cells, from one observation of each [C, D]."""
    if observations.ndim != 2 or observations.shape[1] != layout.size:
        what = f"observations of shape {tuple(observations.shape)} do not fit a layout of {layout.size} values"
        raise TownletError(what, f"pass one observation per cell: [cells, {layout.size}]")
    return torch.cat([bonus.novelty(part) for part in torch.split(observations, CHUNK)])
