"""Visitors, simulated: what they are like decides what they click on, and it takes them a while."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from townlet.rng import Streams

ADS: Final = 12
TRAITS: Final = 8  # of a visitor, each from −1 to 1
TASTES: Final = Streams(2020).numpy("tastes of visitors").normal(size=(ADS, TRAITS))  # the same for all sites
USUAL: Final = -2.0  # log-odds of a click of somebody without traits
SECONDS: Final = 5.0  # between two visitors
MISSING: Final = 0.1  # share of clicks and looks that are never reported
LATEST: Final = 6  # visitors after which a report has come, if it comes


def chances(traits: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Of a click on each advertisement [..., K]."""
    return 1 / (1 + np.exp(-(USUAL + traits @ TASTES.T)))


class Visitors:
    """One site. Reports come up to six visitors late, and one in ten never."""

    def __init__(self, seed: int, territory: str, stage: int = 0) -> None:
        self._rng = Streams(seed).numpy(f"visitors of {territory}")
        self._territory, self._time, self._count = territory, 0.0, 0
        self._traits = np.zeros(TRAITS)
        self._late: dict[int, list[dict[str, Any]]] = {}
        self.clicks = self.best = self.shown = 0.0

    def observe(self) -> dict[str, Any]:
        """Somebody comes."""
        self._traits = self._rng.uniform(-1, 1, TRAITS)
        budgets = np.where(self._rng.random(ADS) < 0.9, 100.0, 0.0)
        return {
            "type": "ad_request", "timestamp": self._time, "territoryId": self._territory,
            "traits": self._traits.tolist(), "budgets": budgets.tolist(),
        }  # fmt: skip

    def apply(self, reply: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Show it, and see later whether he clicks."""
        if reply["type"] != "ad_decision":
            return []
        chance = chances(self._traits)
        clicked = bool(self._rng.random() < chance[reply["ad"]])
        self.shown, self.clicks, self.best = self.shown + 1, self.clicks + clicked, self.best + float(chance.max())
        if self._rng.random() >= MISSING:
            due = self._count + int(self._rng.integers(LATEST))
            report = {"type": "click_report", "decisionId": reply["decisionId"], "clicked": clicked}
            self._late.setdefault(due, []).append(report)
        return []

    def advance(self) -> list[dict[str, Any]]:
        """The next visitor comes after some seconds; by then some have clicked."""
        found = self._late.pop(self._count, [])
        self._time, self._count = self._time + SECONDS, self._count + 1
        return found
