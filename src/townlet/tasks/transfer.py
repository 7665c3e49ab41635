"""Policies in towns with places and meters that did not exist in training: they act without observing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from townlet.errors import TownletError
from townlet.interfaces.layout import Block
from townlet.town.world.tables import World

# Blocks with one class per place and a last one for cells without a place.
TYPED: Final = ("affordance_here", "window_typed", "map_typed")
MAX_DIFFERENCES: Final = 4  # that an error lists

Columns = NDArray[np.int64]


@dataclass(frozen=True)
class ObservationMapping:
    """Maps observations of a world to those of the world that a policy was trained in.

    A place without a class in training becomes a cell without a place, and a meter that did not exist is dropped.

    Attributes:
        columns: for each column of the world, the column of the training world to which it is added.
        size: number of columns in the training world; `columns` has this value where a column is dropped.
        unobserved: the names of places and meters that the policy does not observe.
    """

    columns: Columns
    size: int
    unobserved: tuple[str, ...]

    def __call__(self, obs: Tensor) -> Tensor:
        """Observations [..., D] as in the training world."""
        mapped = obs.new_zeros(*obs.shape[:-1], self.size + 1)
        return mapped.index_add_(-1, torch.from_numpy(self.columns).to(obs.device), obs)[..., : self.size]


def map_observation(world: World, trained_in: World, run: str) -> ObservationMapping | None:
    """The mapping for a policy of a run; None if it observes the same in both worlds.

    Raises TownletError with the differences if the policy cannot act in the world.
    """
    if world.interface_hash == trained_in.interface_hash:
        return None
    if differences := obstacles(world, trained_in):
        what = f"the agent of {run} cannot act in {world.name}: {'; '.join(differences[:MAX_DIFFERENCES])}"
        raise TownletError(what, "train an agent in this world, or choose one that was trained in a world like it")
    size = trained_in.layout.size
    columns = np.full(world.layout.size, size, np.int64)
    for block in trained_in.layout:
        columns[world.layout.block(block.name).slice] = _columns(block, world, trained_in, dropped=size)
    known = {*trained_in.affordances, *trained_in.meters}
    return ObservationMapping(columns, size, tuple(n for n in (*world.affordances, *world.meters) if n not in known))


def obstacles(world: World, trained_in: World) -> list[str]:
    """Why a policy cannot act in a world, as clauses; [] if it can."""
    if world.interface_hash == trained_in.interface_hash:
        return []
    found = []
    if world.size != trained_in.size:
        found.append(f"the map has {_size(world)} cells, in training it had {_size(trained_in)}")
    if world.actions != trained_in.actions:
        found.append(f"there are {len(world.actions)} actions, in training there were {len(trained_in.actions)}")
    found += [f"there is no meter '{name}'" for name in trained_in.meters if name not in world.meters]
    if found:
        return found
    blocks = {block.name: block for block in world.layout}
    for block in trained_in.layout:
        if block.name not in blocks:
            found.append(f"'{block.name}' is not observed")
        elif _fixed_part(blocks[block.name]) != _fixed_part(block):
            shapes = [list(b.shape) for b in (blocks[block.name], block)]
            found.append(f"'{block.name}' has the shape {shapes[0]}, in training it had {shapes[1]}")
    return found


def _columns(block: Block, world: World, trained_in: World, dropped: int) -> Columns:
    """Columns of the training world for those of the same block in the world."""
    own = np.array(block.columns).reshape(block.shape)
    if block.name in TYPED:
        classes = [*trained_in.affordances, None]  # None: a cell without a place
        at = [classes.index(name if name in classes else None) for name in (*world.affordances, None)]
        return own[..., at].ravel()
    if block.name == "meters":
        at_meter = dict(zip(trained_in.meters, own.tolist(), strict=True))
        return np.array([at_meter.get(name, dropped) for name in world.meters])
    return own.ravel()


def _fixed_part(block: Block) -> tuple[Any, ...]:
    """What must be equal in both worlds: the shape without classes or meters, and the range."""
    shape = block.shape[:-1] if block.name in (*TYPED, "meters") else block.shape
    return shape, block.low, block.high


def _size(world: World) -> str:
    return "×".join(map(str, world.size)) or "no"


class MappedNetwork(nn.Module):
    """A network that receives mapped observations."""

    def __init__(self, network: nn.Module, mapping: ObservationMapping) -> None:
        super().__init__()
        self.network, self.mapping = network, mapping
        self.hidden_size = int(getattr(network, "hidden_size", 0))

    def initial_hidden(self, rows: int) -> Tensor:
        return cast(Tensor, cast(Any, self.network).initial_hidden(rows))

    def forward(self, obs: Tensor, hidden: Tensor) -> tuple[Tensor, ...]:
        outputs: tuple[Tensor, ...] = self.network(self.mapping(obs), hidden)
        return outputs


def unobserved_note(names: Sequence[str]) -> str:
    """A note about what a policy does not observe; empty if it observes everything."""
    return f"cannot see {', '.join(names)}" if names else ""
