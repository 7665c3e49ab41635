"""Finished episodes as one table, written as they come into memory that is there already.

To keep the tensors of each step until somebody asks is cheaper at the moment and dearer in the end: so many small
pieces that outlive the large ones beside them keep the memory of those from being used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.interfaces.counters import Counters
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Episodes
from townlet.tasks.task import EnvMetrics

# One line for each finished episode; the extras of its end follow.
COLUMNS: Final = (
    "env_steps", "updates", "row", "start", "length", "return", "extrinsic", "intrinsic", "stage", "epsilon", "cause",
)  # fmt: skip
WHOLE: Final = ("env_steps", "updates", "row", "start", "length", "stage")  # columns of whole numbers
# What is written down of each as it ends, before its extras: of the moment, and of the episode.
MOMENT: Final = ("env_steps", "updates", "epsilon")
EPISODE: Final = ("row", "length", "return", "intrinsic", "guidance", "terminated", "stage")
ROW, LENGTH, RETURN, INTRINSIC, GUIDANCE, TERMINATED, STAGE, EXTRAS = range(len(MOMENT), len(MOMENT) + len(EPISODE) + 1)
LINES: Final = 256  # at first

Table = NDArray[np.float64]


class Finished:
    """The episodes of one interval."""

    def __init__(self, env_metrics: EnvMetrics, extras: Sequence[str], rows: int) -> None:
        self._env_metrics, self._rows, self._count = env_metrics, rows, 0
        self._lines: Table = np.zeros((LINES, EXTRAS + len(extras)))

    def add(
        self, now: Counters, epsilon: float, over: Episodes, stage: Tensor | None, extras: NDArray[np.float32],
        ago: NDArray[np.float64] | None = None,
    ) -> None:  # fmt: skip
        """Take in k episodes that ended now, with the stage [k] each was lived in and its extras [k, E].

        Or they ended so many env_steps `ago` [k].
        """
        lines = self._room(len(extras))
        lines[:, : len(MOMENT)] = now.env_steps, now.updates, epsilon
        if ago is not None:
            lines[:, 0] -= ago
        lines[:, ROW], lines[:, LENGTH], lines[:, RETURN] = over.rows.numpy(), over.length.numpy(), over.reward.numpy()
        lines[:, INTRINSIC], lines[:, GUIDANCE] = over.intrinsic.numpy(), over.guidance.numpy()
        lines[:, TERMINATED] = over.terminated.numpy()
        if stage is not None:
            lines[:, STAGE] = stage.numpy()
        lines[:, EXTRAS:] = extras

    def _room(self, more: int) -> Table:
        """The next lines, in a larger table where this one is full."""
        first, self._count = self._count, self._count + more
        if self._count > len(self._lines):
            larger = np.zeros((2 * self._count, self._lines.shape[1]))
            larger[:first] = self._lines[:first]
            self._lines = larger
        return self._lines[first : self._count]

    def table(self) -> Table:
        """All of them so far [n, COLUMNS and extras], in the order in which they ended."""
        lines = self._lines[: self._count]
        columns = dict(zip((*MOMENT, *EPISODE), lines.T, strict=False))
        columns["start"] = columns["env_steps"] - columns["length"] * self._rows
        columns["extrinsic"] = columns["return"] + columns["guidance"]
        extras, dead = lines[:, EXTRAS:], lines[:, TERMINATED] > 0
        columns["cause"] = self._env_metrics.codes(dead, extras).astype(np.float64)
        return np.column_stack([*(columns[name] for name in COLUMNS), extras])

    def clear(self) -> None:
        """A new interval begins."""
        self._count = 0

    def state(self) -> State:
        """The lines as they were written."""
        return {"lines": self._lines[: self._count].copy()}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        lines = torch.as_tensor(state["lines"]).numpy()
        self._count = 0
        self._room(len(lines))[...] = lines
