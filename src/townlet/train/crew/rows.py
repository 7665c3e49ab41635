"""A training's state, rows by rows: put together from several processes, and taken apart for them.

A checkpoint holds all rows, so it does not tell how many processes have trained it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from townlet.contract.state import State

Path = tuple[str, ...]
# Where rows are the first dimension of tensors, and where they are the second, after steps.
ROWS: Final[tuple[Path, ...]] = (
    ("env",),
    ("tracker",),
    ("agent", "rows"),
    ("agent", "rollout", "hidden"),
    ("agent", "chooser", "epsilon"),
)
STEPS: Final[tuple[Path, ...]] = (
    ("agent", "rollout", "storage", "columns"),
    ("agent", "memory", "storage", "columns"),
)


def joined(own: State, rows: int, gather: Callable[[Tensor], list[Tensor] | None]) -> State:
    """The state of all from those of each, which has so many rows; to whom `gather` gives nothing, its own."""

    def join(leaf: Any, axis: int) -> Any:
        parts = gather(torch.as_tensor(leaf))
        return leaf if parts is None else torch.cat(parts, axis)

    return _each(own, rows, join)


def portion(whole: State, rows: int, rank: int, size: int) -> State:
    """What is one's own of the state of all; one has so many rows."""

    def cut(leaf: Any, axis: int) -> Any:
        part = torch.as_tensor(leaf).narrow(axis, rank * rows, rows)
        return part.numpy() if isinstance(leaf, np.ndarray) else part

    return _each(whole, rows * size, cut)


def _each(state: State, rows: int, change: Callable[[Any, int], Any], path: Path = ()) -> State:
    """The same tree with every leaf of that many rows changed."""
    changed: State = {}
    for name, leaf in state.items():
        here = (*path, name)
        if isinstance(leaf, Mapping):
            changed[name] = _each(dict(leaf), rows, change, here)
        else:
            axis = _axis(leaf, here)
            own = axis is not None and leaf.ndim > axis and leaf.shape[axis] == rows
            changed[name] = change(leaf, axis) if own and axis is not None else leaf
    return changed


def _axis(leaf: Any, path: Path) -> int | None:
    """Which dimension of a leaf are rows; None where it has none."""
    if not isinstance(leaf, Tensor | np.ndarray):
        return None
    for axis, places in enumerate((ROWS, STEPS)):
        if any(path[: len(place)] == place for place in places):
            return axis
    return None
