"""No change: every row stays at one stage."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from townlet.curriculum.curriculum import StageChange
from townlet.curriculum.spec import FixedSpec
from townlet.curriculum.stages import compile_stages
from townlet.interfaces.episodes import Episodes
from townlet.interfaces.state import State


class Fixed:
    """One stage for all rows, for good."""

    needs_entropy = False

    def __init__(self, spec: FixedSpec, rows: int, meters: Sequence[str], rewards: Sequence[str]) -> None:
        self.stage = torch.full((rows,), spec.stage)
        # The other stages may ask for rewards that the world need not have.
        self._tables = compile_stages(spec, [spec.stage], meters, rewards)

    def finished(self, episodes: Episodes) -> list[StageChange]:
        """Nothing changes."""
        return []

    def settings(self, rows: Tensor | None = None) -> dict[str, Tensor]:
        """The stage's settings, by the names that a town knows."""
        count = len(self.stage) if rows is None else len(rows)
        return self._tables.settings(torch.zeros(count, dtype=torch.int64))

    def state(self) -> State:
        """Nothing: the stage stands in the recipe."""
        return {}

    def restore(self, state: State) -> None:
        """Nothing is kept."""
