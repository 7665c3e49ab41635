"""A training's state, rows by rows: put together from several processes, and taken apart for them.

A checkpoint holds all rows, so it does not tell how many processes have trained it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from townlet.agents.registry import AgentEntry
from townlet.interfaces.state import State

Path = tuple[str, ...]
Axes = Mapping[Path, int]  # the axis of the rows in all tensors below a path


def axes_of(agent: AgentEntry) -> Axes:
    """Where the rows are in the state of a training with this agent."""
    return {("env",): 0, ("tracker",): 0} | {
        ("agent", *path.split("/")): axis for path, axis in agent.shard_axes.items()
    }


def joined(own: State, rows: int, axes: Axes, gather: Callable[[Tensor], list[Tensor] | None]) -> State:
    """The state of all from those of each, which has so many rows; to whom `gather` gives nothing, its own."""

    def join(leaf: Any, axis: int) -> Any:
        parts = gather(torch.as_tensor(leaf))
        return leaf if parts is None else torch.cat(parts, axis)

    return _each(own, rows, axes, join)


def portion(whole: State, rows: int, axes: Axes, rank: int, size: int) -> State:
    """What is one's own of the state of all; one has so many rows."""

    def cut(leaf: Any, axis: int) -> Any:
        part = torch.as_tensor(leaf).narrow(axis, rank * rows, rows)
        return part.numpy() if isinstance(leaf, np.ndarray) else part

    return _each(whole, rows * size, axes, cut)


def _each(state: State, rows: int, axes: Axes, change: Callable[[Any, int], Any], path: Path = ()) -> State:
    """The same tree with every leaf of that many rows changed."""
    changed: State = {}
    for name, leaf in state.items():
        here = (*path, name)
        if isinstance(leaf, Mapping):
            changed[name] = _each(dict(leaf), rows, axes, change, here)
        else:
            axis = _axis(leaf, here, axes)
            own = axis is not None and leaf.ndim > axis and leaf.shape[axis] == rows
            changed[name] = change(leaf, axis) if own and axis is not None else leaf
    return changed


def _axis(leaf: Any, path: Path, axes: Axes) -> int | None:
    """Which dimension of a leaf are rows; None where it has none."""
    if not isinstance(leaf, Tensor | np.ndarray):
        return None
    return next((axis for place, axis in axes.items() if path[: len(place)] == place), None)
