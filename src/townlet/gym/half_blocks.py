"""A picture as text for a terminal: every character is a half block, which shows two pixels above each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

HALF = "▀"
RESET = "\x1b[0m"


def frame(picture: NDArray[np.uint8], columns: int, lines: int) -> str:
    """The picture [height, width, 3] as lines of coloured half blocks, as large as there is room and never larger."""
    small = _shrunk(picture, max(1, columns), max(2, 2 * lines))
    if len(small) % 2:
        small = np.concatenate([small, small[-1:]])
    told = []
    for above, below in zip(small[::2].tolist(), small[1::2].tolist(), strict=True):
        line, last = [], None
        for top, bottom in zip(above, below, strict=True):
            if (inks := (*top, *bottom)) != last:  # one code for a stretch of the same colours
                line.append(f"\x1b[38;2;{top[0]};{top[1]};{top[2]};48;2;{bottom[0]};{bottom[1]};{bottom[2]}m")
                last = inks
            line.append(HALF)
        told.append("".join(line) + RESET)
    return "\n".join(told)


def _shrunk(picture: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """The picture within that size, its sides in proportion."""
    from PIL import Image

    scale = min(width / picture.shape[1], height / picture.shape[0], 1.0)
    size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
    if scale == 1.0:
        return picture
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BOX))
