"""A scene as a picture: the town on the left, the state of the agent on the right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops

from townlet.town.render import canvas as draw
from townlet.town.render.canvas import FAINT, GLOW, INK, LINE, NIGHT, PAPER, RED, WHITE, Canvas, Color, Tile, mix
from townlet.town.scene import NO_CELL, Board, Gauge, Scene, monogram, restored_meter
from townlet.town.world.tables import World

WIDTH, HEIGHT, TOWN = 1200, 800, 800  # the picture and the town's part of it, in units
MOONLIGHT: Color = (112, 124, 186)  # the tint of white at midnight
OVERSAMPLING = 2  # the picture is drawn larger by this factor, then reduced
PADDING = 26.0
MAX_REWARD_PARTS = 6  # further components of the reward are not listed


@dataclass(frozen=True)
class PlacedBoard:
    """The position of a board on the picture."""

    board: Board
    x: float
    y: float
    side: float

    def tiles(self) -> list[tuple[int, int, Tile]]:
        """Every cell with its checker color and its tile."""
        return [
            (cell, (i + j) % 2, Tile(self.x + i * self.side, self.y + j * self.side, self.side))
            for j, row in enumerate(self.board.rows)
            for i, cell in enumerate(row)
            if cell != NO_CELL
        ]


def frame(scene: Scene, width: int = 960) -> NDArray[np.uint8]:
    """The picture as an array [height, width, 3]; its height is two thirds of its width."""
    scale = OVERSAMPLING * width / WIDTH
    placed = _arrange(scene.boards())
    open_now = tuple(scene.is_open(affordance) for affordance in range(len(scene.world.affordances)))
    town = _town(scene.world, scene.cell_of, open_now, placed, scale)
    image = Image.new("RGB", (round(WIDTH * scale), round(HEIGHT * scale)), PAPER[:3])
    image.paste(town, (0, 0))
    if scene.darkness:
        tint = Image.new("RGB", image.size, mix(WHITE, MOONLIGHT, scene.darkness))
        image = ImageChops.multiply(image, tint)
    canvas = Canvas(image, scale)
    _draw_changes(canvas, scene, placed, open_now)
    _panel(canvas, scene)
    return np.asarray(image.reduce(OVERSAMPLING))


def _arrange(boards: tuple[Board, ...]) -> tuple[PlacedBoard, ...]:
    """Arrange the boards in the rows and columns that leave the largest cells."""
    wide, high = boards[0].columns, len(boards[0].rows)
    head = 26.0 if any(b.title for b in boards) else 0.0
    margin, gap = 28.0, 22.0

    def side(across: int) -> float:
        down = math.ceil(len(boards) / across)
        max_x = (TOWN - 2 * margin - gap * (across - 1)) / (across * wide)
        max_y = (HEIGHT - 2 * margin - gap * (down - 1) - head * down) / (down * high)
        return min(max_x, max_y, 160.0)

    across = max(range(1, len(boards) + 1), key=side)
    cell, down = side(across), math.ceil(len(boards) / across)
    left = (TOWN - across * wide * cell - gap * (across - 1)) / 2
    top = (HEIGHT - down * (high * cell + head) - gap * (down - 1)) / 2 + head
    return tuple(
        PlacedBoard(b, left + n % across * (wide * cell + gap), top + n // across * (high * cell + head + gap), cell)
        for n, b in enumerate(boards)
    )


@lru_cache(maxsize=8)
def _town(
    world: World, cell_of: tuple[int, ...], open_now: tuple[bool, ...], placed: tuple[PlacedBoard, ...], scale: float
) -> Image.Image:
    """Ground and houses by daylight; cached, since they change only with layout and opening hours."""
    image = Image.new("RGB", (round(TOWN * scale), round(HEIGHT * scale)), PAPER[:3])
    canvas = Canvas(image, scale)
    affordance_at = {cell: affordance for affordance, cell in enumerate(cell_of)}
    for part in placed:
        wide, high = part.board.columns * part.side, len(part.board.rows) * part.side
        if world.size:
            canvas.rectangle(part.x - 8, part.y - 5, wide + 16, high + 16, (90, 110, 80, 40), 18)
            canvas.rectangle(part.x - 8, part.y - 8, wide + 16, high + 16, draw.RIM, 18)
        for cell, checker, tile in part.tiles():
            draw.ground(canvas, tile, cell, checker)
            if cell in affordance_at:
                affordance = affordance_at[cell]
                roof = draw.meter_color(restored_meter(world, affordance))
                letters = monogram(world.affordances[affordance])
                draw.house(canvas, tile, affordance, roof, letters, open_now[affordance])
    return image


def _draw_changes(canvas: Canvas, scene: Scene, placed: tuple[PlacedBoard, ...], open_now: tuple[bool, ...]) -> None:
    """Draw what changes from step to step: the current cell, names and windows, the agent, the end."""
    affordance_at, dark = scene.affordance_at, scene.darkness
    label = mix(mix(INK, (60, 90, 50), 0.4), WHITE, 1.0 if dark > 0.35 else 0.0)
    current: Tile | None = None
    for part in placed:
        if part.board.title:
            canvas.text(part.x, part.y - 20, part.board.title, 15, mix(FAINT, WHITE, dark))
        for cell, _, tile in part.tiles():
            if cell == scene.cell:
                current = tile
                edge = 0.018 * tile.side
                box = (tile.x + edge, tile.y + edge, tile.side - 2 * edge, tile.side - 2 * edge)
                glow = draw.with_alpha(GLOW, 0.12)
                canvas.rectangle(*box, glow, 0.1 * tile.side, (246, 178, 60), 0.03 * tile.side)
            affordance = affordance_at.get(cell)
            if affordance is None:
                continue
            if dark > 0.35 and open_now[affordance]:
                draw.lit_windows(canvas, tile)
            if tile.side >= 60:
                color = label if open_now[affordance] else draw.with_alpha(label, 0.6)
                name, size = scene.world.affordances[affordance], min(0.15 * tile.side, 17)
                canvas.text(*tile.at(0.5, 0.86), name, size, color, "mm", 0.9 * tile.side)
    if current is not None:
        draw.person(canvas, current, scene.cell in affordance_at, scene.alive, scene.session_progress)
    if scene.ended:
        canvas.rectangle(TOWN / 2 - 220, HEIGHT / 2 - 34, 440, 68, draw.with_alpha(INK, 0.88), 34)
        canvas.text(TOWN / 2, HEIGHT / 2, scene.ended, 26, WHITE, "mm", 390)


def _panel(canvas: Canvas, scene: Scene) -> None:
    """Age, hour, meters, last action and reward, in the column beside the town."""
    width, limit = WIDTH - TOWN - 20, scene.world.spec.max_steps
    canvas.rectangle(TOWN, 23, width, HEIGHT - 40, (90, 90, 80, 26), 20)
    canvas.rectangle(TOWN, 20, width, HEIGHT - 40, WHITE, 20)
    x, wide = TOWN + PADDING, width - 2 * PADDING
    canvas.text(x, 60, scene.world.name, 30, INK, max_width=wide - 120, bold=True)
    canvas.text(x, 98, f"age {scene.age} of {limit}", 17, FAINT)
    canvas.rectangle(x, 118, wide, 6, LINE, 3)
    if scene.age:
        canvas.rectangle(x, 118, max(6.0, wide * min(1.0, scene.age / limit)), 6, mix(FAINT, INK, 0.4), 3)
    if scene.time_of_day:
        canvas.text(x + wide - 46, 60, scene.time_of_day, 22, INK, "rm", max_width=110)
        _sky(canvas, scene.darkness, x + wide - 18, 60, 18)
    foot = HEIGHT - 150 - 22 * min(MAX_REWARD_PARTS, len(scene.world.rewards))
    _meters(canvas, scene, x, 146, wide, foot - 16 - 146)
    _foot(canvas, scene, x, foot, wide)


def _sky(canvas: Canvas, dark: float, x: float, y: float, radius: float) -> None:
    """The sun by day, the moon by night."""
    sky = mix((150, 204, 240), NIGHT, dark)
    canvas.disc(x, y, radius, sky)
    if dark < 0.5:
        for n in range(8):
            turn = n * math.pi / 4
            canvas.disc(x + 0.7 * radius * math.cos(turn), y + 0.7 * radius * math.sin(turn), 0.09 * radius, GLOW)
        canvas.disc(x, y, 0.45 * radius, GLOW)
    else:
        canvas.disc(x, y, 0.55 * radius, (244, 238, 214))
        canvas.disc(x + 0.27 * radius, y - 0.16 * radius, 0.47 * radius, sky)


def _meters(canvas: Canvas, scene: Scene, x: float, y: float, wide: float, high: float) -> None:
    groups = scene.gauges()
    step = min(40.0, high / sum(len(gauges) + 0.95 for gauges in groups.values()))
    for group, gauges in groups.items():
        canvas.text(x, y + 0.5 * step, group.upper(), 0.31 * step, FAINT)
        y += 0.95 * step
        for gauge in gauges:
            _bar(canvas, gauge, x, y, wide, step)
            y += step


def _bar(canvas: Canvas, gauge: Gauge, x: float, y: float, wide: float, step: float) -> None:
    meter = draw.meter_color(gauge.index)
    color: Color = {"critical": RED, "low": draw.AMBER, "fine": meter}[gauge.level]
    middle, thick, start, end = y + step / 2, 0.42 * step, x + 118, x + wide - 70
    canvas.disc(x + 0.16 * step, middle, 0.16 * step, meter)
    canvas.text(x + 0.52 * step, middle, gauge.name, 0.42 * step, INK, max_width=108 - 0.5 * step)
    canvas.rectangle(start, middle - thick / 2, end - start, thick, LINE, thick / 2)
    if gauge.value > 0:
        length = max(thick, (end - start) * gauge.value)
        canvas.rectangle(start, middle - thick / 2, length, thick, color, thick / 2)
    alarm = gauge.level == "critical"
    canvas.text(x + wide, middle, gauge.text, 0.42 * step, RED if alarm else INK, "rm", max_width=66, bold=alarm)


def _foot(canvas: Canvas, scene: Scene, x: float, y: float, wide: float) -> None:
    canvas.rectangle(x, y, wide, 1.5, LINE)
    nowhere = "open ground" if scene.world.size else "nowhere yet"
    for n, (title, text) in enumerate([("action", scene.last_action), ("here", scene.place or nowhere)]):
        canvas.text(x, y + 28 + 30 * n, title, 16, FAINT)
        canvas.text(x + 78, y + 28 + 30 * n, text, 17, INK, max_width=wide - 78)
    canvas.text(x, y + 88, "reward", 16, FAINT)
    canvas.text(x + 78, y + 88, f"{scene.reward:+.2f}", 17, INK, bold=True)
    for n, (name, value) in enumerate(scene.reward_parts[:MAX_REWARD_PARTS]):
        color = draw.with_alpha(INK if value else FAINT, 0.9)
        canvas.text(x + 78, y + 114 + 22 * n, name, 15, FAINT, max_width=wide - 160)
        canvas.text(x + wide, y + 114 + 22 * n, f"{value:+.3f}", 15, color, "rm")
