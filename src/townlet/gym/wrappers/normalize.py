"""Observations of one size: by their bounds, or by all that was seen so far. Pictures and indices stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.gym.spaces import Floats, Observations
from townlet.gym.wrappers.stage import Scaling
from townlet.interfaces.layout import Layout
from townlet.interfaces.restore import SAME, part
from townlet.interfaces.state import State

LIMIT: Final = 10.0  # standard deviations beyond which a number says no more
LEAST: Final = 1e-8
ENDLESS: Final = 1e30  # bounds from here on only say that there are none


def _values(layout: Layout) -> NDArray[np.bool_]:
    """Which numbers [D] are values."""
    return np.concatenate([np.full(b.size, b.kind == "values") for b in layout]).astype(np.bool_)


class Static:
    """Each number that has bounds, from them to −1 … 1."""

    frozen = False

    def fit(self, layout: Layout, rows: int, sight: Observations) -> tuple[Layout, Floats]:
        """Centre and half the width of each number's range; 0 and 1 where it has no bounds."""
        low, high = sight.low.astype(np.float64), sight.high.astype(np.float64)
        bounded = _values(layout) & (low > -ENDLESS) & (high < ENDLESS) & (high > low)
        self._centre, self._half = np.zeros(len(low), np.float32), np.ones(len(low), np.float32)
        self._centre[bounded] = (low[bounded] + high[bounded]) / 2
        self._half[bounded] = (high[bounded] - low[bounded]) / 2
        self._out: Floats = np.zeros((rows, layout.size), np.float32)
        return Layout(tuple(self._block(b, sight, bounded) for b in layout)), self._out

    @staticmethod
    def _block(block: Any, sight: Observations, bounded: NDArray[np.bool_]) -> Any:
        if block.kind != "values":
            return block
        inside = bounded[block.slice]
        if inside.all():
            return replace(block, low=-1.0, high=1.0)
        low = np.where(inside, -1, sight.low[block.slice]).min()
        return replace(block, low=float(low), high=float(np.where(inside, 1, sight.high[block.slice]).max()))

    def forget(self) -> None:
        """Nothing was learned."""

    def begin(self, obs: Floats) -> Floats:
        """The first moment of all rows."""
        return self._scaled(obs, self._out)

    def step(
        self, obs: Floats, begins: NDArray[np.bool_], ended: NDArray[np.int64], last: Floats
    ) -> tuple[Floats, Floats]:
        """What a step brought, and what ended rows saw last."""
        return self._scaled(obs, self._out), self._scaled(last, np.empty_like(last)) if len(last) else last

    def _scaled(self, obs: Floats, out: Floats) -> Floats:
        np.subtract(obs, self._centre, out=out)
        np.divide(out, self._half, out=out)
        return out

    def follow(self, other: Static) -> None:
        """Bounds are the same everywhere."""

    def scaling(self, before: Scaling | None) -> Scaling:
        """By the bounds, without a limit."""
        return Scaling(self._centre, self._half, np.full_like(self._half, np.inf))

    def state(self) -> State:
        """Nothing is remembered."""
        return {}

    def restore(self, state: Mapping[str, Any], *, exact: bool) -> None:
        """Nothing was remembered."""


class Running:
    """Each number less the mean and divided by the deviation of all that was seen, in all rows together."""

    def __init__(self) -> None:
        self.frozen = False

    def fit(self, layout: Layout, rows: int, sight: Observations) -> tuple[Layout, Floats]:
        """Begin with nothing seen."""
        self._is_value = _values(layout)
        self._all = bool(self._is_value.all())
        self._out: Floats = np.zeros((rows, layout.size), np.float32)
        self._count, self._mean, self._squares = 0, np.zeros(layout.size), np.zeros(layout.size)
        self._settle()
        blocks = (replace(b, low=-LIMIT, high=LIMIT) if b.kind == "values" else b for b in layout)
        return Layout(tuple(blocks)), self._out

    def forget(self) -> None:
        """Begin with nothing seen, unless this only follows."""
        if not self.frozen:
            self._count = 0
            self._mean[:] = self._squares[:] = 0
            self._settle()

    def begin(self, obs: Floats) -> Floats:
        """The first moment of all rows."""
        self._learn(obs)
        return self._scaled(obs, self._out)

    def step(
        self, obs: Floats, begins: NDArray[np.bool_], ended: NDArray[np.int64], last: Floats
    ) -> tuple[Floats, Floats]:
        """What a step brought, and what ended rows saw last."""
        self._learn(np.concatenate([obs, last]) if len(last) else obs)
        return self._scaled(obs, self._out), self._scaled(last, np.empty_like(last)) if len(last) else last

    def _learn(self, obs: Floats) -> None:
        """Add observations [n, D] to what was seen (Chan, Golub & LeVeque 1983, eq. 2.1)."""
        if self.frozen:
            return
        n, total = len(obs), self._count + len(obs)
        mean = obs.mean(0, dtype=np.float64)
        away = mean - self._mean
        self._squares += ((obs - mean) ** 2).sum(0) + away**2 * (self._count * n / total)
        self._mean += away * (n / total)
        self._count = total
        self._settle()

    def _settle(self) -> None:
        """The centre and the size of one, as they are applied."""
        spread = np.sqrt(self._squares / self._count + LEAST) if self._count else np.ones_like(self._mean)
        self._centre = np.where(self._is_value, self._mean, 0).astype(np.float32)
        self._spread = np.where(self._is_value, spread, 1).astype(np.float32)

    def _scaled(self, obs: Floats, out: Floats) -> Floats:
        np.subtract(obs, self._centre, out=out)
        np.divide(out, self._spread, out=out)
        if self._all:
            np.clip(out, -LIMIT, LIMIT, out=out)
        else:
            out[:, self._is_value] = np.clip(out[:, self._is_value], -LIMIT, LIMIT)
        return out

    def follow(self, other: Running) -> None:
        """Scale as another does now."""
        self._count = other._count
        self._mean[:], self._squares[:] = other._mean, other._squares
        self._settle()

    def scaling(self, before: Scaling | None) -> Scaling:
        """By all that was seen so far."""
        limit = np.where(self._is_value, LIMIT, np.inf).astype(np.float32)
        return Scaling(self._centre, self._spread, limit)

    def state(self) -> State:
        """What was learned of all observations."""
        return {"count": self._count, "mean": self._mean.copy(), "squares": self._squares.copy()}

    def restore(self, state: Mapping[str, Any], *, exact: bool) -> None:
        """Go on with what was learned."""
        for name, live in (("mean", self._mean), ("squares", self._squares)):
            saved = np.asarray(part(dict(state), name, "normalisation"))
            if saved.shape != live.shape:
                raise TownletError(f"{saved.size} numbers were normalised, here are {live.size}", SAME)
            live[:] = saved
        self._count = int(part(dict(state), "count", "normalisation"))
        self._settle()
