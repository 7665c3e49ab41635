"""Icons of affordances: a short text, usually an emoji, or a drawing of 12 × 12 pixels.

A drawing is a text with one line per row and one letter per pixel:

    icon: |
      ............
      ...rrrrrr...
"""

from __future__ import annotations

from typing import Final

SIDE: Final = 12  # pixels of a drawing along each side
MAX_TEXT: Final = 4  # characters of an icon that is not a drawing
MAX_ICON: Final = 500  # characters; longer texts are refused unread
TRANSPARENT: Final = "."
COLORS: Final = {
    "k": "black", "w": "white", "a": "gray", "r": "red", "o": "orange", "y": "yellow", "g": "green", "d": "dark green",
    "c": "light blue", "b": "blue", "v": "violet", "t": "brown",
}  # fmt: skip


def is_drawing(icon: str) -> bool:
    """Whether an icon is a drawing rather than a short text."""
    return "\n" in icon


def label(icon: str, name: str) -> str:
    """The icon for output that cannot show drawings; without a text, the first letter of the name."""
    return name[:1] if is_drawing(icon) or not icon else icon


def problem(name: str, icon: str) -> tuple[str, str] | None:
    """What is wrong with the icon of an affordance and how to fix it; None if it is valid."""
    if not is_drawing(icon):
        what = f"the icon of '{name}' has {len(icon)} characters; at most {MAX_TEXT} are possible"
        return (what, f"use one emoji, or draw it in {SIDE} lines of {SIDE} letters") if len(icon) > MAX_TEXT else None
    rows = icon.removesuffix("\n").split("\n")
    if len(rows) != SIDE:
        return f"the drawing of '{name}' has {len(rows)} lines instead of {SIDE}", "add or remove lines"
    for number, row in enumerate(rows, 1):
        line = f"line {number} of the drawing of '{name}'"
        if len(row) != SIDE:
            fix = f"write one letter per pixel, and {TRANSPARENT} where it is transparent"
            return f"{line} has {len(row)} letters instead of {SIDE}", fix
        if unknown := set(row) - {*COLORS, TRANSPARENT}:
            colors = ", ".join(f"{letter} {color}" for letter, color in COLORS.items())
            return f"{line} has an unknown color {min(unknown)!r}", f"known: {colors}, {TRANSPARENT} transparent"
    return None
