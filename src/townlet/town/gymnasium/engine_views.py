"""What a step of the engine writes, as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet.town.engines.engine import Engine


class EngineViews:
    """NumPy views of the arrays of an engine, of all rows or of one; the next step overwrites them.

    obs [N, D], mask [N, K] int8, which `Discrete.sample` requires, reward, terminated and truncated [N], and components
    [R, N]. With a row they lack the axis N.
    """

    def __init__(self, engine: Engine, row: int | None = None) -> None:
        self._engine, self._row = engine, row
        rows: Any = ... if row is None else (row, ...)  # with "...", a single number is a view too
        self.obs: NDArray[np.float32] = np.asarray(engine.obs)[rows]
        self.mask: NDArray[np.int8] = np.asarray(engine.mask).view(np.int8)[rows]
        self.reward: NDArray[np.float32] = np.asarray(engine.reward)[rows]
        self.components: NDArray[np.float32] = np.asarray(engine.components)[rows].T
        self.terminated: NDArray[np.bool_] = np.asarray(engine.terminated)[rows]
        self.truncated: NDArray[np.bool_] = np.asarray(engine.truncated)[rows]

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has views of the copied engine."""
        return EngineViews, (self._engine, self._row)
