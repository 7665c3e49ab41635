"""A scene as a picture: the town on the left, the agent's life on the right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops

from townlet.town.render.canvas import (
    AMBER,
    FAINT,
    GLOW,
    INK,
    LINE,
    NIGHT,
    PAPER,
    RED,
    RIM,
    WHITE,
    Ink,
    Pen,
    Spot,
    clear,
    ground,
    house,
    lights,
    meter_ink,
    mix,
    person,
)
from townlet.town.scene import NO_CELL, Board, Gauge, Scene, monogram, restored_meter
from townlet.town.world.tables import World

WIDTH, HEIGHT, TOWN = 1200, 800, 800  # the sheet and the town's part of it, in units
MOONLIGHT: Ink = (112, 124, 186)  # what is left of white at midnight
SMOOTH = 2  # drawn this much larger, then shrunk


@dataclass(frozen=True)
class Plot:
    """Where a board lies on the sheet."""

    board: Board
    x: float
    y: float
    side: float

    def spots(self) -> list[tuple[int, int, Spot]]:
        """Every cell with its chequer colour and its place on the sheet."""
        return [
            (cell, (i + j) % 2, Spot(self.x + i * self.side, self.y + j * self.side, self.side))
            for j, row in enumerate(self.board.rows)
            for i, cell in enumerate(row)
            if cell != NO_CELL
        ]


def frame(scene: Scene, width: int = 960) -> NDArray[np.uint8]:
    """The picture as an array [height, width, 3], as Gymnasium's rgb_array."""
    return np.asarray(draw(scene, width))


def draw(scene: Scene, width: int = 960) -> Image.Image:
    """The picture of a scene, a third lower than wide; the same size for every scene."""
    scale = SMOOTH * width / WIDTH
    plots = _plots(scene.boards())
    dark = scene.darkness
    open_now = tuple(scene.is_open(kind) for kind in range(len(scene.world.affordances)))
    town = _town(scene.world, scene.cell_of, open_now, plots, scale)
    sheet = Image.new("RGB", (round(WIDTH * scale), round(HEIGHT * scale)), PAPER[:3])
    sheet.paste(town, (0, 0))
    if dark:
        sheet = ImageChops.multiply(sheet, Image.new("RGB", sheet.size, mix(WHITE, MOONLIGHT, dark)))
    pen = Pen(sheet, scale)
    _life(pen, scene, plots, dark, open_now)
    panel(pen, scene, TOWN, WIDTH - TOWN, HEIGHT)
    return sheet.reduce(SMOOTH)


def _plots(boards: tuple[Board, ...]) -> tuple[Plot, ...]:
    """Lay the boards out in the rows and columns that leave the largest cells."""
    wide, high = boards[0].columns, len(boards[0].rows)
    head = 26.0 if any(b.title for b in boards) else 0.0
    margin, gap = 28.0, 22.0

    def side(across: int) -> float:
        down = -(-len(boards) // across)
        room_x = (TOWN - 2 * margin - gap * (across - 1)) / (across * wide)
        room_y = (HEIGHT - 2 * margin - gap * (down - 1) - head * down) / (down * high)
        return min(room_x, room_y, 160.0)

    across = max(range(1, len(boards) + 1), key=side)
    cell, down = side(across), -(-len(boards) // across)
    left = (TOWN - across * wide * cell - gap * (across - 1)) / 2
    top = (HEIGHT - down * (high * cell + head) - gap * (down - 1)) / 2 + head
    return tuple(
        Plot(b, left + n % across * (wide * cell + gap), top + n // across * (high * cell + head + gap), cell)
        for n, b in enumerate(boards)
    )


@lru_cache(maxsize=8)
def _town(
    world: World, cell_of: tuple[int, ...], open_now: tuple[bool, ...], plots: tuple[Plot, ...], scale: float
) -> Image.Image:
    """Ground and houses by daylight; kept, since they change only with the layout and the opening hours."""
    image = Image.new("RGB", (round(TOWN * scale), round(HEIGHT * scale)), PAPER[:3])
    pen = Pen(image, scale)
    kind_at = {cell: kind for kind, cell in enumerate(cell_of)}
    for plot in plots:
        wide, high = plot.board.columns * plot.side, len(plot.board.rows) * plot.side
        if world.size:
            pen.card(plot.x - 8, plot.y - 5, wide + 16, high + 16, (90, 110, 80, 40), 18)
            pen.card(plot.x - 8, plot.y - 8, wide + 16, high + 16, RIM, 18)
        for cell, chequer, spot in plot.spots():
            ground(pen, spot, cell, chequer)
            if cell in kind_at:
                kind = kind_at[cell]
                roof = meter_ink(restored_meter(world, kind))
                house(pen, spot, kind, roof, monogram(world.affordances[kind]), open_now[kind])
    return image


def _life(pen: Pen, scene: Scene, plots: tuple[Plot, ...], dark: float, open_now: tuple[bool, ...]) -> None:
    """What changes from step to step: the lit cell, names and windows, the agent, the end."""
    kind_at = scene.affordance_at
    label = mix(mix(INK, (60, 90, 50), 0.4), WHITE, 1.0 if dark > 0.35 else 0.0)
    mine: Spot | None = None
    for plot in plots:
        if plot.board.title:
            pen.text(plot.x, plot.y - 20, plot.board.title, 15, mix(FAINT, WHITE, dark))
        for cell, _, spot in plot.spots():
            if cell == scene.cell:
                mine = spot
                edge = 0.018 * spot.side
                pen.card(spot.x + edge, spot.y + edge, spot.side - 2 * edge, spot.side - 2 * edge, clear(GLOW, 0.12),
                         0.1 * spot.side, (246, 178, 60), 0.03 * spot.side)  # fmt: skip
            kind = kind_at.get(cell)
            if kind is None:
                continue
            if dark > 0.35 and open_now[kind]:
                lights(pen, spot)
            if spot.side >= 60:
                name = scene.world.affordances[kind]
                ink = label if open_now[kind] else clear(label, 0.6)
                pen.text(*spot.at(0.5, 0.86), name, min(0.15 * spot.side, 17), ink, "mm", 0.9 * spot.side)
    if mine is not None:
        person(pen, mine, scene.cell in kind_at, scene.alive, scene.session_progress)
    if scene.ended:
        pen.card(TOWN / 2 - 220, HEIGHT / 2 - 34, 440, 68, clear(INK, 0.88), 34)
        pen.text(TOWN / 2, HEIGHT / 2, scene.ended, 26, WHITE, "mm", 390)


PAD = 26.0
PARTS = 6  # reward parts that are listed


def panel(pen: Pen, scene: Scene, left: float, width: float, height: float) -> None:
    """Draw the whole panel in the column from `left`."""
    pen.card(left, 23, width - 20, height - 40, (90, 90, 80, 26), 20)
    pen.card(left, 20, width - 20, height - 40, WHITE, 20)
    x, wide = left + PAD, width - 20 - 2 * PAD
    _head(pen, scene, x, wide)
    foot = height - 150 - 22 * min(PARTS, len(scene.world.rewards))
    _meters(pen, scene, x, 146, wide, foot - 16 - 146)
    _foot(pen, scene, x, foot, wide)


def _head(pen: Pen, scene: Scene, x: float, wide: float) -> None:
    limit = scene.world.spec.max_steps
    pen.text(x, 60, scene.world.name, 30, INK, room=wide - 120, bold=True)
    pen.text(x, 98, f"age {scene.age} of {limit}", 17, FAINT)
    pen.card(x, 118, wide, 6, LINE, 3)
    if scene.age:
        pen.card(x, 118, max(6.0, wide * min(1.0, scene.age / limit)), 6, mix(FAINT, INK, 0.4), 3)
    words = scene.time_of_day
    if words:
        pen.text(x + wide - 46, 60, words, 22, INK, "rm", room=110)
        _sky(pen, scene, x + wide - 18, 60, 18)


def _sky(pen: Pen, scene: Scene, x: float, y: float, radius: float) -> None:
    """The sun by day, the moon by night."""
    dark = scene.darkness
    pen.disc(x, y, radius, mix((150, 204, 240), NIGHT, dark))
    if dark < 0.5:
        for n in range(8):
            turn = n * math.pi / 4
            pen.disc(x + 0.7 * radius * math.cos(turn), y + 0.7 * radius * math.sin(turn), 0.09 * radius, GLOW)
        pen.disc(x, y, 0.45 * radius, GLOW)
    else:
        pen.disc(x, y, 0.55 * radius, (244, 238, 214))
        pen.disc(x + 0.27 * radius, y - 0.16 * radius, 0.47 * radius, mix((150, 204, 240), NIGHT, dark))


def _meters(pen: Pen, scene: Scene, x: float, y: float, wide: float, high: float) -> None:
    groups = scene.gauges()
    lines = sum(len(found) + 0.95 for found in groups.values())
    step = min(40.0, high / lines)
    for group, found in groups.items():
        pen.text(x, y + 0.5 * step, group.upper(), 0.31 * step, FAINT)
        y += 0.95 * step
        for gauge in found:
            _bar(pen, gauge, x, y, wide, step)
            y += step


def _bar(pen: Pen, gauge: Gauge, x: float, y: float, wide: float, step: float) -> None:
    own = meter_ink(gauge.index)
    ink: Ink = {"critical": RED, "low": AMBER, "fine": own}[gauge.level]
    middle, thick, start, end = y + step / 2, 0.42 * step, x + 118, x + wide - 70
    pen.disc(x + 0.16 * step, middle, 0.16 * step, own)
    pen.text(x + 0.52 * step, middle, gauge.name, 0.42 * step, INK, room=108 - 0.5 * step)
    pen.card(start, middle - thick / 2, end - start, thick, LINE, thick / 2)
    if gauge.value > 0:
        pen.card(start, middle - thick / 2, max(thick, (end - start) * gauge.value), thick, ink, thick / 2)
    alarm = gauge.level == "critical"
    pen.text(x + wide, middle, gauge.text, 0.42 * step, RED if alarm else INK, "rm", room=66, bold=alarm)


def _foot(pen: Pen, scene: Scene, x: float, y: float, wide: float) -> None:
    pen.card(x, y, wide, 1.5, LINE)
    lines = [("action", scene.last_action), ("here", scene.place or "open ground")]
    if not scene.world.size and not scene.place:
        lines[1] = ("here", "nowhere yet")
    for n, (title, words) in enumerate(lines):
        pen.text(x, y + 28 + 30 * n, title, 16, FAINT)
        pen.text(x + 78, y + 28 + 30 * n, words, 17, INK, room=wide - 78)
    pen.text(x, y + 88, "reward", 16, FAINT)
    pen.text(x + 78, y + 88, f"{scene.reward:+.2f}", 17, INK, bold=True)
    for n, (name, paid) in enumerate(scene.reward_parts[:PARTS]):
        ink = clear(INK if paid else FAINT, 0.9)
        pen.text(x + 78, y + 114 + 22 * n, name, 15, FAINT, room=wide - 160)
        pen.text(x + wide, y + 114 + 22 * n, f"{paid:+.3f}", 15, ink, "rm")
