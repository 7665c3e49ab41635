"""Drawing primitives: colors, a scaled canvas, and the houses and people of a town."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

Color = tuple[int, int, int] | tuple[int, int, int, int]
Point = tuple[float, float]

WHITE: Color = (255, 255, 255)
PAPER: Color = (246, 243, 236)
INK: Color = (52, 58, 76)
FAINT: Color = (139, 144, 158)
LINE: Color = (231, 228, 220)
RED: Color = (224, 72, 77)
AMBER: Color = (240, 173, 48)
NIGHT: Color = (26, 32, 74)
GLOW: Color = (255, 214, 110)
METER_COLORS: tuple[Color, ...] = (
    (92, 124, 240), (76, 190, 226), (205, 138, 92), (79, 172, 108), (240, 152, 182), (164, 120, 220),
    (226, 104, 128), (160, 178, 66), (47, 154, 146), (141, 153, 174), (196, 122, 184), (104, 140, 158),
)  # fmt: skip
GRASS: tuple[Color, Color] = ((207, 226, 188), (200, 221, 180))
RIM: Color = (178, 204, 158)
WALL: Color = (255, 249, 238)
GRAY: Color = (168, 172, 178)
FLOWERS: tuple[Color, ...] = ((250, 240, 170), (246, 205, 214), (255, 255, 255))


def meter_color(index: int) -> Color:
    """The color of a meter and of the affordances that raise it."""
    return METER_COLORS[index % len(METER_COLORS)]


def mix(a: Color, b: Color, fraction: float) -> Color:
    """The color at a fraction of the way from a to b."""
    red, green, blue = (round(x + (y - x) * fraction) for x, y in zip(a[:3], b[:3], strict=True))
    return (red, green, blue)


def with_alpha(color: Color, alpha: float) -> Color:
    """The color with an opacity from 0 to 1."""
    return (*color[:3], round(255 * alpha))


@lru_cache(maxsize=64)
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


class Canvas:
    """Draws on an image in units of `scale` pixels."""

    def __init__(self, image: Image.Image, scale: float) -> None:
        self.scale = scale
        self._draw = ImageDraw.Draw(image, "RGBA")

    def _box(self, x: float, y: float, w: float, h: float) -> tuple[float, float, float, float]:
        s = self.scale
        return (x * s, y * s, max((x + w) * s - 1, x * s), max((y + h) * s - 1, y * s))

    def rectangle(
        self, x: float, y: float, w: float, h: float, color: Color, radius: float = 0,
        edge: Color | None = None, line: float = 0,
    ) -> None:  # fmt: skip
        """A rectangle with rounded corners."""
        box, width = self._box(x, y, w, h), round(line * self.scale)
        self._draw.rounded_rectangle(box, radius * self.scale, fill=color, outline=edge, width=width)

    def disc(self, x: float, y: float, rx: float, color: Color, ry: float | None = None) -> None:
        """A filled circle around (x, y), or an ellipse."""
        ry = rx if ry is None else ry
        self._draw.ellipse(self._box(x - rx, y - ry, 2 * rx, 2 * ry), fill=color)

    def polygon(self, points: list[Point], color: Color) -> None:
        """A filled polygon."""
        self._draw.polygon([(x * self.scale, y * self.scale) for x, y in points], fill=color)

    def arc(self, x: float, y: float, radius: float, fraction: float, color: Color, line: float) -> None:
        """A fraction of a circle, clockwise from the top."""
        box = self._box(x - radius, y - radius, 2 * radius, 2 * radius)
        self._draw.arc(box, -90, -90 + 360 * fraction, fill=color, width=max(1, round(line * self.scale)))

    def text(
        self, x: float, y: float, text: str, size: float, color: Color, anchor: str = "lm",
        max_width: float = 0, bold: bool = False,
    ) -> None:  # fmt: skip
        """One line of text, set smaller if it would exceed `max_width`."""
        s = self.scale
        font = _font(max(6, round(size * s)))
        width = font.getlength(text)
        if max_width and width > max_width * s:
            font = _font(max(6, int(size * s * max_width * s / width)))
        stroke = size * s / 45 if bold else 0
        self._draw.text((x * s, y * s), text, fill=color, font=font, anchor=anchor, stroke_width=stroke)


@dataclass(frozen=True)
class Tile:
    """One cell of the map on the canvas: its corner and its side; coordinates inside are fractions of the side."""

    x: float
    y: float
    side: float

    def at(self, u: float, v: float) -> Point:
        return (self.x + u * self.side, self.y + v * self.side)

    def rectangle(
        self, canvas: Canvas, box: tuple[float, float, float, float], color: Color, radius: float = 0
    ) -> None:
        """A rectangle at (u, v) of width w and height h, all in fractions of the side."""
        u, v, w, h = box
        canvas.rectangle(*self.at(u, v), w * self.side, h * self.side, color, radius * self.side)


def ground(canvas: Canvas, tile: Tile, cell: int, checker: int) -> None:
    """Grass with a few tufts and flowers, always the same for a cell."""
    gap = 0.018
    tile.rectangle(canvas, (gap, gap, 1 - 2 * gap, 1 - 2 * gap), GRASS[checker], 0.1)
    bits = cell * 2654435761 % 2**32 >> 8  # a fixed scatter without random numbers
    for n in range(bits % 4):
        u, v = 0.15 + (bits >> 3 + 5 * n) % 23 / 33, 0.15 + (bits >> 5 + 6 * n) % 29 / 41
        if bits >> n & 16:
            canvas.disc(*tile.at(u, v), 0.03 * tile.side, FLOWERS[n % 3])
        else:
            tuft = mix(GRASS[checker], (120, 160, 100), 0.45)
            for lean in (-0.02, 0.0, 0.02):
                root, tip = tile.at(u, v), tile.at(u + lean * 1.6, v - 0.07)
                canvas.polygon([root, (root[0] + 0.018 * tile.side, root[1]), tip], tuft)


def house(canvas: Canvas, tile: Tile, affordance: int, roof: Color, letters: str, is_open: bool) -> None:
    """An affordance: its roof has the color of the meter it raises, its sign two letters of its name."""
    wall = WALL
    if not is_open:
        roof, wall = mix(roof, GRAY, 0.72), mix(WALL, GRAY, 0.45)
    side = tile.side
    canvas.disc(*tile.at(0.5, 0.725), 0.38 * side, (40, 60, 30, 46), 0.055 * side)
    (_gable, _shop, _hip)[affordance % 3](canvas, tile, roof, wall)
    tile.rectangle(canvas, (0.435, 0.54, 0.13, 0.185), mix(roof, INK, 0.35), 0.03)
    for u in (0.25, 0.63):
        tile.rectangle(canvas, (u, 0.53, 0.12, 0.1), mix(roof, wall, 0.55) if is_open else mix(GRAY, INK, 0.2), 0.02)
    canvas.disc(*tile.at(0.5, 0.34), 0.148 * side, mix(roof, INK, 0.25))
    canvas.disc(*tile.at(0.5, 0.34), 0.13 * side, WHITE if is_open else mix(WHITE, GRAY, 0.35))
    canvas.text(*tile.at(0.5, 0.345), letters, 0.135 * side, mix(roof, INK, 0.6), "mm", 0.2 * side, bold=True)


def _gable(canvas: Canvas, tile: Tile, roof: Color, wall: Color) -> None:
    tile.rectangle(canvas, (0.19, 0.36, 0.62, 0.365), wall, 0.03)
    canvas.polygon([tile.at(0.10, 0.44), tile.at(0.5, 0.08), tile.at(0.90, 0.44)], roof)


def _shop(canvas: Canvas, tile: Tile, roof: Color, wall: Color) -> None:
    tile.rectangle(canvas, (0.16, 0.20, 0.68, 0.525), wall, 0.03)
    tile.rectangle(canvas, (0.12, 0.15, 0.76, 0.09), roof, 0.03)
    for n in range(7):
        left, right = 0.13 + n * 0.74 / 7, 0.13 + (n + 1) * 0.74 / 7
        top = [tile.at(left + 0.02, 0.40), tile.at(right + 0.02 - 0.04 * (n == 6), 0.40)]
        bottom = [tile.at(right, 0.49), tile.at(left, 0.49)]
        canvas.polygon(top + bottom, roof if n % 2 == 0 else mix(WHITE, wall, 0.5))


def _hip(canvas: Canvas, tile: Tile, roof: Color, wall: Color) -> None:
    tile.rectangle(canvas, (0.18, 0.40, 0.64, 0.325), wall, 0.03)
    tile.rectangle(canvas, (0.66, 0.09, 0.08, 0.16), mix(roof, INK, 0.3), 0.01)
    canvas.polygon([tile.at(0.10, 0.46), tile.at(0.27, 0.16), tile.at(0.73, 0.16), tile.at(0.90, 0.46)], roof)


def lit_windows(canvas: Canvas, tile: Tile) -> None:
    """Windows of an affordance that is open after dark."""
    for u in (0.25, 0.63):
        canvas.disc(*tile.at(u + 0.06, 0.58), 0.13 * tile.side, with_alpha(GLOW, 0.22))
        tile.rectangle(canvas, (u, 0.53, 0.12, 0.1), GLOW, 0.02)


def person(canvas: Canvas, tile: Tile, visiting: bool, alive: bool, progress: float) -> None:
    """The agent, beside the house it visits, with a ring that shows the progress of its session."""
    x, y = tile.at(0.79, 0.53) if visiting else tile.at(0.5, 0.5)
    s = tile.side * (0.2 if visiting else 0.25)
    shirt: Color = (240, 98, 60) if alive else (150, 152, 160)
    face: Color = (255, 222, 192) if alive else (205, 205, 208)
    if progress:
        canvas.disc(x, y, 1.32 * s, with_alpha(WHITE, 0.85))
        canvas.arc(x, y, 1.32 * s, 1.0, (214, 226, 216), 0.24 * s)
        canvas.arc(x, y, 1.32 * s, progress, (46, 160, 104), 0.24 * s)
    canvas.disc(x, y + 0.92 * s, 0.78 * s, (30, 40, 30, 80), 0.16 * s)
    for rim, torso, head in ((0.11 * s, WHITE, WHITE), (0.0, shirt, face)):
        size = 1.16 * s + 2 * rim, 1.0 * s + 2 * rim
        canvas.rectangle(x - 0.58 * s - rim, y - 0.08 * s - rim, *size, torso, 0.46 * s + rim)
        canvas.disc(x, y - 0.42 * s, 0.47 * s + rim, head)
    canvas.disc(x, y - 0.42 * s, 0.47 * s, face)
    for eye in (-0.17, 0.17):
        canvas.disc(x + eye * s, y - 0.4 * s, 0.065 * s, INK)
