"""State sharded by rows: gathered from all processes into one tree, and split again.

A checkpoint holds all rows, so it does not depend on the number of processes that wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from townlet.interfaces.state import State

Path = tuple[str, ...]
RowAxes = Mapping[Path, int]  # the axis of the rows in all tensors below a path


def gather_state(local: State, rows: int, axes: RowAxes, gather: Callable[[Tensor], list[Tensor] | None]) -> State:
    """The state of all processes, each of which has `rows` rows; the local state where `gather` returns None."""

    def concatenate(leaf: Any, axis: int) -> Any:
        parts = gather(torch.as_tensor(leaf))
        return leaf if parts is None else torch.cat(parts, axis)

    return _map_rows(local, rows, axes, concatenate)


def local_state(state: State, rows: int, axes: RowAxes, rank: int, size: int) -> State:
    """This process's part, with `rows` rows, of the state of all processes."""

    def narrow(leaf: Any, axis: int) -> Any:
        part = torch.as_tensor(leaf).narrow(axis, rank * rows, rows)
        return part.numpy() if isinstance(leaf, np.ndarray) else part

    return _map_rows(state, rows * size, axes, narrow)


def _map_rows(state: State, rows: int, axes: RowAxes, change: Callable[[Any, int], Any], path: Path = ()) -> State:
    """The same tree, with `change` applied to every leaf that has `rows` rows along its row axis."""
    changed: State = {}
    for name, leaf in state.items():
        leaf_path = (*path, name)
        if isinstance(leaf, Mapping):
            changed[name] = _map_rows(dict(leaf), rows, axes, change, leaf_path)
        else:
            axis = next((axis for prefix, axis in axes.items() if leaf_path[: len(prefix)] == prefix), None)
            shape = leaf.shape if isinstance(leaf, Tensor | np.ndarray) else ()
            sharded = axis is not None and len(shape) > axis and shape[axis] == rows
            changed[name] = change(leaf, axis) if sharded and axis is not None else leaf
    return changed
