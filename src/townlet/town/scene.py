"""One row of a town at one step, with everything that renderers show."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from townlet.town.engines.engine import Engine
from townlet.town.state import cause_of_death
from townlet.town.world.sessions import session_total
from townlet.town.world.tables import TOLERANCE, World

LOW, CRITICAL = 0.3, 0.2  # meters below these are shown in amber and in red
NO_CELL: Final = -1  # pads the last line of a board that is not a full rectangle
VIEW_SIZE: Final = (20, 20, 4)  # a larger map is clipped to this size around the agent
LINE_LENGTH: Final = 8  # a one-dimensional map is folded into lines of this length
MAX_LINES: Final = 6  # lines of such a map that are shown, around the agent
GROUPS: Final = ("primary", "secondary", "tertiary", "resource")


@dataclass(frozen=True)
class Board:
    """Cells to draw, line by line: a level of the map, a line of a folded one, or all affordances without a map."""

    title: str
    rows: tuple[tuple[int, ...], ...]

    @property
    def columns(self) -> int:
        return len(self.rows[0])


@dataclass(frozen=True)
class Gauge:
    """One meter, ready for display."""

    name: str
    index: int
    value: float
    text: str

    @property
    def level(self) -> str:
        """ "critical", "low" or "fine"."""
        if self.value < CRITICAL:
            return "critical"
        return "low" if self.value < LOW else "fine"


@dataclass(frozen=True)
class Scene:
    """The state of one row, with the action and the reward that led to it."""

    world: World
    cell: int
    meters: tuple[float, ...]
    hour: int
    age: int
    progress: int  # completed ticks of the current session
    using: int  # affordance of the current session, or len(affordances)
    here: int  # affordance at the agent's cell, or len(affordances)
    cell_of: tuple[int, ...]  # cell of each affordance
    mask: tuple[bool, ...]
    action: int | None = None  # None after a reset
    reward: float = 0.0
    components: tuple[float, ...] = ()
    ended: str = ""  # why the episode ended; "" while it runs

    def coordinates(self, cell: int) -> tuple[int, ...]:
        """x, y, z of a cell; as many as the map has dimensions."""
        return tuple(int(at) for at in np.unravel_index(cell, self.world.size, order="F"))

    @property
    def dollars(self) -> float:
        """The agent's money in dollars; 0 in a world without currency."""
        if self.world.spec.currency is None:
            return 0.0
        return self.meters[self.world.tables.currency] * self.world.spec.dollars

    @property
    def affordance_at(self) -> dict[int, int]:
        """Cell → affordance."""
        return {cell: affordance for affordance, cell in enumerate(self.cell_of)}

    @property
    def alive(self) -> bool:
        return all(self.meters[m] >= TOLERANCE for m in self.world.tables.lethal)

    def is_open(self, affordance: int) -> bool:
        """Whether an affordance is open at this hour."""
        return bool(self.world.tables.open_at[affordance, self.hour])

    @property
    def time_of_day(self) -> str:
        """The hour as text; "" in a world without time of day."""
        clock = self.world.spec.clock
        if not clock.temporal:
            return ""
        return f"{self.hour:02d}:00" if clock.day == 24 else f"hour {self.hour} of {clock.day}"

    @property
    def darkness(self) -> float:
        """0 by day to 1 at midnight; always 0 in a world without time of day."""
        clock = self.world.spec.clock
        if not clock.temporal:
            return 0.0
        height = -math.cos(2 * math.pi * (self.hour + 0.5) / clock.day)
        return min(1.0, max(0.0, 0.45 - height) / 1.1)

    @property
    def last_action(self) -> str:
        return "just arrived" if self.action is None else self.world.actions[self.action]

    @property
    def place(self) -> str:
        """The affordance at the agent's cell: name, price of a session, progress, whether it is closed."""
        if self.here >= len(self.world.affordances):
            return ""
        affordance = self.world.spec.affordances[self.here]
        parts = [affordance.name]
        if affordance.price:
            parts.append(f"${affordance.price * affordance.ticks * self.world.spec.dollars:.2f}")
        if self.using == self.here and self.progress:
            parts.append(f"{self.progress} of {affordance.ticks}")
        if not self.is_open(self.here):
            parts.append("closed")
        return " · ".join(parts)

    @property
    def session_progress(self) -> float:
        """The completed fraction of the current session; 0 if there is none."""
        if self.using >= len(self.world.affordances):
            return 0.0
        return min(1.0, self.progress / int(self.world.tables.ticks[self.using]))

    @property
    def reward_parts(self) -> list[tuple[str, float]]:
        """The components of the last reward, by name."""
        return list(zip(self.world.rewards, self.components, strict=False))

    def gauges(self) -> dict[str, list[Gauge]]:
        """Meters by group, the most urgent group first, without empty groups."""
        spec = self.world.spec
        groups: dict[str, list[Gauge]] = {group: [] for group in GROUPS}
        for index, (meter, value) in enumerate(zip(spec.meters, self.meters, strict=True)):
            text = f"${value * spec.dollars:.2f}" if meter.name == spec.currency else f"{100 * value:.0f}%"
            groups[meter.group].append(Gauge(meter.name, index, value, text))
        return {group: gauges for group, gauges in groups.items() if gauges}

    def boards(self) -> tuple[Board, ...]:
        """The parts of the map to show; a large map is clipped around the agent."""
        size = self.world.size
        if not size:
            count = len(self.world.affordances)
            columns = math.ceil(math.sqrt(count))
            cells = [*range(count), *[NO_CELL] * (-count % columns)]
            return (Board("", tuple(tuple(cells[i : i + columns]) for i in range(0, len(cells), columns))),)
        if len(size) == 1:
            return _folded_line(self.cell, size[0])
        at = (*self.coordinates(self.cell), 0, 0)[:3]
        full = (*size, 1, 1)[:3]
        xs, ys, zs = (_clip(at[i], full[i], VIEW_SIZE[i]) for i in range(3))
        clipped = len(xs) < full[0] or len(ys) < full[1]
        part = f"x {xs[0]} to {xs[-1]}, y {ys[0]} to {ys[-1]}" if clipped else ""
        boards = []
        for z in zs:
            level = f"level {z}" if full[2] > 1 else ""
            rows = tuple(tuple(x + full[0] * (y + full[1] * z) for x in xs) for y in ys)
            boards.append(Board(" · ".join(t for t in (level, part) if t), rows))
        return tuple(boards)


def read_scene(engine: Engine, row: int, action: int | None = None) -> Scene:
    """The current scene of one row; with autoreset, an ended row already shows its next episode."""
    state = engine.peek()
    meters = tuple(float(v) for v in state["meters"][row])
    ended = ""
    if not engine.autoreset:
        if engine.terminated[row]:
            ended = f"died: no {cause_of_death(engine.world, meters)} left"
        elif engine.truncated[row]:
            ended = "time ran out"
    numbers = {name: int(state[name][row]) for name in ("cell", "hour", "age", "progress", "using", "here")}
    return Scene(
        world=engine.world,
        meters=meters,
        cell_of=tuple(np.asarray(state["cell_of"])[row if len(state["cell_of"]) > 1 else 0].tolist()),
        mask=tuple(bool(v) for v in engine.mask[row]),
        action=action,
        reward=float(engine.reward[row]),
        components=tuple(float(v) for v in engine.components[row]),
        ended=ended,
        **numbers,
    )


def monogram(name: str) -> str:
    """Two letters for an affordance: initials of its words or capitals, else its first two letters."""
    initials = re.findall(r"(?<![A-Za-z])[A-Za-z]|[A-Z](?=[a-z])|[0-9]", name)
    return "".join(initials[:2]) if len(initials) > 1 else name[:2]


def restored_meter(world: World, affordance: int) -> int:
    """The meter that a full session raises most; it sets the color of the affordance."""
    gains = session_total(world.spec.affordances[affordance])
    return max(range(len(world.meters)), key=lambda i: gains.get(world.meters[i], 0.0))


def _folded_line(at: int, size: int) -> tuple[Board, ...]:
    """A one-dimensional map as boards of one line each, around the cell `at`."""
    if size <= LINE_LENGTH:
        return (Board("", (tuple(range(size)),)),)
    boards = []
    for line in _clip(at // LINE_LENGTH, math.ceil(size / LINE_LENGTH), MAX_LINES):
        first, last = line * LINE_LENGTH, min(line * LINE_LENGTH + LINE_LENGTH, size)
        cells = (*range(first, last), *[NO_CELL] * (first + LINE_LENGTH - last))
        boards.append(Board(f"x {first} to {last - 1}", (cells,)))
    return tuple(boards)


def _clip(at: int, size: int, length: int) -> range:
    """At most `length` coordinates around `at`, inside [0, size)."""
    first = min(max(at - length // 2, 0), max(size - length, 0))
    return range(first, min(first + length, size))
