"""Pictures small enough to be sent one by one: what an environment shows, and what an agent is shown of it."""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from townlet.interfaces.layout import Block

WIDEST: Final = 640  # pixels of the longer side of a frame; larger ones are made smaller
QUALITY: Final = 85
COLOUR: Final = 3  # channels


def frame(pixels: NDArray[np.uint8]) -> bytes:
    """A rendered moment [H, W, 3] as JPEG."""
    image = Image.fromarray(pixels)
    image.thumbnail((WIDEST, WIDEST))
    return _saved(image, "JPEG", quality=QUALITY, subsampling=0)  # thin lines of one colour keep it


def looks(block: Block, stacked: int) -> int:
    """How many pictures beside each other a block holds: a stack in colour has three channels for each."""
    channels = block.shape[0]
    return channels // COLOUR if channels == COLOUR * stacked else channels


def seen(block: Block, obs: NDArray[Any], stacked: int) -> bytes:
    """A block of an observation [D] as PNG: its pictures beside each other, the oldest on the left."""
    channels, height, width = block.shape
    many = looks(block, stacked)
    share = (obs[block.slice].reshape(block.shape) - block.low) / ((block.high - block.low) or 1.0)
    grey = np.clip(np.nan_to_num(share) * 255, 0, 255).astype(np.uint8).reshape(many, channels // many, height, width)
    beside = grey.transpose(2, 0, 3, 1).reshape(height, many * width, channels // many)
    return _saved(Image.fromarray(beside.squeeze(-1) if many == channels else beside), "PNG", compress_level=1)


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()
