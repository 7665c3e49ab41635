"""What the journal keeps of any environment: why episodes ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from townlet.curriculum.curriculum import StageChange
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Episodes
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.evaluation import TIME

OVER: Final = "the end"  # won or lost: only the environment knows


class GymMetrics:
    """Listens to a training in a Gymnasium environment."""

    causes: tuple[str, ...] = (OVER, TIME)

    def stepped(self, actions: Tensor) -> None:
        """Nothing is known of a step but its reward, and that is counted elsewhere."""

    def codes(self, terminated: NDArray[np.bool_], extras: NDArray[Any]) -> NDArray[np.int64]:
        """Over, or out of time."""
        return np.where(terminated, 0, 1)

    def episodes(self, over: Episodes, stage: Tensor | None, extras: NDArray[np.float32]) -> None:
        """Their figures are enough."""

    def stages(self, changes: Sequence[StageChange]) -> None:
        """There are none."""

    def mark(self, store: MetricsStore, moment: dict[str, int]) -> dict[str, float]:
        """Nothing was gathered."""
        return {}

    def state(self) -> State:
        """Nothing is kept."""
        return {}

    def restore(self, state: State) -> None:
        """Nothing was kept."""
