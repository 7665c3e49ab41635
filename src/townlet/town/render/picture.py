"""A scene as a picture: the town on the left, the agent's life on the right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops

from townlet.town.render import view
from townlet.town.render.houses import RIM, Spot, ground, house, lights, person
from townlet.town.render.panel import panel
from townlet.town.render.pen import FAINT, GLOW, INK, PAPER, WHITE, Ink, Pen, clear, meter_ink, mix
from townlet.town.scene import Scene
from townlet.town.world.tables import World

WIDTH, HEIGHT, TOWN = 1200, 800, 800  # the sheet and the town's part of it, in units
MOONLIGHT: Ink = (112, 124, 186)  # what is left of white at midnight
SMOOTH = 2  # drawn this much larger, then shrunk


@dataclass(frozen=True)
class Plot:
    """Where a board lies on the sheet."""

    board: view.Board
    x: float
    y: float
    side: float

    def spots(self) -> list[tuple[int, int, Spot]]:
        """Every cell with its chequer colour and its place on the sheet."""
        return [
            (cell, (i + j) % 2, Spot(self.x + i * self.side, self.y + j * self.side, self.side))
            for j, row in enumerate(self.board.rows)
            for i, cell in enumerate(row)
            if cell != view.NOTHING
        ]


def frame(scene: Scene, width: int = 960) -> NDArray[np.uint8]:
    """The picture as an array [height, width, 3], as Gymnasium's rgb_array."""
    return np.asarray(draw(scene, width))


def draw(scene: Scene, width: int = 960) -> Image.Image:
    """The picture of a scene, a third lower than wide; the same size for every scene."""
    scale = SMOOTH * width / WIDTH
    plots = _plots(view.boards(scene))
    dark = view.darkness(scene)
    open_now = tuple(view.is_open(scene, kind) for kind in range(len(scene.world.affordances)))
    town = _town(scene.world, scene.cell_of, open_now, plots, scale)
    sheet = Image.new("RGB", (round(WIDTH * scale), round(HEIGHT * scale)), PAPER[:3])
    sheet.paste(town, (0, 0))
    if dark:
        sheet = ImageChops.multiply(sheet, Image.new("RGB", sheet.size, mix(WHITE, MOONLIGHT, dark)))
    pen = Pen(sheet, scale)
    _life(pen, scene, plots, dark, open_now)
    panel(pen, scene, TOWN, WIDTH - TOWN, HEIGHT)
    return sheet.reduce(SMOOTH)


def _plots(boards: tuple[view.Board, ...]) -> tuple[Plot, ...]:
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
                roof = meter_ink(view.cure_of(world, kind))
                house(pen, spot, kind, roof, view.monogram(world.affordances[kind]), open_now[kind])
    return image


def _life(pen: Pen, scene: Scene, plots: tuple[Plot, ...], dark: float, open_now: tuple[bool, ...]) -> None:
    """What changes from step to step: the lit cell, names and windows, the agent, the end."""
    kind_at = view.kinds(scene)
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
        person(pen, mine, scene.cell in kind_at, view.alive(scene), view.session_share(scene))
    if scene.ended:
        pen.card(TOWN / 2 - 220, HEIGHT / 2 - 34, 440, 68, clear(INK, 0.88), 34)
        pen.text(TOWN / 2, HEIGHT / 2, scene.ended, 26, WHITE, "mm", 390)
