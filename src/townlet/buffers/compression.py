"""Storage of image observations as bytes: uint8 instead of float32, exact for images made of integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from townlet.interfaces.layout import ObservationLayout

ColumnSpec = tuple[tuple[int, ...], torch.dtype]  # shape of one row's value, and its dtype
ColumnSpecs = Mapping[str, ColumnSpec]
MAX_BYTE: Final = 255


class ImageCompression:
    """Splits observations [N, D] into a float32 column `name` and, for images, a uint8 column `name_bytes`.

    Image values are rounded to the nearest of their block's levels, so images that were made of bytes are restored
    exactly.
    """

    def __init__(self, layout: ObservationLayout, device: str = "cpu") -> None:
        images = [block for block in layout if block.kind == "picture" and 0 < block.levels <= MAX_BYTE]
        others = [block for block in layout if block not in images]
        self.size, self.active = layout.size, bool(images)
        self._image_index, self._float_index = (
            torch.tensor([i for block in blocks for i in block.columns], dtype=torch.int64, device=device)
            for blocks in (images, others)
        )
        sizes = torch.tensor([block.size for block in images], dtype=torch.int64)
        lows = torch.tensor([block.low for block in images]).repeat_interleave(sizes)
        scales = torch.tensor([block.levels / (block.high - block.low) for block in images]).repeat_interleave(sizes)
        self._low, self._scale = lows.to(device), scales.to(device)

    def columns(self, name: str) -> ColumnSpecs:
        """Specifications of the columns that hold observations of this name."""
        floats, images = len(self._float_index), len(self._image_index)
        return {
            **({name: ((floats,), torch.float32)} if floats else {}),
            **({f"{name}_bytes": ((images,), torch.uint8)} if images else {}),
        }

    def compress(self, name: str, obs: Tensor) -> dict[str, Tensor]:
        """Values of each column for observations [N, D]."""
        if not self.active:
            return {name: obs}
        image = obs if not len(self._float_index) else obs.index_select(1, self._image_index)
        values = {f"{name}_bytes": (image - self._low).mul_(self._scale).round_().clamp_(0, MAX_BYTE)}
        return values | ({name: obs.index_select(1, self._float_index)} if len(self._float_index) else {})

    def decompress(self, name: str, columns: Mapping[str, Tensor], index: Tensor) -> Tensor:
        """The observations [B, D] at indices [B] of flat columns."""
        if not self.active:
            return columns[name].index_select(0, index)
        image = columns[f"{name}_bytes"].index_select(0, index).float().div_(self._scale).add_(self._low)
        if not len(self._float_index):
            return image
        obs = torch.empty((len(index), self.size), device=index.device)
        obs.index_copy_(1, self._image_index, image)
        return obs.index_copy_(1, self._float_index, columns[name].index_select(0, index))
