"""Checks of sense for places and sight: cells of the map, and what the observation can show."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from townlet.errors import nearest
from townlet.town.world.observation import (
    DEFAULT_WINDOW,
    PLACE_BLOCKS,
    TIME_BLOCKS,
    WINDOW_BLOCKS,
    blocks,
    layout,
    window_side,
)
from townlet.town.world.schema import MAX_CELLS, WorldSpec

if TYPE_CHECKING:
    from townlet.town.world.validate import Say

MAX_OBSERVATION: Final = 100_000  # values
MAX_WINDOW_TABLE: Final = 16_000_000  # cells of the map × cells of the window
MAX_PROXIMITY: Final = 4096  # cells; the table of distances is its square


def check(spec: WorldSpec, say: Say) -> None:
    """All mistakes of the map and of the observation."""
    if spec.map.kind == "aspatial":
        _no_map(spec, say)
    else:
        _map(spec, say)
    _blocks(spec, say)
    _shown(spec, say)
    _sizes(spec, say)


def _no_map(spec: WorldSpec, say: Say) -> None:
    if spec.map.start != "random":
        say("a world without a map has no cell to start on", "use `start: random`", "map", "start")
    if spec.map.layout == "shuffled":
        say("a world without a map has no layout to shuffle", "use `layout: fixed`", "map", "layout")
    for i, reward in enumerate(spec.rewards):
        if reward.name == "proximity":
            say("'proximity' needs distances and this world has no map", "use another reward", "rewards", i)


def _map(spec: WorldSpec, say: Say) -> None:
    size, cells = spec.map.size, prod(spec.map.size)
    shape = "×".join(map(str, size))
    if cells > MAX_CELLS:
        say(f"a map of {shape} has {cells} cells", f"use at most {MAX_CELLS}", "map", "size")
    if spec.map.start != "random":
        _cell(spec, say, "the start", spec.map.start, "map", "start")
    if len(spec.affordances) > cells:
        what = f"{len(spec.affordances)} affordances do not fit on the {cells} cells of a map of {shape}"
        say(what, "enlarge `size` or remove some", "map", "size")
    if cells > MAX_PROXIMITY:
        for i, reward in enumerate(spec.rewards):
            if reward.name == "proximity":
                what = f"'proximity' needs the distances between all cells and this map has {cells}"
                say(what, f"use a map of at most {MAX_PROXIMITY} cells", "rewards", i)
    if spec.map.layout == "fixed":
        _places(spec, say)


def _places(spec: WorldSpec, say: Say) -> None:
    """In a fixed layout every affordance stands on a cell of its own."""
    taken: dict[tuple[int, ...], str] = {}
    lost = [a.name for a in spec.affordances if a.cell is not None and len(a.cell) != len(spec.map.size)]
    if len(lost) == len(spec.affordances) > 1:  # the map was changed and not a single place followed
        what = f"the map has {len(spec.map.size)} dimensions and no affordance stands on such a cell"
        say(what, f"give each a `cell` of {len(spec.map.size)} numbers, or use `layout: shuffled`", "map", "size")
        return
    for i, affordance in enumerate(spec.affordances):
        if affordance.cell is None:
            others = [a.name for a in spec.affordances if a is not affordance]
            near = nearest(affordance.name, others)
            fix = f"did you mean '{near}'? " if near else ""
            fix += "A new place needs `cell: [x, y]` with one number per dimension, or `layout: shuffled`"
            say(f"'{affordance.name}' has no cell and the layout is fixed", fix, "affordances", i)
        elif _cell(spec, say, f"'{affordance.name}'", affordance.cell, "affordances", i, "cell"):
            other = taken.setdefault(affordance.cell, affordance.name)
            if other != affordance.name:
                what = f"'{affordance.name}' stands on the same cell as '{other}'"
                say(what, "move one of them", "affordances", i, "cell")


def _cell(spec: WorldSpec, say: Say, who: str, cell: tuple[int, ...], *path: str | int) -> bool:
    size = spec.map.size
    if len(cell) != len(size):
        what = f"{who} is on a cell of {len(cell)} coordinates and the map has {len(size)}"
        say(what, f"give {len(size)}, in the order x, y, z", *path, rather=("map", "size"))
    elif any(not 0 <= at < n for at, n in zip(cell, size, strict=True)):
        ranges = ", ".join(f"{axis} 0 to {n - 1}" for axis, n in zip("xyz", size, strict=False))
        say(f"{who} is outside the map at {list(cell)}", f"the map has {ranges}", *path, rather=("map", "size"))
    else:
        return True
    return False


def _blocks(spec: WorldSpec, say: Say) -> None:
    """Rules for an explicit list of blocks; presets fit by themselves."""
    if isinstance(spec.observation, str):
        return
    seen: set[str] = set()
    sides: set[int] = set()
    for i, block in enumerate(spec.observation):
        if block.name in seen:
            say(f"block '{block.name}' stands twice", "keep one of them", "observation", i)
        seen.add(block.name)
        if spec.map.kind == "aspatial" and block.name in PLACE_BLOCKS:
            what = f"block '{block.name}' shows places and this world has no map"
            say(what, "remove it", "observation", i)
        if not spec.clock.temporal and block.name in TIME_BLOCKS:
            what = f"block '{block.name}' shows time and `clock.temporal` is false"
            say(what, "remove it or set `temporal: true`", "observation", i)
        if block.encoding is not None and block.name != "clock":
            say(f"block '{block.name}' has no encoding", "only `clock` has one", "observation", i, "encoding")
        if block.name in WINDOW_BLOCKS:
            side = block.size or DEFAULT_WINDOW
            if side % 2 == 0:
                what = f"a window of {side} has no middle for the agent"
                say(what, f"use an odd size, such as {side - 1} or {side + 1}", "observation", i, "size")
            if sides and side not in sides:
                what = "`window` and `window_typed` differ in size"
                say(what, f"give both the same; without `size` it is {DEFAULT_WINDOW}", "observation", i)
            sides.add(side)
        elif block.size is not None:
            say(f"block '{block.name}' has no size", "only windows have one", "observation", i, "size")


def _shown(spec: WorldSpec, say: Say) -> None:
    names = [block.name for block in blocks(spec)]
    if "meters" not in names:
        say("the observation does not show the meters", "add the block `meters`", "observation")
    hidden = "window_typed" not in names and "map_typed" not in names
    if spec.map.kind == "grid" and spec.map.layout == "shuffled" and hidden and not spec.map.allow_hidden_layout:
        what = "the layout is shuffled and the observation never shows the kind of an affordance from afar"
        fix = "use observation `shuffled` or `foggy`, add the block `window_typed` or `map_typed`, "
        say(what, fix + "or set `map.allow_hidden_layout: true`", "observation", rather=("map", "layout"))


def _sizes(spec: WorldSpec, say: Say) -> None:
    values = layout(spec).size
    if values > MAX_OBSERVATION:
        say(f"an observation has {values} values", f"use smaller blocks: at most {MAX_OBSERVATION}", "observation")
    cells = prod(spec.map.size) if spec.map.kind == "grid" else 0
    window = window_side(spec) ** min(len(spec.map.size), 2)
    if cells * window > MAX_WINDOW_TABLE and cells <= MAX_CELLS:
        what = f"windows of {window} cells on a map of {cells} make a table of {cells * window}"
        say(what, f"use a smaller map or window: at most {MAX_WINDOW_TABLE}", "observation")
