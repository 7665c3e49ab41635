"""The observation of a world: which blocks it has, their shapes and ranges."""

from __future__ import annotations

from math import prod
from typing import Final

from townlet.interfaces.layout import Layout
from townlet.town.world.schema import ObservationBlock, WorldSpec

PLACE_BLOCKS: Final = ("position_onehot", "position", "window", "window_typed", "map_typed")
TIME_BLOCKS: Final = ("clock", "progress")
WINDOW_BLOCKS: Final = ("window", "window_typed")
DEFAULT_WINDOW: Final = 5

_PRESETS: Final = {
    "full": ("position_onehot", "meters", "affordance_here"),
    "partial": ("window", "position", "meters", "affordance_here"),
    "shuffled": ("position_onehot", "meters", "affordance_here", "map_typed"),
    "foggy": ("window_typed", "position", "meters", "affordance_here"),
}


def blocks(spec: WorldSpec) -> tuple[ObservationBlock, ...]:
    """The blocks in order; a preset is spelled out to fit the world's map and clock."""
    if not isinstance(spec.observation, str):
        return spec.observation
    names = _PRESETS[spec.observation] + (TIME_BLOCKS if spec.clock.temporal else ())
    if spec.map.kind == "aspatial":
        names = tuple(name for name in names if name not in PLACE_BLOCKS)
    return tuple(ObservationBlock(name=name, size=None, encoding=None) for name in names)


def window_side(spec: WorldSpec) -> int:
    """Side of the window, 0 when the observation has none."""
    sides = [block.size or DEFAULT_WINDOW for block in blocks(spec) if block.name in WINDOW_BLOCKS]
    return sides[0] if sides else 0


def clock_encoding(spec: WorldSpec) -> str:
    """How the hour is shown: "hour" or "sincos"."""
    return next((b.encoding for b in blocks(spec) if b.name == "clock" and b.encoding), "hour")


def layout(spec: WorldSpec) -> Layout:
    """Names, places, shapes and ranges of all blocks."""
    shapes = _shapes(spec)
    low = {"clock": -1.0 if clock_encoding(spec) == "sincos" else 0.0}
    grid = {"position": _size(spec)}
    return Layout.of(
        *((b.name, shapes[b.name], low.get(b.name, 0.0), 1.0, "values", grid.get(b.name, ())) for b in blocks(spec))
    )


def _size(spec: WorldSpec) -> tuple[int, ...]:
    """Cells along each axis of the map; none without a map."""
    return tuple(spec.map.size) if spec.map.kind == "grid" else ()


def _shapes(spec: WorldSpec) -> dict[str, tuple[int, ...]]:
    kinds = len(spec.affordances) + 1
    size = _size(spec)
    cells = prod(size)
    window = (window_side(spec),) * min(len(size), 2)
    return {
        "position_onehot": (cells,),
        "position": (len(size),),
        "window": window,
        "window_typed": (*window, kinds),
        "map_typed": (*reversed(size), kinds),
        "meters": (len(spec.meters),),
        "affordance_here": (kinds,),
        "clock": (2 if clock_encoding(spec) == "sincos" else 1,),
        "progress": (1,),
        "age": (1,),
    }
