"""How observations are kept: numbers as they are, pictures that came from bytes in a byte for each value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import torch
from torch import Tensor

from townlet.contract.layout import Block, Layout

Column = tuple[tuple[int, ...], torch.dtype]  # shape of one row's value, and its type
Columns = Mapping[str, Column]
BYTE: Final = 255


class Packing:
    """Observations [N, D] in up to two columns: `name` for numbers and `name_bytes` for what fits into bytes.

    Packed and unpacked a value is the nearest of its block's levels, so what came from bytes stays what it was.
    """

    def __init__(self, layout: Layout, device: str = "cpu") -> None:
        packed = [block for block in layout if block.kind == "picture" and 0 < block.levels <= BYTE]
        others = [block for block in layout if block not in packed]
        self.size, self.packs = layout.size, bool(packed)
        self._bytes, self._numbers = (_places(blocks).to(device) for blocks in (packed, others))
        sizes = torch.tensor([block.size for block in packed], dtype=torch.int64)
        lows = torch.tensor([block.low for block in packed]).repeat_interleave(sizes)
        scales = torch.tensor([block.levels / (block.high - block.low) for block in packed]).repeat_interleave(sizes)
        self._low, self._scale = lows.to(device), scales.to(device)

    def columns(self, name: str) -> Columns:
        """The columns for observations of that name."""
        numbers, count = len(self._numbers), len(self._bytes)
        return {
            **({name: ((numbers,), torch.float32)} if numbers else {}),
            **({f"{name}_bytes": ((count,), torch.uint8)} if count else {}),
        }

    def apart(self, name: str, obs: Tensor) -> dict[str, Tensor]:
        """Observations [N, D] by column."""
        if not self.packs:
            return {name: obs}
        picture = obs if not len(self._numbers) else obs.index_select(1, self._bytes)
        found = {f"{name}_bytes": (picture - self._low).mul_(self._scale).round_().clamp_(0, BYTE)}
        return found | ({name: obs.index_select(1, self._numbers)} if len(self._numbers) else {})

    def together(self, name: str, columns: Mapping[str, Tensor], index: Tensor) -> Tensor:
        """The observations [B, D] at places [B] of flat columns."""
        if not self.packs:
            return columns[name].index_select(0, index)
        picture = columns[f"{name}_bytes"].index_select(0, index).float().div_(self._scale).add_(self._low)
        if not len(self._numbers):
            return picture
        obs = torch.empty((len(index), self.size), device=index.device)
        obs.index_copy_(1, self._bytes, picture)
        return obs.index_copy_(1, self._numbers, columns[name].index_select(0, index))


def _places(blocks: Iterable[Block]) -> Tensor:
    """Where the values of these blocks stand in an observation [d]."""
    return torch.tensor([place for b in blocks for place in range(b.start, b.start + b.size)], dtype=torch.int64)
