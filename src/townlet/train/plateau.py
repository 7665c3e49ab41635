"""What happens to a setting where evaluations make no progress, and when."""

from __future__ import annotations

from typing import Any

from townlet.interfaces.state import State
from townlet.recipes.schema import PlateauSpec


class Plateau:
    """One intervention, and how long it has been waiting for progress. Moments are in env_steps."""

    def __init__(self, spec: PlateauSpec, patience: int) -> None:
        self.spec, self.patience = spec, patience
        self._best: float | None = None
        self._since = 0
        self.before: list[Any] = []  # the value to put back, once it was changed

    def progress(self, score: float, now: int) -> bool:
        """Whether this evaluation is better than all before it, by as much as counts."""
        best = self._best
        if best is not None and (score <= best or score - best < self.spec.least):
            return False
        self._best, self._since = score, now
        return True

    def due(self, now: int) -> bool:
        """Whether it waited long enough; it then waits anew."""
        if now - self._since < self.patience:
            return False
        self._since = now
        return True

    def state(self) -> State:
        """The best score, since when there was no progress, and what is to be put back."""
        return {"best": self._best, "since": self._since, "before": list(self.before)}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        self._best, self._since, self.before = state["best"], int(state["since"]), list(state["before"])
