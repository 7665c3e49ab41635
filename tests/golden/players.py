"""One step of the standard town, played by the Numba engine and by the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from golden.figures import METERS, PLACES
from reference import Town, shipped_document
from townlet.town.engines.engine import make_engine
from townlet.town.world.load import load

UP, DOWN, LEFT, RIGHT, INTERACT, WAIT = range(6)
EMPTY = 27  # x 3, y 3: an empty cell
NONE = len(PLACES)


@dataclass(frozen=True)
class Moment:
    """The state of a row before a step; unnamed meters are at `rest`."""

    cell: int = EMPTY
    temporal: bool = False
    hour: int = 0
    progress: int = 0
    using: int = NONE
    multiplier: float = 0.0
    rest: float = 0.5
    meters: Mapping[str, float] = field(default_factory=dict)

    @property
    def values(self) -> list[float]:
        return [self.meters.get(name, self.rest) for name in METERS]


@dataclass(frozen=True)
class After:
    """The state after the step."""

    change: dict[str, float]
    progress: int
    using: int
    allowed: bool  # whether the mask allowed INTERACT before the step


@cache
def _engine(temporal: bool) -> Any:
    world = load("town", [f"clock.temporal={str(temporal).lower()}"])
    engine = make_engine(world, 1, "numba", autoreset=False)
    engine.reset(1)
    return engine


def by_engine(moment: Moment, action: int) -> After:
    """Play on the Numba engine."""
    engine = _engine(moment.temporal)
    engine.reset(1)
    numbers = {n: np.array([getattr(moment, n)]) for n in ("cell", "hour", "progress", "using", "multiplier")}
    engine.restore({"meters": np.array([moment.values], np.float32), **numbers})
    allowed = bool(engine.mask[0, INTERACT])
    engine.step(np.array([action]))
    seen = engine.peek()
    return _after(moment, seen["meters"][0], int(seen["progress"][0]), int(seen["using"][0]), allowed)


def by_reference(moment: Moment, action: int) -> After:
    """Play on the slow reference."""
    doc = shipped_document("town") | {"clock": {"temporal": moment.temporal}}
    town = Town(doc, cell=moment.cell, hour=moment.hour, meters=moment.values, multiplier=moment.multiplier)
    town.progress, town.using = moment.progress, moment.using
    allowed = town.mask()[INTERACT]
    town.step(action)
    return _after(moment, town.meters, town.progress, town.using, allowed)


def _after(moment: Moment, meters: Any, progress: int, using: int, allowed: bool) -> After:
    gained = (float(v) - old for v, old in zip(meters, moment.values, strict=True))
    return After(dict(zip(METERS, gained, strict=True)), progress, using, allowed)
