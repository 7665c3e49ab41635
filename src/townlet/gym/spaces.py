"""Gymnasium's spaces as ours: observations as one row of floats with a layout, actions as one of three kinds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.interfaces.layout import BlockSpec, ObservationLayout
from townlet.interfaces.vec_env import Actions, Binary, Continuous, Discrete

Floats = NDArray[np.float32]
Space = spaces.Space[Any]
UNNAMED_BLOCK: Final = "obs"  # the block of an observation that has no parts
CHANNELS: Final = (1, 3, 4)  # of a picture: gray, colour, colour with transparency
BYTE: Final = 255


@dataclass(frozen=True)
class SubspaceWriter:
    """One part of an observation: how to find it, and how its numbers become the floats of its blocks."""

    path: tuple[str | int, ...]
    slice: slice
    shape: tuple[int, ...]  # of a picture, [channels, height, width], or with its frames before them
    order: tuple[int, ...] | None  # axes of a picture, after the row's, from the environment's order to ours

    def write(self, seen: Any, out: Floats) -> None:
        """Write this part of observations of n rows into out [n, D]."""
        for key in self.path:
            seen = seen[key]
        values = np.asarray(seen)
        into = out[:, self.slice]
        if self.order is None:
            into[...] = values.reshape(into.shape)
            return
        picture = values.reshape(len(out), *(self.shape[n] for n in np.argsort(self.order)))
        # Dividing, not multiplying by 1/255, keeps white at exactly 1.
        ordered = picture.transpose(0, *(n + 1 for n in self.order))
        np.divide(ordered, np.float32(BYTE), out=into.reshape(-1, *self.shape))


class ObservationEncoder:
    """The layout of a space's observations, and how they are written into rows of floats [n, D]."""

    def __init__(self, space: Space, where: str = "the environment") -> None:
        self.leaves: list[SubspaceWriter] = []
        self._parts: list[BlockSpec] = []
        self._bounds: list[tuple[Floats, Floats]] = []
        self._where = where
        self._size = 0
        self._add(space, ())
        self.layout = ObservationLayout.of(*self._parts)
        # Bounds of each number [D], infinite where there are none: finer than those of whole blocks.
        self.low, self.high = (np.concatenate([b[n] for b in self._bounds]).astype(np.float32) for n in (0, 1))

    def write(self, seen: Any, out: Floats) -> None:
        """Write observations of n rows, batched as Gymnasium does, into out [n, D]."""
        for leaf in self.leaves:
            leaf.write(seen, out)

    def write_each(self, seen: Sequence[Any], out: Floats) -> None:
        """Write observations that came one by one."""
        for row, one in enumerate(seen):
            for leaf in self.leaves:
                leaf.write(one, out[row : row + 1])

    def _add(self, space: Space, path: tuple[str | int, ...]) -> None:
        """Add the blocks of a space, those of its parts one after the other."""
        name = ".".join(map(str, path)) or UNNAMED_BLOCK
        if isinstance(space, spaces.Dict):
            for key, inner in space.spaces.items():
                self._add(inner, (*path, key))
        elif isinstance(space, spaces.Tuple):
            for place, inner in enumerate(space.spaces):
                self._add(inner, (*path, place))
        elif isinstance(space, spaces.Box):
            self._add_box(space, path, name)
        elif isinstance(space, spaces.Discrete):
            first = int(space.start)
            self._leaf(path, (1,))
            self._block((name, (1,), first, first + int(space.n) - 1, "index"))
        elif isinstance(space, spaces.MultiDiscrete):
            self._add_many(space, path, name)
        elif isinstance(space, spaces.MultiBinary):
            self._leaf(path, space.shape)
            self._block((name, space.shape, 0.0, 1.0))
        else:
            raise TownletError(
                f"{self._where} shows '{name}' as {type(space).__name__}, which is not numbers",
                "leave it out: wrappers: [{name: keys, keep: […]}]" if path else "write a wrapper that makes it a Box",
            )

    def _add_box(self, space: spaces.Box, path: tuple[str | int, ...], name: str) -> None:
        order = _axes(space)
        if order is None:
            self._leaf(path, space.shape)
            low, high = (np.asarray(b, np.float32).reshape(-1) for b in (space.low, space.high))
            self._block((name, space.shape, float(low.min()), float(high.max())), low, high)
            return
        deep = (*space.shape, 1) if len(space.shape) == 2 else space.shape
        shape = tuple(deep[n] for n in order)
        self._leaf(path, shape, order)
        *frames, channels, height, width = shape
        self._block((name, (math.prod((*frames, channels)), height, width), 0.0, 1.0, "picture", (), BYTE))

    def _add_many(self, space: spaces.MultiDiscrete, path: tuple[str | int, ...], name: str) -> None:
        """Indices with one range are one block, others a block each."""
        first, last = space.start.reshape(-1), (space.start + space.nvec - 1).reshape(-1)
        self._leaf(path, space.shape)
        if (first == first[0]).all() and (last == last[0]).all():
            self._block((name, space.shape, int(first[0]), int(last[0]), "index"))
            return
        for n, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            self._block((f"{name}.{n}", (1,), low, high, "index"))

    def _leaf(self, path: tuple[str | int, ...], shape: tuple[int, ...], order: tuple[int, ...] | None = None) -> None:
        size = int(np.prod(shape))
        self.leaves.append(SubspaceWriter(path, slice(self._size, self._size + size), shape, order))
        self._size += size

    def _block(self, part: BlockSpec, low: Floats | None = None, high: Floats | None = None) -> None:
        size = int(np.prod(part[1]))
        self._parts.append(part)
        self._bounds.append(
            (
                np.full(size, part[2], np.float32) if low is None else low,
                np.full(size, part[3], np.float32) if high is None else high,
            )
        )


def _axes(space: spaces.Box) -> tuple[int, ...] | None:
    """How a picture's axes become [channels, height, width]; None where a Box is not a picture."""
    sides = len(space.shape)
    if space.dtype != np.uint8 or space.low.min() != 0 or space.high.max() != BYTE or sides not in (2, 3, 4):
        return None
    if sides == 4:  # frames of pictures, as stacks in colour come
        return (0, 3, 1, 2) if space.shape[3] in CHANNELS else None
    if sides == 3 and space.shape[2] not in CHANNELS and space.shape[2] >= space.shape[0]:
        return (0, 1, 2)  # channels first, as stacks of gray frames come
    return (2, 0, 1)  # last, also those of stacks in colour, which are fewer than lines


def actions_from_space(space: Space, names: Sequence[str] | None, where: str) -> Actions:
    """What can be done, with names where they are known."""
    if isinstance(space, spaces.Discrete):
        n = int(space.n)
        return Discrete(tuple(names) if names is not None and len(names) == n else tuple(map(str, range(n))))
    if isinstance(space, spaces.MultiBinary):
        return Binary(tuple(map(str, range(int(np.prod(space.shape))))))
    if isinstance(space, spaces.Box):
        low, high = space.low.reshape(-1), space.high.reshape(-1)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise TownletError(
                f"the actions of {where} have no bounds",
                "write a wrapper that gives its action_space bounds, such as gymnasium.wrappers.TransformAction",
            )
        if np.issubdtype(space.dtype, np.integer):  # what is nearest to a whole number stands for it
            low, high = low - 0.5, high + 0.5
        return Continuous(tuple(map(str, range(len(low)))), tuple(low.tolist()), tuple(high.tolist()))
    raise TownletError(
        f"{where} takes actions from {type(space).__name__}, which no agent here can choose from",
        "Discrete, MultiBinary and Box work; write a wrapper that makes it one of them",
    )


def action_encoder(space: Space, rows: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """From our actions ([N] or [N, n]) to those of all rows of an environment.

    Always in memory of their own: environments and wrappers keep the last action by reference.
    """
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return lambda actions: actions + first
    shape, kind = (rows, *(space.shape or ())), space.dtype
    if not isinstance(space, spaces.Box):
        return lambda actions: actions.reshape(shape).astype(kind)
    low, high = (np.broadcast_to(b, shape) for b in (space.low, space.high))
    if np.issubdtype(kind, np.integer):
        return lambda actions: np.clip(np.rint(actions.reshape(shape)), low, high).astype(kind)
    return lambda actions: np.clip(actions.reshape(shape), low, high).astype(kind, copy=False)
