"""What agents share that act by values: who chooses among them, and how undecided that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from townlet.agents.learner import Seeker
from townlet.contract.episodes import Episodes
from townlet.contract.state import Stateful
from townlet.explore.choose import Chooser, normalized_entropy


class Choosing(Seeker):
    """Values of actions, and a chooser that explores. How the values are learned is elsewhere."""

    outputs_are: Literal["values"] = "values"
    chooser: Chooser
    behind: Tensor  # [N, K] values at the last act
    _mask: Tensor  # [N, K] of the last act

    def finished(self, episodes: Episodes) -> None:
        """Episodes that ended: exploration decays with them."""
        self.chooser.finished(episodes)
        super().finished(episodes)

    def outputs(self, behind: Sequence[Tensor], rows: int) -> Tensor:
        """The values of the first rows at some acts [T, rows, K]."""
        return torch.stack([values[:rows] for values in behind])

    @torch.inference_mode()
    def entropy(self) -> Tensor:
        """Normalised entropy [N] of the behaviour policy at the last act."""
        return normalized_entropy(self.chooser.probabilities(self.behind, self._mask), self._mask)

    def figures(self) -> dict[str, float]:
        """What is scheduled or annealed, at this moment."""
        return self.chooser.figures() | super().figures()

    def _parts(self) -> dict[str, Stateful]:
        return {"chooser": self.chooser, **super()._parts()}
