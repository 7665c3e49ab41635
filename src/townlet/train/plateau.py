"""What happens to a setting where evaluations make no progress, and when."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from townlet.config.models import StrictModel
from townlet.interfaces.state import State


class PlateauSpec(StrictModel):
    """Another value of a setting of the agent, where the score of evaluations makes no progress."""

    key: str = Field(
        min_length=1, max_length=80, description="The setting of the agent that is changed, one of those in tune.yaml."
    )
    patience: Annotated[float, Field(gt=0)] = Field(
        0.2,
        description="Without progress for this long the setting is changed, and again after as long: up to 1 a share "
        "of the budget, above it env_steps. Raise it to wait longer.",
    )
    least: float = Field(
        0.0, ge=0, description="Progress is a score this much above the best. Raise it to call less of it progress."
    )
    multiply: float | None = Field(None, ge=0, description="Factor on the value. Further from 1 it changes more.")
    add: float | None = Field(None, description="Added to the value, if nothing is multiplied or set.")
    set: float | None = Field(None, description="The new value, if nothing is multiplied or added.")
    low: float | None = Field(None, description="It never falls below this. Raise it to stop lowering sooner.")
    high: float | None = Field(None, description="It never rises above this. Lower it to stop raising sooner.")
    revert: bool = Field(False, description="Put the value from before back as soon as there is progress again.")

    @model_validator(mode="after")
    def _makes_sense(self) -> PlateauSpec:
        if sum(way is not None for way in (self.multiply, self.add, self.set)) != 1:
            raise ValueError("give one of multiply, add and set")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"`low` ({self.low:g}) is above `high` ({self.high:g})")
        return self

    def after(self, value: float | None) -> float:
        """What becomes of a value; without one only `set` has an answer. Whole numbers stay whole."""
        if self.set is not None or value is None:
            new = self.set or 0.0
        else:
            new = value * self.multiply if self.multiply is not None else value + (self.add or 0.0)
        new = new if self.low is None else max(self.low, new)
        new = new if self.high is None else min(self.high, new)
        return round(new) if isinstance(value, int) else new


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
