"""State and world tables of the torch engine: one tensor per field and meter, in the smallest integer types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.town.state import FIELDS, upper_bounds
from townlet.town.world.tables import Tables, World

Tensors = dict[str, Tensor]
STEP_FIELDS: Final = ("cell", "age", "hour", "progress", "using", "here")  # changed by a step, besides meters
LAYOUT: Final = ("kind_at", "cell_of")  # per row in a world with shuffled layout
# Tables that are indexed by values of the rows, and so must be tensors.
INDEXED: Final = frozenset(
    {
        "next_cell", "passable", "action_cost", "start_cells", "kind_at", "cell_of", "window_cell",
        "position", "ticks", "tick_share", "price", "open_at", "effect", "clock", "distance",
    }
)  # fmt: skip


def meter_names(world: World) -> list[str]:
    """Names of the meter tensors. Each meter has its own, so that a graph writes it where it computes it."""
    return [f"meter {m}" for m in range(len(world.meters))]


def field_dtypes(world: World) -> dict[str, torch.dtype]:
    """The smallest dtype for each stored field, since a step is bound by memory traffic."""
    dtypes = dict.fromkeys(FIELDS, torch.int32)
    for name, top in upper_bounds(world).items():
        small = (dtype for dtype in (torch.uint8, torch.int16) if top - 1 <= torch.iinfo(dtype).max)
        dtypes[name] = next(small, torch.int32)
    return dtypes | {"multiplier": torch.float32} | dict.fromkeys(meter_names(world), torch.float32)


class TensorRow:
    """All rows at once as a `Row` for the rules: each value is a tensor [N], integers in 32 bits."""

    row: Tensor
    episode: Tensor
    cell: Tensor
    here: Tensor
    hour: Tensor
    age: Tensor
    using: Tensor
    progress: Tensor
    active: Tensor
    multiplier: Tensor

    def __init__(self, values: Tensors, meters: Sequence[str]) -> None:
        self.meters = [values[name] for name in meters]
        for name in FIELDS:
            value = values[name]
            setattr(self, name, value if value.is_floating_point() else value.to(torch.int32))

    def values(self, like: Tensors, meters: Sequence[str]) -> Tensors:
        """All fields as tensors with the dtypes of `like`."""
        out = {name: getattr(self, name).to(like[name].dtype) for name in FIELDS}
        return out | dict(zip(meters, self.meters, strict=True))

    def columns(self) -> TensorRow:
        """Turn every field but the meters into a column [N, 1], for the observation."""
        for name in FIELDS:
            setattr(self, name, getattr(self, name).unsqueeze(1))
        return self


def select_rows(chosen: Tensor, yes: Tensors, no: Tensors) -> Tensors:
    """`yes` in the chosen rows, `no` in the others."""
    return {
        name: torch.where(chosen.unsqueeze(1) if no[name].ndim == 2 else chosen, yes[name], no[name]) for name in no
    }


def write(values: Tensors, into: Tensors) -> None:
    """Copy each value into the tensor of its name."""
    for name, value in values.items():
        into[name].copy_(value)


def field_to_numpy(name: str, values: Tensor) -> NDArray[Any]:
    """A copy of a field in its public dtype."""
    numbers: NDArray[Any] = values.cpu().numpy()
    return numbers.astype(FIELDS[name], copy=values.device.type == "cpu") if name in FIELDS else np.array(numbers)


def to_tuples(value: Any) -> Any:
    """Nested lists as nested tuples of Python numbers, which become constants of a graph."""
    return tuple(to_tuples(v) for v in value) if isinstance(value, list) else value


def tensor_tables(tables: Tables, device: str) -> Tables:
    """The world's tables for torch: tensors where a row's value is the index, constants elsewhere."""
    out: dict[str, Any] = {}
    for name, value in tables._asdict().items():
        if name in INDEXED:
            out[name] = torch.from_numpy(np.ascontiguousarray(value)).to(device)
        else:
            out[name] = to_tuples(np.asarray(value).tolist())
    return Tables(**out)
