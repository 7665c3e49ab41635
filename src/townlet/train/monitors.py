"""Figures that should worry somebody: told once with what to do, and again only after they had been well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from townlet.contract.state import State
from townlet.runs.catalogue import METRICS, unhealthy

PATIENCE: Final = 5  # marks in a row: one bad interval is an accident


class Alert(NamedTuple):
    """What should be looked at."""

    name: str
    message: str
    value: float


class Monitors:
    """Looks at the figures of every mark. Those that depend on the clock are left out: two equal runs say the same."""

    def __init__(self) -> None:
        self._first: dict[str, float] = {}
        self._bad: dict[str, int] = {}  # marks in a row

    def look(self, figures: Mapping[str, float]) -> list[Alert]:
        """What has just become worrying."""
        alerts = []
        for name, value in figures.items():
            if name not in METRICS or METRICS[name].timed:
                continue
            why = unhealthy(name, value, self._first.setdefault(name, value))
            self._bad[name] = self._bad.get(name, 0) + 1 if why else 0
            if why and self._bad[name] == PATIENCE:
                alerts.append(Alert(name, why, value))
        return alerts

    def state(self) -> State:
        """The first value of each figure, and since how many marks it has been bad."""
        return {"first": dict(self._first), "bad": dict(self._bad)}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        self._first = {name: float(value) for name, value in state["first"].items()}
        self._bad = {name: int(count) for name, count in state["bad"].items()}
