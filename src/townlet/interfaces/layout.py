"""Observation layout: named blocks with shapes, ranges and kinds, so that no code depends on column indices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal, TypeVar

from townlet.errors import TownletError, did_you_mean

Array = TypeVar("Array")

# values: plain numbers. index: categorical integers low … high, such as a state index.
# picture: an image [channels, height, width].
BlockKind = Literal["values", "index", "picture"]
Shape = tuple[int, ...]
BlockSpec = (
    tuple[str, Shape, float, float]
    | tuple[str, Shape, float, float, BlockKind]
    | tuple[str, Shape, float, float, BlockKind, Shape]
    | tuple[str, Shape, float, float, BlockKind, Shape, int]
)


@dataclass(frozen=True)
class Block:
    """One named block of the observation.

    `grid` is the size of the map in cells, for a position given as a fraction of the map. `levels` is the number of
    equal steps in the range of a quantized image: 255 for bytes, 0 for continuous values.
    """

    name: str
    start: int
    shape: Shape
    low: float = 0.0
    high: float = 1.0
    kind: BlockKind = "values"
    grid: Shape = ()
    levels: int = 0

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def slice(self) -> slice:
        return slice(self.start, self.start + self.size)

    @property
    def columns(self) -> range:
        """Indices of the block's values in an observation."""
        return range(self.start, self.start + self.size)


@dataclass(frozen=True)
class ObservationLayout:
    """All blocks of an observation, in order, without gaps."""

    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, *parts: BlockSpec) -> ObservationLayout:
        """A layout of consecutive blocks, each (name, shape, low, high) and optionally kind, grid and levels."""
        blocks: list[Block] = []
        for part in parts:
            start = blocks[-1].slice.stop if blocks else 0
            blocks.append(Block(part[0], start, *part[1:]))
        return cls(tuple(blocks))

    @cached_property
    def size(self) -> int:
        return self.blocks[-1].slice.stop if self.blocks else 0

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(b.name for b in self.blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def block(self, name: str) -> Block:
        if name not in self:
            raise TownletError(f"the observation has no block '{name}'", did_you_mean(name, self.names))
        return self.blocks[self.names.index(name)]

    def view(self, obs: Array, name: str) -> Array:
        """The values of one block: obs [..., size] → [..., *block.shape], a view where possible."""
        block = self.block(name)
        part = obs[..., block.slice]  # type: ignore[index]
        return part.reshape(*part.shape[:-1], *block.shape)  # type: ignore[no-any-return]
