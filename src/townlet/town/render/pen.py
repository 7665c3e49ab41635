"""A pen that draws in its own units on a larger sheet, so that edges are smooth after shrinking."""

from __future__ import annotations

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
