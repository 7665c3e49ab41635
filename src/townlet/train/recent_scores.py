"""How well the last episodes of a training went: what ends a run early."""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Episodes

LAST: Final = 100  # episodes


class Recent:
    """The scores of the last episodes of all rows together, exploration and all."""

    def __init__(self, metric: Literal["length", "return"]) -> None:
        self._metric = metric
        self._scores: deque[float] = deque(maxlen=LAST)

    def add(self, over: Episodes) -> None:
        """Episodes that ended in the last step."""
        self._scores.extend((over.length if self._metric == "length" else over.reward).tolist())

    @property
    def mean(self) -> float | None:
        """Of the last 100 episodes; None while there were fewer."""
        return sum(self._scores) / LAST if len(self._scores) == LAST else None

    def state(self) -> State:
        """The scores."""
        return {"scores": list(self._scores)}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        self._scores = deque(map(float, state["scores"]), maxlen=LAST)
