"""Checks of sense: a file may have the right shape and still describe a world that cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final, Protocol

from townlet.config.yaml import Node
from townlet.errors import Diagnostic, SourceLocation, did_you_mean, nearest
from townlet.town.world.schema import (
    DEFAULT_WINDOW,
    MAX_CELLS,
    PLACE_BLOCKS,
    TIME_BLOCKS,
    WINDOW_BLOCKS,
    Cascade,
    Modulation,
    Survival,
    Vitality,
    WorldSpec,
    blocks,
    layout,
    window_side,
)
from townlet.town.world.sessions import bound, session_total


class Say(Protocol):
    """Report one mistake at a path of the file; at `rather`, if that was written nearer to the user."""

    def __call__(self, what: str, fix: str, *path: str | int, rather: tuple[str, ...] = ()) -> None: ...


def check(spec: WorldSpec, node: Node, feasible: bool = True) -> list[Diagnostic]:
    """All mistakes of sense, each with the place in the file that holds the wrong value."""
    found: list[Diagnostic] = []

    def say(what: str, fix: str, *path: str | int, rather: tuple[str, ...] = ()) -> None:
        where, cause = node.location_of(*path), node.location_of(*rather)
        found.append(Diagnostic(what, fix, cause if rather and nearness(cause) > nearness(where) else where))

    def nearness(mark: SourceLocation) -> int:
        """How near to the user something was written: in a parent, in the file itself, on the command line."""
        return 2 if not mark.line else int(mark.source == node.location.source)

    for rule in (_names, _references, _links, _affordances, _meters, _clock, _rewards):
        rule(spec, say)
    _check_map_and_observation(spec, say)
    if feasible and not found:  # the bound reads figures that the rules above have found sound
        _feasible(spec, say)
    return found


def _names(spec: WorldSpec, say: Say) -> None:
    lists: dict[str, list[str]] = {
        "meters": [m.name for m in spec.meters],
        "affordances": [a.name for a in spec.affordances],
        "modulations": [m.name or f"{m.source}->{m.target}" for m in spec.modulations],
        "cascades": [c.name or f"{c.source}->{c.target}" for c in spec.cascades],
        "lethal": list(spec.lethal),
        "rewards": [r.name for r in spec.rewards],
    }
    for key, names in lists.items():
        for i in repeats(names):
            fix = "give one of them another name" if key not in ("lethal", "rewards") else "keep one of them"
            say(f"'{names[i]}' stands twice in {key}", fix, key, i)


def repeats(names: Sequence[str]) -> list[int]:
    """Places of names that stood before."""
    return [i for i, name in enumerate(names) if name in names[:i]]


def _references(spec: WorldSpec, say: Say) -> None:
    known = [m.name for m in spec.meters]

    def meter(name: str, *path: str | int) -> None:
        if name not in known:
            say(f"there is no meter '{name}'", did_you_mean(name, known), *path)

    if spec.currency is not None:
        meter(spec.currency, "currency")
    for i, name in enumerate(spec.lethal):
        meter(name, "lethal", i)
    for key, links in _all_links(spec):
        for i, link in enumerate(links):
            meter(link.source, key, i, "source")
            meter(link.target, key, i, "target")
    for i, affordance in enumerate(spec.affordances):
        for key, effects in (("each_tick", affordance.each_tick), ("at_end", affordance.at_end)):
            for name in effects:
                meter(name, "affordances", i, key, name)
    for i, reward in enumerate(spec.rewards):
        if isinstance(reward, Survival) and reward.meter is not None:
            meter(reward.meter, "rewards", i, "meter")
        if isinstance(reward, Vitality) and reward.meters is not None:
            for j, name in enumerate(reward.meters):
                meter(name, "rewards", i, "meters", j)


def _all_links(spec: WorldSpec) -> tuple[tuple[str, tuple[Modulation | Cascade, ...]], ...]:
    return ("modulations", spec.modulations), ("cascades", spec.cascades)


def _links(spec: WorldSpec, say: Say) -> None:
    for key, links in _all_links(spec):
        for i, link in enumerate(links):
            if link.source == link.target:
                what = f"'{link.source}' is both source and target of one of the {key}"
                say(
                    what,
                    "name two different meters; a loss that is always there is the meter's decay",
                    key,
                    i,
                    "target",
                )


def _affordances(spec: WorldSpec, say: Say) -> None:
    day = spec.clock.day
    for i, affordance in enumerate(spec.affordances):
        if affordance.price > 0 and spec.currency is None:
            what = f"'{affordance.name}' has a price, but the world has no currency"
            fix = "add `currency:` with the meter that pays, or set the price to 0"
            say(what, fix, "affordances", i, "price", rather=("currency",))
        if affordance.hours is None:
            continue
        opens, closes = affordance.hours
        if not (0 <= opens < day and 0 < closes <= day and opens != closes):
            what = f"'{affordance.name}' cannot be open from {opens} to {closes} in a day of {day} hours"
            fix = f"open is 0 to {day - 1}, close 1 to {day}, and they differ; without `hours` it never closes"
            say(what, fix, "affordances", i, "hours", rather=("clock", "day"))


def _meters(spec: WorldSpec, say: Say) -> None:
    index = {m.name: i for i, m in enumerate(spec.meters)}
    lethal = [m for m in spec.meters if m.name in spec.lethal]
    for meter in lethal:
        if meter.start <= 1e-3:
            what = f"'{meter.name}' is lethal and starts at {meter.start:g}: every agent is born dead"
            say(what, "let it start above 0.001", "meters", index[meter.name], "start")
    worst = max(lethal, key=lambda m: m.wait - m.move, default=None)
    cheaper = any(m.wait < m.move for m in lethal)
    if spec.map.kind == "grid" and worst is not None and (worst.wait > worst.move or not cheaper):
        what = f"WAIT costs {worst.wait:g} of '{worst.name}' and a move {worst.move:g}: waiting must be cheaper"
        say(what, "lower `wait` or raise `move`", "meters", index[worst.name], "wait")
    for i, name in enumerate(spec.lethal):
        if name in index and not any(session_total(a).get(name, 0.0) > 1e-9 for a in spec.affordances):
            fix = f"let an affordance raise '{name}' over a whole session, or take it out of `lethal`"
            say(f"'{name}' is lethal and no affordance raises it", fix, "lethal", i)


def _clock(spec: WorldSpec, say: Say) -> None:
    start, day = spec.clock.start, spec.clock.day
    if start != "random" and start >= day:
        say(f"the day has {day} hours and cannot start at {start}", f"use 0 to {day - 1}, or random", "clock", "start")


def _rewards(spec: WorldSpec, say: Say) -> None:
    for i, reward in enumerate(spec.rewards):
        if reward.name == "meter_bonus" and not any(m.bonus for m in spec.meters):
            say(
                "'meter_bonus' pays nothing: no meter has a `bonus`", "give a meter `bonus: {reward: .4}`", "rewards", i
            )
        if isinstance(reward, Vitality) and reward.meters is not None:
            for j in repeats(reward.meters):
                say(f"'{reward.meters[j]}' stands twice in the product", "keep one of them", "rewards", i, "meters", j)
        if isinstance(reward, Survival):
            name = reward.meter or spec.lethal[0]
            if any(m.name == name and m.decay + m.move < 1e-6 for m in spec.meters):
                what = f"'survival' compares with how long '{name}' lasts, and it loses nothing by decay or moves"
                fix = "give it a decay or a cost of moves of at least 0.000001, or name another `meter`"
                say(what, fix, "rewards", i)


def _feasible(spec: WorldSpec, say: Say) -> None:
    for i, meter in enumerate(spec.meters):
        if meter.name not in spec.lethal:
            continue
        life = bound(spec, meter)
        if life.dead_by is None or life.dead_by > spec.max_steps:
            continue
        why = (
            "what an agent owns and can earn buys too little of it"
            if life.broke
            else (f"no affordance gives back more than {life.gain:.4g} a step")
        )
        what = f"'{meter.name}' falls by at least {life.loss:.4g} a step and {why}: "
        what += f"even the luckiest agent is dead by step {life.dead_by} of {spec.max_steps}"
        fix = "lower its decay, strengthen or cheapen a cure" + (
            f", or set max_steps below {life.dead_by}" if life.dead_by > 1 else ""
        )
        key = "decay" if meter.decay > 0 else "name"
        say(what, fix, "meters", i, key)


MAX_OBSERVATION: Final = 100_000  # values
MAX_WINDOW_TABLE: Final = 16_000_000  # cells of the map × cells of the window
MAX_PROXIMITY: Final = 4096  # cells; the table of distances is its square


def _check_map_and_observation(spec: WorldSpec, say: Say) -> None:
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
