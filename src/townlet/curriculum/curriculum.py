"""What a curriculum offers the training loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from townlet.interfaces.episodes import Episodes
from townlet.interfaces.state import State


@dataclass(frozen=True)
class StageChange:
    """One row that goes on or back, with the figures that decided and the reason in words."""

    row: int
    from_stage: int
    to_stage: int
    reason: str
    survival: float  # mean share of max_steps
    progress: float  # change of reward per step
    entropy: float  # mean, of the behaviour policy, in [0, 1]


class Curriculum(Protocol):
    """Gives every row its stage. Everything is on the CPU; the environment applies `settings()`."""

    stage: Tensor  # [N] int64, from 1
    needs_entropy: bool  # whether episodes must come with the entropy of the behaviour policy

    def finished(self, episodes: Episodes) -> list[StageChange]:
        """Take in finished episodes; the rows whose stage changed, in ascending order.

        Their episode has just ended, so setting them now is setting them for their next one.
        """

    def settings(self, rows: Tensor | None = None) -> dict[str, Tensor]:
        """What the stages ask of a town: multiplier [N], active [N] bits, reward_mix [N, R]; or only for some rows."""

    def state(self) -> State:
        """Everything that decides the stages from here on."""

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
