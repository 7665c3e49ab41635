"""Columns of steps, time-major and preallocated: what ring, sequences and rollout are made of."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final, NamedTuple

import torch
from torch import Tensor

from townlet.contract.allocation import reserve
from townlet.contract.restore import SAME, copy_tensor, part
from townlet.contract.state import State
from townlet.errors import TownletError
from townlet.memory.packing import Columns, Packing

NUMBER: Final = ((), torch.float32)
WHOLE: Final = ((), torch.int64)
FLAG: Final = ((), torch.bool)
PACKED: Final = ("obs", "next_obs")


class Transition(NamedTuple):
    """One step of all rows, each [N, …], as replay memories take it in."""

    obs: Tensor  # [N, D] float32
    mask: Tensor  # [N, K] bool
    actions: Tensor  # [N] int64
    reward: Tensor  # [N] float32, of the environment
    intrinsic: Tensor  # [N] float32, unweighted
    next_obs: Tensor  # [N, D], the final one where an episode ended
    next_mask: Tensor  # [N, K], likewise
    terminated: Tensor  # [N] bool
    truncated: Tensor  # [N] bool
    hidden: Tensor  # [N, H] what was remembered before it; H is 0 where that is not stored
    void: Tensor | None = None  # [N] bool, nothing can be learned from these; None where that never happens

    @property
    def ended(self) -> Tensor:
        """Whether the episode was over with it, for whichever reason [N]."""
        return self.terminated | self.truncated


def transition_columns(obs_size: int, actions: int, voids: bool = False) -> Columns:
    """The columns that every replay memory keeps of transitions."""
    return {
        **({"void": FLAG} if voids else {}),
        "obs": ((obs_size,), torch.float32),
        "actions": WHOLE,
        "reward": NUMBER,
        "intrinsic": NUMBER,
        "next_obs": ((obs_size,), torch.float32),
        "next_mask": ((actions,), torch.bool),
        "terminated": FLAG,
        "ended": FLAG,
    }


class Storage:
    """Columns [slots, rows, …] filled slot by slot; when all are filled the oldest is written over.

    `flat` shows the same memory as [slots × rows, …]: place p is row p % rows of slot p // rows, and the same row
    one step later is rows further, around the end. With a packing what was seen of transitions is kept in its columns.
    """

    def __init__(self, slots: int, rows: int, columns: Columns, device: str, packing: Packing | None = None) -> None:
        self.slots, self.rows = slots, rows
        self._packing = packing if packing is not None and packing.packs else None
        self._names = tuple(columns)
        if self._packing:
            for seen in [name for name in PACKED if name in columns]:
                plain = {name: column for name, column in columns.items() if name != seen}
                columns = {**plain, **self._packing.columns(seen)}
        if device == "cpu":
            size = slots * rows * sum(prod(shape) * kind.itemsize for shape, kind in columns.values())
            what = f"experience of {slots:,} steps of {rows:,} rows"
            reserve(self, size, what, "lower rows, agent.n_steps or agent.replay")
        self.columns = {
            name: torch.zeros((slots, rows, *shape), dtype=kind, device=device)
            for name, (shape, kind) in columns.items()
        }
        self.flat = {name: column.flatten(0, 1) for name, column in self.columns.items()}
        self.head = 0  # the slot that is written next
        self.filled = 0

    def __len__(self) -> int:
        return self.filled * self.rows

    @property
    def newest(self) -> int:
        """The slot written last."""
        return (self.head - 1) % self.slots

    def put(self, **values: Tensor) -> None:
        """Copy values [rows, …] into the slot at the head."""
        for name, value in values.items():
            apart = self._packing.apart(name, value) if self._packing and name in PACKED else {name: value}
            for column, stored in apart.items():
                self.columns[column][self.head].copy_(stored)

    def add(self, step: Transition) -> None:
        """Copy those values of a transition for which there is a column; the slot is complete."""
        self.put(**{name: getattr(step, name) for name in self._names})
        self.advance()

    def take(self, name: str, index: Tensor, out: Tensor | None = None) -> Tensor:
        """What was stored under that name at places [B] of `flat`: [B, …], unpacked, in `out` if there is one."""
        if self._packing and name in PACKED:
            found = self._packing.together(name, self.flat, index)
            return found if out is None else out.copy_(found)
        return torch.index_select(self.flat[name], 0, index, out=out)

    def advance(self) -> None:
        """The slot at the head is complete."""
        self.head = (self.head + 1) % self.slots
        self.filled = min(self.filled + 1, self.slots)

    def cut(self) -> None:
        """What is written next does not follow what was written last: returns and windows end there."""
        if self.filled:
            self.columns["ended"][self.newest] = True

    def clear(self) -> None:
        """Begin at the first slot again."""
        self.head = self.filled = 0

    def state(self) -> State:
        """The filled slots, as views, and where to go on."""
        columns = {name: column[: self.filled] for name, column in self.columns.items()}
        return {"slots": self.slots, "head": self.head, "columns": columns}

    def restore(self, state: State) -> None:
        """Take over the filled slots of a storage of the same shape."""
        slots, head, given = (part(state, name, "memory") for name in ("slots", "head", "columns"))
        if slots != self.slots:
            raise TownletError(f"the saved memory has {slots} slots and this one {self.slots}", SAME)
        if not isinstance(given, Mapping) or set(given) != set(self.columns):
            raise TownletError(f"the saved memory does not hold {', '.join(self.columns)}", SAME)
        filled = min(len(next(iter(given.values()))), slots)
        if not isinstance(head, int) or not (0 <= head < slots if filled == slots else head == filled):
            raise TownletError(f"the saved memory cannot go on at slot {head!r}", SAME)
        for name, column in self.columns.items():
            copy_tensor(column[:filled], given[name], name)
        self.head, self.filled = head, filled
