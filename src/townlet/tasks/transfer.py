"""Policies in other towns than that of their training: observations, masks and actions are mapped by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import torch
from torch import Tensor, nn

from townlet.agents.policy import OutputKind, Policy
from townlet.errors import TownletError
from townlet.interfaces.layout import Block
from townlet.town.world.tables import World, numbers_cells

# Blocks with one class per place and a last one for cells without a place.
TYPED: Final = ("affordance_here", "window_typed", "map_typed")
INTERACT: Final = "INTERACT"
MAX_DIFFERENCES: Final = 4  # that an error lists


@dataclass(frozen=True)
class InterfaceMapping:
    """Maps observations and masks of a world to those of the one that a policy was trained in, and its actions back.

    A place without a class in training becomes a cell without a place, where INTERACT is not valid. A meter that did
    not exist is dropped, and an action that did not exist is never taken.
    """

    world: World
    trained_in: World

    @cached_property
    def unobserved(self) -> tuple[str, ...]:
        """The names of places and meters that the policy does not observe."""
        places = [name for name in self.world.affordances if name not in self.trained_in.affordances]
        return (*places, *(name for name in self.world.meters if name not in self.trained_in.meters))

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """The names of places of the training world that do not exist in this one."""
        return tuple(name for name in self.trained_in.affordances if name not in self.world.affordances)

    @cached_property
    def _columns(self) -> Tensor:
        """For each column of the world, that of the training world to which it is added; its size to drop it."""
        dropped = self.trained_in.layout.size
        columns = torch.full((self.world.layout.size,), dropped)
        for block in self.trained_in.layout:
            columns[self.world.layout.block(block.name).slice] = self._columns_of(block, dropped)
        return columns

    def _columns_of(self, block: Block, dropped: int) -> Tensor:
        own = torch.tensor(block.columns).reshape(block.shape)
        if block.name in TYPED:
            classes = [*self.trained_in.affordances, None]  # None: a cell without a place
            at = [classes.index(name if name in classes else None) for name in (*self.world.affordances, None)]
            return own[..., at].flatten()
        if block.name == "meters":
            at_meter = dict(zip(self.trained_in.meters, block.columns, strict=True))
            return torch.tensor([at_meter.get(name, dropped) for name in self.world.meters])
        return own.flatten()

    @cached_property
    def _actions(self) -> Tensor:
        """For each action of the training world, the one of the same name; the number of actions if there is none."""
        numbers = {name: number for number, name in enumerate(self.world.actions)}
        return torch.tensor([numbers.get(name, len(numbers)) for name in self.trained_in.actions])

    @cached_property
    def _unobserved_here(self) -> list[int]:
        """Columns of the world that are 1 where the agent stands on a place that it does not observe."""
        if "affordance_here" not in self.world.layout:
            return []
        here = zip(self.world.affordances, self.world.layout.block("affordance_here").columns, strict=False)
        return [column for name, column in here if name in self.unobserved]

    def observation(self, obs: Tensor) -> Tensor:
        """Observations [..., D] as in the training world."""
        size = self.trained_in.layout.size
        mapped = obs.new_zeros(*obs.shape[:-1], size + 1)
        return mapped.index_add_(-1, self._columns.to(obs.device), obs)[..., :size]

    def mask(self, obs: Tensor, mask: Tensor) -> Tensor:
        """The mask [N, K] as in the training world."""
        mapped = nn.functional.pad(mask, (0, 1))[:, self._actions.to(mask.device)]
        if INTERACT in self.trained_in.actions:
            mapped[:, self.trained_in.actions.index(INTERACT)] &= ~obs[:, self._unobserved_here].bool().any(-1)
        return mapped

    def actions(self, chosen: Tensor) -> Tensor:
        """The numbers of actions [N] in the world."""
        return self._actions.to(chosen.device)[chosen]

    def outputs(self, values: Tensor, lowest: Tensor) -> Tensor:
        """Outputs [N, K] for the actions of the world; `lowest` [N, 1] for those that did not exist in training."""
        mapped = lowest.repeat(1, len(self.world.actions) + 1)
        mapped[:, self._actions.to(values.device)] = values
        return mapped[:, :-1]


def map_interface(world: World, trained_in: World, run: str) -> InterfaceMapping | None:
    """The mapping for a policy of a run; None if it acts as in training.

    Raises TownletError with the differences if the policy cannot act in the world.
    """
    if differences := obstacles(world, trained_in):
        what = f"the agent of {run} cannot act in {world.name}: {'; '.join(differences[:MAX_DIFFERENCES])}"
        raise TownletError(what, "train an agent in this world, or choose one that was trained in a world like it")
    return None if world.interface_hash == trained_in.interface_hash else InterfaceMapping(world, trained_in)


def obstacles(world: World, trained_in: World) -> list[str]:
    """Why a policy cannot act in a world, as clauses; [] if it can."""
    found = []
    if world.size != trained_in.size and numbers_cells(trained_in.layout):
        found.append(f"the map has {_size(world)} cells, in training it had {_size(trained_in)}")
    if (here := _other_actions(world)) != (there := _other_actions(trained_in)):
        found.append(f"the actions are {', '.join(here)}, in training they were {', '.join(there)}")
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


def _other_actions(world: World) -> tuple[str, ...]:
    """The actions that do not belong to a place."""
    return tuple(name for name in world.actions if not name.startswith(f"{INTERACT} "))


def _fixed_part(block: Block) -> tuple[Any, ...]:
    """What must be equal in both worlds: the shape without classes or meters, and the range."""
    shape = block.shape[:-1] if block.name in (*TYPED, "meters") else block.shape
    return shape, block.low, block.high


def _size(world: World) -> str:
    return "×".join(map(str, world.size)) or "no"


class MappedPolicy(Policy):
    """A policy that acts in another world than that of its training."""

    def __init__(
        self, network: nn.Module, kind: OutputKind, generator: torch.Generator, mapping: InterfaceMapping
    ) -> None:
        super().__init__(network, kind, generator)
        self._mapping = mapping

    @torch.inference_mode()
    def act(
        self, obs: Tensor, mask: Tensor | None = None, episode_start: Tensor | None = None, greedy: bool = True
    ) -> Tensor:
        chosen = super().act(*self._mapped(obs, mask), episode_start, greedy)
        return self._mapping.actions(chosen)

    @torch.inference_mode()
    def outputs(
        self, obs: Tensor, mask: Tensor | None = None, episode_start: Tensor | None = None
    ) -> dict[str, Tensor]:
        """As in `Policy`; an action that is not valid for it has probability 0 and the lowest other output."""
        obs, valid = self._mapped(obs, mask)
        outputs = super().outputs(obs, valid, episode_start)
        mapped = {}
        for name, values in outputs.items():
            lowest = values.new_zeros(len(values), 1) if name == "probabilities" else values.amin(-1, keepdim=True)
            mapped[name] = self._mapping.outputs(torch.where(valid, values, lowest), lowest)
        return mapped

    def _mapped(self, obs: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if mask is None:
            mask = torch.ones(len(obs), len(self._mapping.world.actions), dtype=torch.bool, device=obs.device)
        return self._mapping.observation(obs), self._mapping.mask(obs, mask)


def transfer_note(unobserved: Sequence[str], missing: Sequence[str]) -> str:
    """What a policy does not observe, and which places of its training do not exist, as clauses; "" if neither."""
    clauses = [f"cannot see {', '.join(unobserved)}"] if unobserved else []
    clauses += [f"knows {', '.join(missing)} only from its training"] if missing else []
    return " and ".join(clauses)
