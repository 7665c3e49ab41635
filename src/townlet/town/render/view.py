"""What every renderer shows of a scene, free of ink: boards of cells, groups of meters, lines of text."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from townlet.town.scene import Scene
from townlet.town.world.tables import TOLERANCE, World

LOW, CRITICAL = 0.3, 0.2  # below these a meter is shown in amber, in red
NOTHING = -1  # fills the last row of a board that is not a full rectangle
SIGHT = (20, 20, 4)  # a larger map is shown as a view of this size around the agent
LINE = 8  # a world of one dimension is folded into lines of this length
GROUPS = ("primary", "secondary", "tertiary", "resource")


@dataclass(frozen=True)
class Board:
    """One level of the map (or all places of a world without map) as rows of flat cells."""

    title: str
    rows: tuple[tuple[int, ...], ...]

    @property
    def columns(self) -> int:
        return len(self.rows[0])


@dataclass(frozen=True)
class Gauge:
    """One meter as people read it."""

    name: str
    index: int
    value: float
    text: str

    @property
    def state(self) -> str:
        """ "critical", "low" or "fine"."""
        return "critical" if self.value < CRITICAL else "low" if self.value < LOW else "fine"


def boards(scene: Scene) -> tuple[Board, ...]:
    """The parts of the map to show, around the agent where the whole is too large."""
    size = scene.world.size
    if not size:
        return (_places(len(scene.world.affordances)),)
    if len(size) == 1:
        return _lines(scene.cell, size[0])
    at = (*scene.coordinates(scene.cell), 0, 0)[:3]
    full = (*size, 1, 1)[:3]
    xs, ys, zs = (_span(at[i], full[i], SIGHT[i]) for i in range(3))
    clipped = len(xs) < full[0] or len(ys) < full[1]
    part = f"x {xs[0]} to {xs[-1]}, y {ys[0]} to {ys[-1]}" if clipped else ""
    out = []
    for z in zs:
        level = f"level {z}" if full[2] > 1 else ""
        rows = tuple(tuple(x + full[0] * (y + full[1] * z) for x in xs) for y in ys)
        out.append(Board(" · ".join(t for t in (level, part) if t), rows))
    return tuple(out)


def _places(count: int) -> Board:
    columns = math.ceil(math.sqrt(count))
    cells = [*range(count), *[NOTHING] * (-count % columns)]
    return Board("", tuple(tuple(cells[i : i + columns]) for i in range(0, len(cells), columns)))


def _lines(at: int, size: int) -> tuple[Board, ...]:
    if size <= LINE:
        return (Board("", (tuple(range(size)),)),)
    out = []
    for line in _span(at // LINE, -(-size // LINE), 6):
        first, last = line * LINE, min(line * LINE + LINE, size)
        cells = (*range(first, last), *[NOTHING] * (first + LINE - last))
        out.append(Board(f"x {first} to {last - 1}", (cells,)))
    return tuple(out)


def _span(at: int, size: int, sight: int) -> range:
    first = min(max(at - sight // 2, 0), max(size - sight, 0))
    return range(first, min(first + sight, size))


def kinds(scene: Scene) -> dict[int, int]:
    """Cell → the affordance that stands there."""
    return {cell: kind for kind, cell in enumerate(scene.cell_of)}


def monogram(name: str) -> str:
    """Two letters for a place: its capitals or first letters of words, else how it begins."""
    initials = re.findall(r"(?<![A-Za-z])[A-Za-z]|[A-Z](?=[a-z])|[0-9]", name)
    return "".join(initials[:2]) if len(initials) > 1 else name[:2]


def is_open(scene: Scene, kind: int) -> bool:
    """Whether the place takes guests at this hour."""
    return bool(scene.world.tables.open_at[kind, scene.hour])


def gauges(scene: Scene) -> dict[str, list[Gauge]]:
    """Meters by group, the groups in the order of urgency, empty ones left out."""
    world = scene.world
    out: dict[str, list[Gauge]] = {group: [] for group in GROUPS}
    for index, (meter, value) in enumerate(zip(world.spec.meters, scene.meters, strict=True)):
        pays = meter.name == world.spec.currency
        text = f"${value * world.spec.dollars:.2f}" if pays else f"{100 * value:.0f}%"
        out[meter.group].append(Gauge(meter.name, index, value, text))
    return {group: found for group, found in out.items() if found}


def cure_of(world: World, kind: int) -> int:
    """The meter that a whole session raises most, for the colour of the place."""
    place = world.spec.affordances[kind]
    gain = {m: place.each_tick.get(m, 0.0) * place.ticks + place.at_end.get(m, 0.0) for m in world.meters}
    return max(range(len(world.meters)), key=lambda i: gain[world.meters[i]])


def time_of_day(scene: Scene) -> str:
    """The hour as text; empty while the world has no time of day."""
    if not scene.world.spec.clock.temporal:
        return ""
    day = scene.world.spec.clock.day
    return f"{scene.hour:02d}:00" if day == 24 else f"hour {scene.hour} of {day}"


def darkness(scene: Scene) -> float:
    """0 by day to 1 at midnight; always 0 while the world has no time of day."""
    if not scene.world.spec.clock.temporal:
        return 0.0
    height = -math.cos(2 * math.pi * (scene.hour + 0.5) / scene.world.spec.clock.day)
    return min(1.0, max(0.0, 0.45 - height) / 1.1)


def alive(scene: Scene) -> bool:
    """Whether no lethal meter is empty."""
    return all(scene.meters[m] >= TOLERANCE for m in scene.world.tables.lethal)


def last_action(scene: Scene) -> str:
    """What the agent did last."""
    return "just arrived" if scene.action is None else scene.world.actions[scene.action]


def place_here(scene: Scene) -> str:
    """The place the agent stands on: its name, what a session costs, how far it is, whether it is closed."""
    if scene.here >= len(scene.world.affordances):
        return ""
    place = scene.world.spec.affordances[scene.here]
    parts = [place.name]
    if place.price:
        parts.append(f"${place.price * place.ticks * scene.world.spec.dollars:.2f}")
    if scene.using == scene.here and scene.progress:
        parts.append(f"{scene.progress} of {place.ticks}")
    if not is_open(scene, scene.here):
        parts.append("closed")
    return " · ".join(parts)


def session_share(scene: Scene) -> float:
    """How much of the session under way is done, 0 when there is none."""
    if scene.using >= len(scene.world.affordances):
        return 0.0
    return min(1.0, scene.progress / int(scene.world.tables.ticks[scene.using]))


def reward_parts(scene: Scene) -> list[tuple[str, float]]:
    """Each reward strategy with what it paid in the last step."""
    return list(zip(scene.world.rewards, scene.components, strict=False))
