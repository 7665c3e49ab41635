"""The map as tables: where a move leads, what a window sees, how far two cells are apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from townlet.town.world.tables import Floats, Ints

# Last axis first, minus before plus.
MOVES = {1: ("LEFT", "RIGHT"), 2: ("UP", "DOWN", "LEFT", "RIGHT"), 3: ("BELOW", "ABOVE", "UP", "DOWN", "LEFT", "RIGHT")}


def flat(cell: Sequence[int], size: Sequence[int]) -> int:
    """The number of the cell x, y, z: x + X·(y + Y·z)."""
    number = 0
    for at, n in zip(reversed(cell), reversed(size), strict=True):
        number = number * n + at
    return number


def coordinates(size: Sequence[int]) -> Ints:
    """x, y, z of every cell: int [C, dimensions]."""
    cells = np.arange(int(np.prod(size)), dtype=np.int32)
    axes = []
    for n in size:
        axes.append(cells % n)
        cells = cells // n
    return np.ascontiguousarray(np.stack(axes, axis=1), dtype=np.int32)


def _number(axes: Sequence[Ints], size: Sequence[int]) -> Ints:
    number = np.zeros_like(axes[0])
    for at, n in zip(reversed(axes), reversed(size), strict=True):
        number = number * n + at
    return number


def _land(at: Ints, n: int, boundary: str) -> Ints:
    """Where a step to coordinate −1 … n lands on an axis of n cells."""
    if boundary == "wrap":
        return at % n
    if boundary == "bounce":
        at = np.where(at < 0, 1, np.where(at >= n, n - 2, at)).astype(np.int32)
    return np.clip(at, 0, n - 1)


def moves(size: Sequence[int], boundary: str) -> tuple[Ints, Ints]:
    """Next cell and passability of each move: two int [2 · dimensions, C]."""
    places = coordinates(size)
    leads, passable = [], []
    for axis in reversed(range(len(size))):
        for step in (-1, 1):
            wanted = places[:, axis] + np.int32(step)
            axes = [places[:, i] for i in range(len(size))]
            axes[axis] = _land(wanted, size[axis], boundary)
            leads.append(_number(axes, size))
            inside = (wanted >= 0) & (wanted < size[axis])
            passable.append(inside if boundary == "clamp" else np.ones_like(inside))
    return np.stack(leads).astype(np.int32), np.stack(passable).astype(np.int32)


def windows(size: Sequence[int], boundary: str, side: int) -> Ints:
    """Cells around each cell, row by row, on its own level: int [C, side or side²]; C is outside."""
    places = coordinates(size)
    seen_axes = min(len(size), 2)
    reach = np.arange(side, dtype=np.int32) - side // 2
    shape = (len(places),) + (side,) * seen_axes
    inside = np.ones(shape, dtype=bool)
    axes = []
    for axis, n in enumerate(size):
        at = places[:, axis].reshape(-1, *[1] * seen_axes)
        if axis < seen_axes:
            # x runs along the last axis of the window, y along the one before.
            at = at + reach.reshape([side if i == seen_axes - 1 - axis else 1 for i in range(seen_axes)])
            inside &= (at >= 0) & (at < n) if boundary != "wrap" else True
            at = at % n
        axes.append(np.broadcast_to(at, shape))
    cells = np.where(inside, _number(axes, size), len(places))
    return np.ascontiguousarray(cells.reshape(len(places), -1), dtype=np.int32)


def positions(size: Sequence[int]) -> Floats:
    """Coordinates / (size − 1): float [C, dimensions]; 0 along an axis of one cell."""
    longest = np.maximum(np.asarray(size) - 1, 1)
    return np.ascontiguousarray(coordinates(size) / longest, dtype=np.float32)


def steps_between(size: Sequence[int], boundary: str) -> Ints:
    """Fewest moves from each cell to each other: int [C, C].

    A bounce never shortens a way: it leads where the opposite move leads.
    """
    places = coordinates(size)
    total = np.zeros((len(places), len(places)), dtype=np.int32)
    for axis, n in enumerate(size):
        apart = np.abs(places[:, None, axis] - places[None, :, axis])
        total += np.minimum(apart, n - apart) if boundary == "wrap" else apart
    return total
