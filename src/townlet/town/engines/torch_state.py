"""What the tensor engine keeps: one tensor for each field and each meter, always the same, in small whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.town.state import FIELDS, tops_of
from townlet.town.world.tables import World

Tensors = dict[str, Tensor]
PASSING: Final = ("cell", "age", "hour", "progress", "using", "here")  # what a step changes, beside meters
LAYOUT: Final = ("kind_at", "cell_of")  # of every row, where the world shuffles


def meter_names(world: World) -> list[str]:
    """The fields that hold the meters: one tensor each, so that a graph writes them where it calculates them."""
    return [f"meter {m}" for m in range(len(world.meters))]


def kinds(world: World) -> dict[str, torch.dtype]:
    """The type each field is kept in: a step is bound by the bytes that it moves."""
    found = dict.fromkeys(FIELDS, torch.int32) | {name: _smallest(top - 1) for name, top in tops_of(world).items()}
    return found | {"multiplier": torch.float32} | dict.fromkeys(meter_names(world), torch.float32)


def _smallest(largest: int) -> torch.dtype:
    return next((kind for kind in (torch.uint8, torch.int16) if largest <= torch.iinfo(kind).max), torch.int32)


class Row:
    """The row of the rule book: each value a tensor [N], meters a list of such; whole numbers have 32 bits here."""

    cell: Tensor
    here: Tensor

    def __init__(self, values: Tensors, meters: Sequence[str]) -> None:
        self.meters = [values[name] for name in meters]
        for name in FIELDS:
            value = values[name]
            setattr(self, name, value if value.is_floating_point() else value.to(torch.int32))

    def values(self, like: Tensors, meters: Sequence[str], names: Sequence[str] = tuple(FIELDS)) -> Tensors:
        """Back to tensors, in the types of `like`."""
        out = {name: getattr(self, name).to(like[name].dtype) for name in names}
        return out | dict(zip(meters, self.meters, strict=True))


def chosen_of(chosen: Tensor, yes: Tensors, no: Tensors) -> Tensors:
    """`yes` in the chosen rows, else `no`."""
    return {
        name: torch.where(chosen.unsqueeze(1) if no[name].ndim == 2 else chosen, yes[name], no[name]) for name in no
    }


def write(values: Tensors, into: Tensors) -> None:
    """Copy each value into the tensor of its name."""
    for name, value in values.items():
        into[name].copy_(value)


def as_numpy(name: str, values: Tensor) -> NDArray[Any]:
    """A field as everybody else knows it, a copy."""
    found: NDArray[Any] = values.cpu().numpy()
    return found.astype(FIELDS[name], copy=values.device.type == "cpu") if name in FIELDS else np.array(found)
