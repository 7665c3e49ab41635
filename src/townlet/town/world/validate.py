"""Validation of worlds: a file can have the right shape and still describe an impossible world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import prod
from pathlib import Path
from typing import Final

from townlet.config.yaml import Node
from townlet.errors import Diagnostic, did_you_mean, nearest
from townlet.town.world import icons, schema
from townlet.town.world.schema import DEFAULT_WINDOW, MAX_CELLS, Cascade, Modulation, Survival, Vitality, WorldSpec
from townlet.town.world.sessions import session_total, survival_bound, unused_meters

ALMOST_EQUAL: Final = 0.85  # similarity of names above which one is taken for a misspelling of the other
MAX_OBSERVATION: Final = 100_000  # values
MAX_WINDOW_TABLE: Final = 16_000_000  # cells of the map × cells of the window
MAX_PROXIMITY_CELLS: Final = 4096  # the distance table has cells² entries


@dataclass(frozen=True)
class Report:
    """Collects problems of a world; its values come from three layers: parent worlds < file < command line."""

    node: Node
    problems: list[Diagnostic] = field(default_factory=list)

    def __call__(self, what: str, fix: str, *path: str | int, or_at: tuple[str, ...] = ()) -> None:
        """Report a problem at `path`, or at `or_at` if that is in a later layer."""
        where = self.node.location_of(*(or_at if or_at and self.layer(*or_at) > self.layer(*path) else path))
        self.problems.append(Diagnostic(what, fix, where))

    def layer(self, *path: str | int) -> int:
        """0 for a value in a parent, 1 in the file, 2 on the command line."""
        location = self.node.location_of(*path)
        if not location.line:
            return 2
        return 1 if location.source == self.node.location.source else 0

    def origin(self, *path: str | int) -> str:
        """File and line of a value, or the override that sets it."""
        location = self.node.location_of(*path)
        return f"{Path(location.source).name}:{location.line}" if location.line else location.source


def check(spec: WorldSpec, node: Node, with_survival: bool = True) -> list[Diagnostic]:
    """All problems, each with the location of the wrong value; `with_survival`: also whether agents can survive."""
    report = Report(node)
    parts = (_names, _references, _affordances, _meters, _misspelled_meters, _rewards, _map, _blocks, _observation)
    for check_part in parts:
        check_part(spec, report)
    start, day = spec.clock.start, spec.clock.day
    if start != "random" and start >= day:
        what = f"an episode cannot start at hour {start}: a day has {day} hours"
        report(what, f"use 0 to {day - 1}, or random", "clock", "start")
    if with_survival and not report.problems:  # the bound needs values that have passed the other checks
        _check_survival(spec, report)
    return report.problems


def _names(spec: WorldSpec, report: Report) -> None:
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
            fix = "keep one of them" if key in ("lethal", "rewards") else "rename one of them"
            report(f"'{names[i]}' occurs twice in {key}", fix, key, i)


def repeats(names: Sequence[str]) -> list[int]:
    """Indices of names that also occur earlier in the list."""
    return [i for i, name in enumerate(names) if name in names[:i]]


def _references(spec: WorldSpec, report: Report) -> None:
    known = [m.name for m in spec.meters]

    def require_meter(name: str, *path: str | int) -> None:
        if name not in known:
            report(f"there is no meter '{name}'", did_you_mean(name, known), *path)

    if spec.currency is not None:
        require_meter(spec.currency, "currency")
    for i, name in enumerate(spec.lethal):
        require_meter(name, "lethal", i)
    all_links: dict[str, Sequence[Modulation | Cascade]]
    all_links = {"modulations": spec.modulations, "cascades": spec.cascades}
    for key, links in all_links.items():
        for i, link in enumerate(links):
            require_meter(link.source, key, i, "source")
            require_meter(link.target, key, i, "target")
            if link.source == link.target:
                what = f"'{link.source}' is both source and target of one of the {key}"
                report(what, "name two different meters; for a constant loss use `decay`", key, i, "target")
    for i, affordance in enumerate(spec.affordances):
        for key, effects in (("each_tick", affordance.each_tick), ("at_end", affordance.at_end)):
            for name in effects:
                require_meter(name, "affordances", i, key, name)
    for i, reward in enumerate(spec.rewards):
        if isinstance(reward, Survival) and reward.meter is not None:
            require_meter(reward.meter, "rewards", i, "meter")
        if isinstance(reward, Vitality) and reward.meters is not None:
            for j, name in enumerate(reward.meters):
                require_meter(name, "rewards", i, "meters", j)


def _affordances(spec: WorldSpec, report: Report) -> None:
    day = spec.clock.day
    for i, affordance in enumerate(spec.affordances):
        if found := icons.problem(affordance.name, affordance.icon):
            report(*found, "affordances", i, "icon")
        if affordance.price > 0 and spec.currency is None:
            what = f"'{affordance.name}' has a price, but the world has no currency"
            fix = "add `currency:` with the meter that pays, or set the price to 0"
            report(what, fix, "affordances", i, "price", or_at=("currency",))
        if affordance.hours is None:
            continue
        opens, closes = affordance.hours
        if not (0 <= opens < day and 0 < closes <= opens + day and opens != closes):
            what = f"'{affordance.name}' cannot be open from {opens} to {closes} in a day of {day} hours"
            fix = f"open at 0 to {day - 1} and close at a different hour, from 1 to {day} hours after it opens; "
            fix += "omit `hours` if always open"
            report(what, fix, "affordances", i, "hours", or_at=("clock", "day"))


def _meters(spec: WorldSpec, report: Report) -> None:
    index = {m.name: i for i, m in enumerate(spec.meters)}
    lethal = [m for m in spec.meters if m.name in spec.lethal]
    for meter in lethal:
        if meter.start <= 1e-3:
            what = f"'{meter.name}' is lethal and starts at {meter.start:g}: every agent starts dead"
            report(what, "start it above 0.001", "meters", index[meter.name], "start")
    # On a map, WAIT must not drain any lethal meter more than a move does, and must drain at least one of them less.
    worst = max(lethal, key=lambda m: m.wait - m.move, default=None)
    some_cheaper = any(m.wait < m.move for m in lethal)
    if spec.map.kind == "grid" and worst is not None and (worst.wait > worst.move or not some_cheaper):
        what = f"WAIT costs {worst.wait:g} of '{worst.name}' and a move {worst.move:g}: waiting must be cheaper"
        report(what, "lower `wait` or raise `move`", "meters", index[worst.name], "wait")
    for i, name in enumerate(spec.lethal):
        if name in index and not any(session_total(a).get(name, 0.0) > 1e-9 for a in spec.affordances):
            fix = f"add an affordance whose complete use raises '{name}', or remove it from `lethal`"
            report(f"'{name}' is lethal and no affordance raises it", fix, "lethal", i)


def _misspelled_meters(spec: WorldSpec, report: Report) -> None:
    """Report meters that nothing refers to and whose names are almost those of others."""
    for i, name in unused_meters(spec):
        others = [meter.name for meter in spec.meters if meter.name != name]
        if near := get_close_matches(name, others, n=1, cutoff=ALMOST_EQUAL):
            what = f"nothing raises the meter '{name}', and it affects nothing else"
            report(what, f"did you mean '{near[0]}'?", "meters", i, "name")


def _rewards(spec: WorldSpec, report: Report) -> None:
    for i, reward in enumerate(spec.rewards):
        if reward.name == "meter_bonus" and not any(m.bonus for m in spec.meters):
            what = "'meter_bonus' pays nothing: no meter has a `bonus`"
            report(what, "give a meter `bonus: {reward: .4}`", "rewards", i)
        if isinstance(reward, Vitality) and reward.meters is not None:
            for j in repeats(reward.meters):
                what = f"'{reward.meters[j]}' occurs twice in the meters of 'vitality'"
                report(what, "keep one of them", "rewards", i, "meters", j)
        if isinstance(reward, Survival):
            name = reward.meter or spec.lethal[0]
            if reward.baseline is not None:
                if reward.meter is not None:
                    what = "'survival' has both a `meter` and a `baseline`"
                    report(what, "leave out one of them", "rewards", i, "baseline")
            elif any(m.name == name and m.decay + m.move < 1e-6 for m in spec.meters):
                what = f"'survival' compares the agent's age with how long '{name}' lasts, "
                what += "but that meter has neither decay nor move cost"
                fix = "give it a decay or move cost of at least 0.000001, or set another `meter`"
                report(what, fix, "rewards", i)


def _check_survival(spec: WorldSpec, report: Report) -> None:
    """Report lethal meters that no agent can keep above 0 until max_steps."""
    for i, meter in enumerate(spec.meters):
        if meter.name not in spec.lethal:
            continue
        bound = survival_bound(spec, meter)
        if bound.dead_by is None or bound.dead_by > spec.max_steps:
            continue
        limit = f"no affordance restores more than {bound.gain:.4g} per step"
        why = "the agent's money buys too little of it" if bound.limited_by_money else limit
        what = f"'{meter.name}' falls by at least {bound.loss:.4g} per step, and {why}: "
        what += f"even the luckiest agent is dead by step {bound.dead_by} of {spec.max_steps}"
        fix = "lower its decay, or make an affordance that restores it stronger or cheaper"
        fix += f", or set max_steps below {bound.dead_by}" if bound.dead_by > 1 else ""
        report(what, fix, "meters", i, "decay" if meter.decay > 0 else "name")


def _map(spec: WorldSpec, report: Report) -> None:
    proximity = [i for i, reward in enumerate(spec.rewards) if reward.name == "proximity"]
    if spec.map.kind == "aspatial":
        if spec.map.start != "random":
            report("a world without a map has no cell to start on", "use `start: random`", "map", "start")
        if spec.map.layout == "shuffled":
            report("a world without a map has no layout to shuffle", "use `layout: fixed`", "map", "layout")
        for i in proximity:
            report("'proximity' needs distances, but this world has no map", "use another reward", "rewards", i)
        return
    cells, shape = prod(spec.map.size), "×".join(map(str, spec.map.size))
    if cells > MAX_CELLS:
        report(f"a map of {shape} has {cells} cells", f"use at most {MAX_CELLS}", "map", "size")
    if spec.map.start != "random":
        _check_cell(spec, report, "the start", spec.map.start, "map", "start")
    if len(spec.affordances) > cells:
        what = f"{len(spec.affordances)} affordances do not fit on the {cells} cells of a map of {shape}"
        report(what, "enlarge `size` or remove some", "map", "size")
    if cells > MAX_PROXIMITY_CELLS:
        for i in proximity:
            what = f"'proximity' needs the distances between all cells, and this map has too many cells: {cells}"
            report(what, f"use a map of at most {MAX_PROXIMITY_CELLS} cells", "rewards", i)
    if spec.map.layout == "fixed":
        _check_fixed_layout(spec, report)


def _check_fixed_layout(spec: WorldSpec, report: Report) -> None:
    """Check that in a fixed layout every affordance has its own cell inside the map."""
    taken: dict[tuple[int, ...], int] = {}  # index of the affordance on a cell
    dimensions = len(spec.map.size)
    all_wrong = all(a.cell is not None and len(a.cell) != dimensions for a in spec.affordances)
    if all_wrong and len(spec.affordances) > 1:  # probably an inherited world whose map was replaced
        what = f"the map has {dimensions} dimensions, but no affordance has a `cell` of {dimensions} numbers"
        report(what, "give each affordance such a cell, or use `layout: shuffled`", "map", "size")
        return
    for i, affordance in enumerate(spec.affordances):
        if affordance.cell is None:
            near = nearest(affordance.name, [a.name for a in spec.affordances if a is not affordance])
            fix = f"did you mean '{near}'? " if near else ""
            fix += "A new affordance needs `cell: [x, y]` with one number per dimension, or `layout: shuffled`"
            report(f"'{affordance.name}' has no cell, but the layout is fixed", fix, "affordances", i)
        elif _check_cell(spec, report, f"'{affordance.name}'", affordance.cell, "affordances", i, "cell"):
            other = taken.setdefault(affordance.cell, i)
            if spec.affordances[other].name != affordance.name:  # a repeated name is a problem of its own
                # The one in the later layer was moved onto the other: an inherited one is not to blame.
                moved, there = sorted((i, other), key=lambda j: -report.layer("affordances", j, "cell"))
                what = f"'{spec.affordances[moved].name}' is on the same cell as '{spec.affordances[there].name}'"
                origin = report.origin("affordances", there, "cell")
                report(f"{what} ({origin})", "move one of them", "affordances", moved, "cell")


def _check_cell(spec: WorldSpec, report: Report, subject: str, cell: tuple[int, ...], *path: str | int) -> bool:
    """Whether a cell is on the map; reports a problem if it is not."""
    size = spec.map.size
    if len(cell) != len(size):
        what = f"{subject} has a cell of {len(cell)} coordinates, but the map has {len(size)} dimensions"
        report(what, f"give {len(size)}, in the order x, y, z", *path, or_at=("map", "size"))
    elif any(not 0 <= at < n for at, n in zip(cell, size, strict=True)):
        ranges = ", ".join(f"{axis} from 0 to {n - 1}" for axis, n in zip("xyz", size, strict=False))
        report(f"{subject} is outside the map at {list(cell)}", f"use {ranges}", *path, or_at=("map", "size"))
    else:
        return True
    return False


def _blocks(spec: WorldSpec, report: Report) -> None:
    """Check an explicit list of blocks; presets are always valid."""
    if isinstance(spec.observation, str):
        return
    seen: set[str] = set()
    sides: set[int] = set()
    for i, block in enumerate(spec.observation):
        if block.name in seen:
            report(f"block '{block.name}' occurs twice", "keep one of them", "observation", i)
        seen.add(block.name)
        if spec.map.kind == "aspatial" and block.name in schema.MAP_BLOCKS:
            report(f"block '{block.name}' needs a map, but this world has none", "remove it", "observation", i)
        if not spec.clock.temporal and block.name in schema.TIME_BLOCKS:
            what = f"block '{block.name}' needs a clock, but `clock.temporal` is false"
            report(what, "remove it or set `temporal: true`", "observation", i)
        if block.encoding is not None and block.name != "clock":
            report(f"block '{block.name}' has no encoding", "only `clock` has one", "observation", i, "encoding")
        if block.name in schema.WINDOW_BLOCKS:
            side = block.size or DEFAULT_WINDOW
            if side % 2 == 0:
                what = f"a window of {side} has no middle for the agent"
                report(what, f"use an odd size, such as {side - 1} or {side + 1}", "observation", i, "size")
            if sides and side not in sides:
                what = "`window` and `window_typed` differ in size"
                report(what, f"use one size; the default is {DEFAULT_WINDOW}", "observation", i)
            sides.add(side)
        elif block.size is not None:
            report(f"block '{block.name}' has no size", "only windows have one", "observation", i, "size")


def _observation(spec: WorldSpec, report: Report) -> None:
    names = [block.name for block in schema.blocks(spec)]
    if "meters" not in names:
        report("the observation does not show the meters", "add the block `meters`", "observation")
    hidden = "window_typed" not in names and "map_typed" not in names
    if spec.map.kind == "grid" and spec.map.layout == "shuffled" and hidden and not spec.map.allow_hidden_layout:
        what = "the layout is shuffled, but the observation never shows which affordance is where"
        fix = "use observation `shuffled` or `foggy`, add the block `window_typed` or `map_typed`, "
        report(what, fix + "or set `map.allow_hidden_layout: true`", "observation", or_at=("map", "layout"))
    values = schema.observation_layout(spec).size
    if values > MAX_OBSERVATION:
        report(f"an observation has {values} values", f"use smaller blocks: at most {MAX_OBSERVATION}", "observation")
    cells = prod(spec.map.size) if spec.map.kind == "grid" else 0
    window_cells = schema.window_side(spec) ** min(len(spec.map.size), 2)
    entries = cells * window_cells
    if entries > MAX_WINDOW_TABLE and cells <= MAX_CELLS:
        what = f"windows of {window_cells} cells on a map of {cells} need a table of {entries} entries"
        report(what, f"use a smaller map or window: the limit is {MAX_WINDOW_TABLE} entries", "observation")
