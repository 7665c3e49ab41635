"""Preallocated circular storage of vector steps, shared by the replay and rollout buffers."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final, NamedTuple

import torch
from torch import Tensor

from townlet.allocation import reserve
from townlet.buffers.compression import ColumnSpecs, ImageCompression
from townlet.errors import TownletError
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.state import SAME_SETTINGS, State, copy_tensor, get_part

FLOAT: Final = ((), torch.float32)
INT: Final = ((), torch.int64)
BOOL: Final = ((), torch.bool)
OBSERVATIONS: Final = ("obs", "next_obs")  # columns that image compression applies to


class VectorTransition(NamedTuple):
    """One vector step: a transition of every row, each [N, …]."""

    obs: Tensor  # [N, D] float32
    mask: Tensor  # [N, K] bool, valid actions
    actions: Tensor  # [N] int64
    reward: Tensor  # [N] float32, extrinsic
    intrinsic: Tensor  # [N] float32, intrinsic reward, unweighted
    next_obs: Tensor  # [N, D], the final observation where the episode ended
    next_mask: Tensor  # [N, K], valid actions in next_obs
    terminated: Tensor  # [N] bool
    truncated: Tensor  # [N] bool
    hidden: Tensor  # [N, H] hidden state before the step; H is 0 if it is not stored
    autoreset: Tensor | None = None  # [N] bool, autoreset steps, which are never sampled; None if there are none

    @property
    def ended(self) -> Tensor:
        return self.terminated | self.truncated


def transition_columns(obs_size: int, actions: int, autoreset_steps: bool = False) -> ColumnSpecs:
    """Columns that every replay buffer stores of a transition."""
    return {
        **({"autoreset": BOOL} if autoreset_steps else {}),
        "obs": ((obs_size,), torch.float32),
        "actions": INT,
        "reward": FLOAT,
        "intrinsic": FLOAT,
        "next_obs": ((obs_size,), torch.float32),
        "next_mask": ((actions,), torch.bool),
        "terminated": BOOL,
        "ended": BOOL,
    }


class CircularStorage:
    """Columns [slots, rows, …], written slot by slot; once full, the oldest slot is overwritten.

    `flat` views the same memory as [slots × rows, …]: index i is row i % rows of slot i // rows, and the next step of
    that row is at (i + rows) % (slots × rows). Images in observations of this `layout` are stored as bytes.
    """

    def __init__(
        self, slots: int, rows: int, columns: ColumnSpecs, device: str, layout: ObservationLayout | None = None
    ) -> None:
        self.slots, self.rows = slots, rows
        compression = ImageCompression(layout, device) if layout else None
        self._compression = compression if compression and compression.active else None
        self._names = tuple(columns)
        if self._compression:
            for obs in [name for name in OBSERVATIONS if name in columns]:
                others = {name: column for name, column in columns.items() if name != obs}
                columns = {**others, **self._compression.columns(obs)}
        if device == "cpu":
            size = slots * rows * sum(prod(shape) * dtype.itemsize for shape, dtype in columns.values())
            what = f"experience of {slots:,} steps of {rows:,} rows"
            reserve(self, size, what, "lower rows, agent.n_steps or agent.replay")
        self.columns = {
            name: torch.zeros((slots, rows, *shape), dtype=dtype, device=device)
            for name, (shape, dtype) in columns.items()
        }
        self.flat = {name: column.flatten(0, 1) for name, column in self.columns.items()}
        self.head = 0  # the slot to be written next
        self.filled = 0

    def __len__(self) -> int:
        return self.filled * self.rows

    @property
    def newest(self) -> int:
        return (self.head - 1) % self.slots

    def write(self, **values: Tensor) -> None:
        """Copy values [rows, …] into the slot at the head, without completing it."""
        for name, value in values.items():
            if self._compression and name in OBSERVATIONS:
                stored = self._compression.compress(name, value)
            else:
                stored = {name: value}
            for column, data in stored.items():
                self.columns[column][self.head].copy_(data)

    def add(self, step: VectorTransition) -> None:
        """Write the fields of a transition that have a column, and complete the slot."""
        self.write(**{name: getattr(step, name) for name in self._names})
        self.advance()

    def take(self, name: str, index: Tensor, out: Tensor | None = None) -> Tensor:
        """Values [B, …] at flat indices [B], decompressed; written to `out` if given."""
        if self._compression and name in OBSERVATIONS:
            obs = self._compression.decompress(name, self.flat, index)
            return obs if out is None else out.copy_(obs)
        return torch.index_select(self.flat[name], 0, index, out=out)

    def advance(self) -> None:
        self.head = (self.head + 1) % self.slots
        self.filled = min(self.filled + 1, self.slots)

    def truncate_open_episodes(self) -> None:
        """Mark the newest step as the last of its episode, because the environment was reset after it."""
        if self.filled:
            self.columns["ended"][self.newest] = True

    def clear(self) -> None:
        self.head = self.filled = 0

    def state(self) -> State:
        columns = {name: column[: self.filled] for name, column in self.columns.items()}
        return {"slots": self.slots, "head": self.head, "columns": columns}

    def restore(self, state: State) -> None:
        slots, head, saved = (get_part(state, name, "buffer") for name in ("slots", "head", "columns"))
        if slots != self.slots:
            raise TownletError(f"the saved buffer has {slots} slots, but this one has {self.slots}", SAME_SETTINGS)
        if not isinstance(saved, Mapping) or set(saved) != set(self.columns):
            raise TownletError(f"the saved buffer does not have the columns {', '.join(self.columns)}", SAME_SETTINGS)
        filled = min(len(next(iter(saved.values()))), slots)
        if not isinstance(head, int) or not (0 <= head < slots if filled == slots else head == filled):
            raise TownletError(f"the saved buffer has an invalid write position: slot {head!r}", SAME_SETTINGS)
        for name, column in self.columns.items():
            copy_tensor(column[:filled], saved[name], name)
        self.head, self.filled = head, filled
