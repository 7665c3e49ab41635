"""A pen that draws in its own units on a larger sheet, so that edges are smooth after shrinking."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

Ink = tuple[int, int, int] | tuple[int, int, int, int]

WHITE: Ink = (255, 255, 255)
PAPER: Ink = (246, 243, 236)
INK: Ink = (52, 58, 76)
FAINT: Ink = (139, 144, 158)
LINE: Ink = (231, 228, 220)
RED: Ink = (224, 72, 77)
AMBER: Ink = (240, 173, 48)
NIGHT: Ink = (26, 32, 74)
GLOW: Ink = (255, 214, 110)
METERS: tuple[Ink, ...] = (
    (92, 124, 240), (76, 190, 226), (205, 138, 92), (79, 172, 108), (240, 152, 182), (164, 120, 220),
    (226, 104, 128), (160, 178, 66), (47, 154, 146), (141, 153, 174), (196, 122, 184), (104, 140, 158),
)  # fmt: skip


def meter_ink(index: int) -> Ink:
    """The colour of a meter, and of the places that raise it."""
    return METERS[index % len(METERS)]


def mix(a: Ink, b: Ink, share: float) -> Ink:
    """The colour `share` of the way from a to b."""
    r, g, b_ = (round(x + (y - x) * share) for x, y in zip(a[:3], b[:3], strict=True))
    return (r, g, b_)


def clear(ink: Ink, share: float) -> Ink:
    """The colour, `share` opaque."""
    return (*ink[:3], round(255 * share))


@lru_cache(maxsize=64)
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


class Pen:
    """Draws on an image with units of `scale` pixels."""

    def __init__(self, image: Image.Image, scale: float) -> None:
        self.scale = scale
        self._draw = ImageDraw.Draw(image, "RGBA")

    def _box(self, x: float, y: float, w: float, h: float) -> tuple[float, float, float, float]:
        s = self.scale
        return (x * s, y * s, max((x + w) * s - 1, x * s), max((y + h) * s - 1, y * s))

    def card(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        ink: Ink,
        radius: float = 0,
        edge: Ink | None = None,
        line: float = 0,
    ) -> None:
        """A rectangle with rounded corners."""
        width = round(line * self.scale)
        self._draw.rounded_rectangle(self._box(x, y, w, h), radius * self.scale, fill=ink, outline=edge, width=width)

    def disc(self, x: float, y: float, rx: float, ink: Ink, ry: float | None = None) -> None:
        """A filled circle around (x, y), or an ellipse."""
        high = rx if ry is None else ry
        self._draw.ellipse(self._box(x - rx, y - high, 2 * rx, 2 * high), fill=ink)

    def shape(self, points: list[tuple[float, float]], ink: Ink) -> None:
        """A filled polygon."""
        self._draw.polygon([(x * self.scale, y * self.scale) for x, y in points], fill=ink)

    def ring(self, x: float, y: float, radius: float, share: float, ink: Ink, line: float) -> None:
        """The first `share` of a circle, clockwise from the top."""
        box = self._box(x - radius, y - radius, 2 * radius, 2 * radius)
        self._draw.arc(box, -90, -90 + 360 * share, fill=ink, width=max(1, round(line * self.scale)))

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float,
        ink: Ink,
        anchor: str = "lm",
        room: float = 0,
        bold: bool = False,
    ) -> None:
        """One line of text, set smaller where it would be wider than `room`."""
        font = _font(max(6, round(size * self.scale)))
        width = font.getlength(words)
        if room and width > room * self.scale:
            font = _font(max(6, int(size * self.scale * room * self.scale / width)))
        stroke = size * self.scale / 45 if bold else 0
        self._draw.text(
            (x * self.scale, y * self.scale), words, fill=ink, font=font, anchor=anchor, stroke_width=stroke
        )


GRASS: tuple[Ink, Ink] = ((207, 226, 188), (200, 221, 180))
RIM: Ink = (178, 204, 158)
WALL: Ink = (255, 249, 238)
GREY: Ink = (168, 172, 178)
FLOWERS: tuple[Ink, ...] = ((250, 240, 170), (246, 205, 214), (255, 255, 255))


@dataclass(frozen=True)
class Spot:
    """One cell on the sheet: its corner and its side; a house is drawn in shares of the side."""

    x: float
    y: float
    side: float

    def at(self, u: float, v: float) -> tuple[float, float]:
        return (self.x + u * self.side, self.y + v * self.side)

    def card(self, pen: Pen, box: tuple[float, float, float, float], ink: Ink, radius: float = 0) -> None:
        """A card from (u, v), w wide and h high, all in shares of the side."""
        u, v, w, h = box
        pen.card(*self.at(u, v), w * self.side, h * self.side, ink, radius * self.side)


def ground(pen: Pen, spot: Spot, cell: int, chequer: int) -> None:
    """A patch of grass, here and there with tufts and flowers that never move."""
    gap = 0.018
    spot.card(pen, (gap, gap, 1 - 2 * gap, 1 - 2 * gap), GRASS[chequer], 0.1)
    draw = cell * 2654435761 % 2**32 >> 8  # a fixed scatter, no random numbers
    for n in range(draw % 4):
        u, v = 0.15 + (draw >> 3 + 5 * n) % 23 / 33, 0.15 + (draw >> 5 + 6 * n) % 29 / 41
        if draw >> n & 16:
            pen.disc(*spot.at(u, v), 0.03 * spot.side, FLOWERS[n % 3])
        else:
            tuft = mix(GRASS[chequer], (120, 160, 100), 0.45)
            for lean in (-0.02, 0.0, 0.02):
                root, tip = spot.at(u, v), spot.at(u + lean * 1.6, v - 0.07)
                pen.shape([root, (root[0] + 0.018 * spot.side, root[1]), tip], tuft)


def house(pen: Pen, spot: Spot, kind: int, roof: Ink, letters: str, is_open: bool) -> None:
    """One place: its roof has the colour of the meter it raises, its sign two letters of its name."""
    wall = WALL
    if not is_open:
        roof, wall = mix(roof, GREY, 0.72), mix(WALL, GREY, 0.45)
    pen.disc(*spot.at(0.5, 0.725), 0.38 * spot.side, (40, 60, 30, 46), 0.055 * spot.side)
    (_gable, _shop, _hip)[kind % 3](pen, spot, roof, wall)
    spot.card(pen, (0.435, 0.54, 0.13, 0.185), mix(roof, INK, 0.35), 0.03)
    for u in (0.25, 0.63):
        spot.card(pen, (u, 0.53, 0.12, 0.1), mix(roof, wall, 0.55) if is_open else mix(GREY, INK, 0.2), 0.02)
    pen.disc(*spot.at(0.5, 0.34), 0.148 * spot.side, mix(roof, INK, 0.25))
    pen.disc(*spot.at(0.5, 0.34), 0.13 * spot.side, WHITE if is_open else mix(WHITE, GREY, 0.35))
    pen.text(*spot.at(0.5, 0.345), letters, 0.135 * spot.side, mix(roof, INK, 0.6), "mm", 0.2 * spot.side, bold=True)


def _gable(pen: Pen, spot: Spot, roof: Ink, wall: Ink) -> None:
    spot.card(pen, (0.19, 0.36, 0.62, 0.365), wall, 0.03)
    pen.shape([spot.at(0.10, 0.44), spot.at(0.5, 0.08), spot.at(0.90, 0.44)], roof)


def _shop(pen: Pen, spot: Spot, roof: Ink, wall: Ink) -> None:
    spot.card(pen, (0.16, 0.20, 0.68, 0.525), wall, 0.03)
    spot.card(pen, (0.12, 0.15, 0.76, 0.09), roof, 0.03)
    for n in range(7):
        ink = roof if n % 2 == 0 else mix(WHITE, wall, 0.5)
        left, right = 0.13 + n * 0.74 / 7, 0.13 + (n + 1) * 0.74 / 7
        pen.shape(
            [
                spot.at(left + 0.02, 0.40),
                spot.at(right + 0.02 - 0.04 * (n == 6), 0.40),
                spot.at(right, 0.49),
                spot.at(left, 0.49),
            ],
            ink,
        )


def _hip(pen: Pen, spot: Spot, roof: Ink, wall: Ink) -> None:
    spot.card(pen, (0.18, 0.40, 0.64, 0.325), wall, 0.03)
    spot.card(pen, (0.66, 0.09, 0.08, 0.16), mix(roof, INK, 0.3), 0.01)
    pen.shape([spot.at(0.10, 0.46), spot.at(0.27, 0.16), spot.at(0.73, 0.16), spot.at(0.90, 0.46)], roof)


def lights(pen: Pen, spot: Spot) -> None:
    """Lit windows of a place that is open after dark."""
    for u in (0.25, 0.63):
        pen.disc(*spot.at(u + 0.06, 0.58), 0.13 * spot.side, clear(GLOW, 0.22))
        spot.card(pen, (u, 0.53, 0.12, 0.1), GLOW, 0.02)


def person(pen: Pen, spot: Spot, visiting: bool, alive: bool, share: float) -> None:
    """The agent, beside the house it visits, ringed by how much of its session is done."""
    x, y = spot.at(0.79, 0.53) if visiting else spot.at(0.5, 0.5)
    s = spot.side * (0.2 if visiting else 0.25)
    shirt: Ink = (240, 98, 60) if alive else (150, 152, 160)
    face: Ink = (255, 222, 192) if alive else (205, 205, 208)
    if share:
        pen.disc(x, y, 1.32 * s, clear(WHITE, 0.85))
        pen.ring(x, y, 1.32 * s, 1.0, (214, 226, 216), 0.24 * s)
        pen.ring(x, y, 1.32 * s, share, (46, 160, 104), 0.24 * s)
    pen.disc(x, y + 0.92 * s, 0.78 * s, (30, 40, 30, 80), 0.16 * s)
    for grow, torso, head in ((0.11 * s, WHITE, WHITE), (0.0, shirt, face)):
        pen.card(
            x - 0.58 * s - grow, y - 0.08 * s - grow, 1.16 * s + 2 * grow, 1.0 * s + 2 * grow, torso, 0.46 * s + grow
        )
        pen.disc(x, y - 0.42 * s, 0.47 * s + grow, head)
    pen.disc(x, y - 0.42 * s, 0.47 * s, face)
    for eye in (-0.17, 0.17):
        pen.disc(x + eye * s, y - 0.4 * s, 0.065 * s, INK)
