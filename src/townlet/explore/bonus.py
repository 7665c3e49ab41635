"""Intrinsic reward: what reaching something new is worth."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from townlet.contract.layout import Layout
from townlet.contract.state import State
from townlet.errors import TownletError

CHUNK = 4096  # observations judged at once for a map


class Bonus(Protocol):
    """Novelty of observations. Unweighted: the weight is applied once, when a batch is put together."""

    def reward(self, obs: Tensor) -> Tensor:
        """Novelty [N] of what was reached, obs [N, D]; these observations now count as seen."""

    def novelty(self, obs: Tensor) -> Tensor:
        """The same [B] for any obs [B, D], without a trace."""

    def learn(self, obs: Tensor) -> dict[str, float]:
        """Get used to obs [B, D]; figures for the log."""

    def state(self) -> State:
        """Everything that decides what is new from here on."""

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""


def novelty_map(bonus: Bonus, layout: Layout, observations: Tensor) -> Tensor:
    """Novelty [C] of being at each of C places, from observations [C, D] made there.

    A town of C rows, one on each cell, shows these observations.
    """
    if observations.ndim != 2 or observations.shape[1] != layout.size:
        what = f"observations of shape {tuple(observations.shape)} do not fit a layout of {layout.size} values"
        raise TownletError(what, f"give one observation for each place: [places, {layout.size}]")
    return torch.cat([bonus.novelty(part) for part in torch.split(observations, CHUNK)])
