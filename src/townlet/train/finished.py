"""Finished episodes, gathered cheaply as they come and made into one table when somebody asks."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.contract.episodes import Episodes
from townlet.contract.state import State
from townlet.sim.causes import cause_codes
from townlet.world.tables import World

# One line for each finished episode; the meters at its end follow.
COLUMNS: Final = (
    "env_steps", "updates", "row", "start", "length", "return", "extrinsic", "intrinsic", "stage", "epsilon", "cause",
)  # fmt: skip
EPSILON: Final = "epsilon"  # also the name of an agent's figure
WHOLE: Final = ("env_steps", "updates", "row", "start", "length", "stage")  # columns of whole numbers

TAKEN: Final = ("rows", "length", "reward", "intrinsic", "guidance")  # of `Episodes`

Table = NDArray[np.float64]


class Ends(NamedTuple):
    """Episodes that ended in one step of all rows, as they came."""

    env_steps: int
    updates: int
    epsilon: float
    over: Episodes
    stage: Tensor | None  # [k]
    meters: NDArray[np.float32]  # [k, M]


class Finished:
    """The episodes of one interval."""

    def __init__(self, world: World, rows: int) -> None:
        self._world, self._rows = world, rows
        self._table: Table = np.zeros((0, len(COLUMNS) + len(world.meters)))
        self._ends: list[Ends] = []

    def add(self, ends: Ends) -> None:
        """Take in episodes that ended in the last step."""
        self._ends.append(ends)

    def table(self) -> Table:
        """All of them so far [n, COLUMNS and meters], in the order in which they ended."""
        if self._ends:
            self._table = np.concatenate([self._table, self._lines(self._ends)])
            self._ends = []
        return self._table

    def _lines(self, ends: list[Ends]) -> Table:
        counts = [len(end.over) for end in ends]
        env_steps, updates, epsilon = (np.repeat([end[k] for end in ends], counts) for k in range(3))
        over = {name: _joined([getattr(end.over, name) for end in ends]) for name in TAKEN}
        meters = np.concatenate([end.meters for end in ends])
        stages = [end.stage for end in ends if end.stage is not None]
        columns = {
            "env_steps": env_steps,
            "updates": updates,
            "row": over["rows"],
            "start": env_steps - over["length"] * self._rows,
            "length": over["length"],
            "return": over["reward"],
            "extrinsic": over["reward"] + over["guidance"],
            "intrinsic": over["intrinsic"],
            "stage": _joined(stages) if stages else np.zeros(len(env_steps)),
            EPSILON: epsilon,
            "cause": cause_codes(self._world, meters),
        }
        return np.column_stack([*(columns[name] for name in COLUMNS), meters])

    def clear(self) -> None:
        """A new interval begins."""
        self._table, self._ends = self._table[:0], []

    def state(self) -> State:
        """The table."""
        return {"table": self.table()}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        self._table, self._ends = torch.as_tensor(state["table"]).numpy(), []


def _joined(columns: list[Tensor]) -> Table:
    return torch.cat(columns).numpy().astype(np.float64)
