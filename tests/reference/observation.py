"""The blocks of the observation."""

from __future__ import annotations

from math import cos, pi, sin
from typing import TYPE_CHECKING, Any

from reference.grid import Grid

if TYPE_CHECKING:
    from reference.town import Town


def observed(town: Town, block: dict[str, Any]) -> list[float]:
    """The values of one block."""
    name = block["name"]
    if town.grid is not None and name in ("position_onehot", "position", "window", "window_typed", "map_typed"):
        return _of_the_map(town, town.grid, name, block["size"])
    if name == "meters":
        return list(town.meters)
    if name == "affordance_here":
        return _onehot(town.here, town.none + 1)
    if name == "clock":
        turn = 2 * pi * town.hour / town.day
        return [sin(turn), cos(turn)] if block["encoding"] == "sincos" else [town.hour / town.day]
    if name == "progress":
        return [town.progress / town.ticks(town.using) if town.using != town.none else 0.0]
    if name == "age":
        return [town.age / town.doc["max_steps"]]
    raise ValueError(f"no block {name} in this world")


def _of_the_map(town: Town, grid: Grid, name: str, side: int) -> list[float]:
    if name == "position_onehot":
        return _onehot(town.cell, grid.cells)
    if name == "position":
        return [at / (n - 1) if n > 1 else 0.0 for at, n in zip(grid.coordinates(town.cell), grid.size, strict=True)]
    if name == "window":
        return [float(c is not None and town.kind(c) != town.none) for c in grid.window(town.cell, side)]
    seen = grid.window(town.cell, side) if name == "window_typed" else list(range(grid.cells))
    return [v for c in seen for v in _onehot(-1 if c is None else town.kind(c), town.none + 1)]


def _onehot(place: int, size: int) -> list[float]:
    return [float(i == place) for i in range(size)]
