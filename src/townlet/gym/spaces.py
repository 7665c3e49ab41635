"""Conversion of Gymnasium spaces: observations to flat float32 rows, actions to Discrete, Binary or Continuous."""

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
UNNAMED_BLOCK: Final = "obs"  # the only block of an observation that is not a Dict or Tuple
CHANNEL_COUNTS: Final = (1, 3, 4)  # gray, RGB, RGBA
MAX_BYTE: Final = 255


@dataclass(frozen=True)
class SubspaceWriter:
    """Writes one subspace of an observation into its columns of the flat rows."""

    path: tuple[str | int, ...]
    columns: slice
    shape: tuple[int, ...]  # of an image: [(frames,) channels, height, width]
    order: tuple[int, ...] | None  # of an image: permutation of the environment's axes to the order of `shape`

    def write(self, obs: Any, out: Floats) -> None:
        """Write this subspace of a batch of n observations into out [n, D]."""
        for key in self.path:
            obs = obs[key]
        values = np.asarray(obs)
        target = out[:, self.columns]
        if self.order is None:
            target[...] = values.reshape(target.shape)
            return
        inverse = np.argsort(self.order)  # the inverse permutation, back to the environment's order
        image = values.reshape(len(out), *(self.shape[n] for n in inverse))
        ordered = image.transpose(0, *(n + 1 for n in self.order))
        # Dividing, not multiplying by 1/255, keeps white at exactly 1. The reshaped target is a view.
        np.divide(ordered, np.float32(MAX_BYTE), out=target.reshape(-1, *self.shape))


class ObservationEncoder:
    """Flattens the observations of a space to float32 rows [n, D], described by `layout`."""

    def __init__(self, space: Space, where: str = "the environment") -> None:
        self._writers: list[SubspaceWriter] = []
        self._blocks: list[BlockSpec] = []
        self._lows: list[Floats] = []
        self._highs: list[Floats] = []
        self._where = where
        self._size = 0
        self._add(space, ())
        self.layout = ObservationLayout.of(*self._blocks)
        # Bounds of each element [D], ±inf if unbounded; the layout has only one pair per block.
        self.low = np.concatenate(self._lows).astype(np.float32)
        self.high = np.concatenate(self._highs).astype(np.float32)

    def write(self, obs: Any, out: Floats) -> None:
        """Write n observations, batched as by Gymnasium, into out [n, D]."""
        for writer in self._writers:
            writer.write(obs, out)

    def _add(self, space: Space, path: tuple[str | int, ...]) -> None:
        """Add the blocks of a space, recursively."""
        name = ".".join(map(str, path)) or UNNAMED_BLOCK
        if isinstance(space, spaces.Dict):
            for key, inner in space.spaces.items():
                self._add(inner, (*path, key))
        elif isinstance(space, spaces.Tuple):
            for index, inner in enumerate(space.spaces):
                self._add(inner, (*path, index))
        elif isinstance(space, spaces.Box):
            self._add_box(space, path, name)
        elif isinstance(space, spaces.Discrete):
            first = int(space.start)
            self._add_writer(path, (1,))
            self._add_block((name, (1,), first, first + int(space.n) - 1, "index"))
        elif isinstance(space, spaces.MultiDiscrete):
            self._add_multi_discrete(space, path, name)
        elif isinstance(space, spaces.MultiBinary):
            self._add_writer(path, space.shape)
            self._add_block((name, space.shape, 0.0, 1.0))
        else:
            what = f"the observation '{name}' of {self._where} is of type {type(space).__name__}, which is not numeric"
            drop = "drop it: wrappers: [{name: keys, keep: […]}]"
            raise TownletError(what, drop if path else "write a wrapper that converts it to a Box")

    def _add_box(self, space: spaces.Box, path: tuple[str | int, ...], name: str) -> None:
        order = _axes(space)
        if order is None:
            self._add_writer(path, space.shape)
            low, high = (np.asarray(bound, np.float32).reshape(-1) for bound in (space.low, space.high))
            self._add_block((name, space.shape, float(low.min()), float(high.max())), low, high)
            return
        with_channels = (*space.shape, 1) if len(space.shape) == 2 else space.shape
        shape = tuple(with_channels[n] for n in order)
        self._add_writer(path, shape, order)
        *frames, channels, height, width = shape
        stacked, no_grid = (math.prod((*frames, channels)), height, width), ()
        self._add_block((name, stacked, 0.0, 1.0, "picture", no_grid, MAX_BYTE))

    def _add_multi_discrete(self, space: spaces.MultiDiscrete, path: tuple[str | int, ...], name: str) -> None:
        """Add one block if all components have the same range, otherwise one block per component."""
        first, last = space.start.reshape(-1), (space.start + space.nvec - 1).reshape(-1)
        self._add_writer(path, space.shape)
        if (first == first[0]).all() and (last == last[0]).all():
            self._add_block((name, space.shape, int(first[0]), int(last[0]), "index"))
            return
        for n, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            self._add_block((f"{name}.{n}", (1,), low, high, "index"))

    def _add_writer(
        self, path: tuple[str | int, ...], shape: tuple[int, ...], order: tuple[int, ...] | None = None
    ) -> None:
        size = int(np.prod(shape))
        self._writers.append(SubspaceWriter(path, slice(self._size, self._size + size), shape, order))
        self._size += size

    def _add_block(self, block: BlockSpec, low: Floats | None = None, high: Floats | None = None) -> None:
        """Add a block; `low` and `high` are the bounds of each element, by default those of the block."""
        _, shape, block_low, block_high, *_ = block
        size = int(np.prod(shape))
        self._blocks.append(block)
        self._lows.append(np.full(size, block_low, np.float32) if low is None else low)
        self._highs.append(np.full(size, block_high, np.float32) if high is None else high)


def _axes(space: spaces.Box) -> tuple[int, ...] | None:
    """Permutation of an image's axes to [(frames,) channels, height, width]; None if a Box is not an image."""
    dims = len(space.shape)
    if space.dtype != np.uint8 or space.low.min() != 0 or space.high.max() != MAX_BYTE or dims not in (2, 3, 4):
        return None
    if dims == 4:  # stacked color frames
        return (0, 3, 1, 2) if space.shape[3] in CHANNEL_COUNTS else None
    if dims == 3 and space.shape[2] not in CHANNEL_COUNTS and space.shape[2] >= space.shape[0]:
        return (0, 1, 2)  # channels first, such as stacked gray frames
    return (2, 0, 1)  # channels last: even stacked color frames have fewer channels than the image has pixel rows


def actions_from_space(space: Space, names: Sequence[str] | None, where: str) -> Actions:
    """Convert an action space; `names` are used if there is one per discrete action, else the actions are numbered."""
    if isinstance(space, spaces.Discrete):
        n = int(space.n)
        return Discrete(tuple(names) if names is not None and len(names) == n else tuple(map(str, range(n))))
    if isinstance(space, spaces.MultiBinary):
        return Binary(tuple(map(str, range(int(np.prod(space.shape))))))
    if isinstance(space, spaces.Box):
        low, high = space.low.reshape(-1), space.high.reshape(-1)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            fix = "write a wrapper that bounds its action_space, such as gymnasium.wrappers.TransformAction"
            raise TownletError(f"the actions of {where} have no bounds", fix)
        if np.issubdtype(space.dtype, np.integer):  # actions are rounded: every integer gets an interval of length 1
            low, high = low - 0.5, high + 0.5
        return Continuous(tuple(map(str, range(len(low)))), tuple(low.tolist()), tuple(high.tolist()))
    what = f"{where} has {type(space).__name__} actions, which no agent supports"
    raise TownletError(what, "write a wrapper that converts them to Discrete, MultiBinary or Box")


def action_encoder(space: Space, rows: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """A function that converts agent actions, [N] or [N, n], to batched environment actions.

    It always returns new arrays: environments and wrappers keep references to the last action.
    """
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return lambda actions: actions + start
    shape, dtype = (rows, *(space.shape or ())), space.dtype
    if not isinstance(space, spaces.Box):
        return lambda actions: actions.reshape(shape).astype(dtype)
    low, high = (np.broadcast_to(b, shape) for b in (space.low, space.high))
    if np.issubdtype(dtype, np.integer):
        return lambda actions: np.clip(np.rint(actions.reshape(shape)), low, high).astype(dtype)
    return lambda actions: np.clip(actions.reshape(shape), low, high).astype(dtype, copy=False)
