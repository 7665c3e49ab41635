"""Preallocated circular storage of vector steps for replay and rollout buffers; images are stored as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final, NamedTuple

import torch
from torch import Tensor

from townlet.allocation import reserve
from townlet.errors import TownletError
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.state import SAME_SETTINGS, State, copy_tensor, get_part

ColumnSpec = tuple[tuple[int, ...], torch.dtype]  # shape of one row's value, and its dtype
ColumnSpecs = Mapping[str, ColumnSpec]
FLOAT: Final = ((), torch.float32)
INT: Final = ((), torch.int64)
BOOL: Final = ((), torch.bool)
MAX_BYTE: Final = 255
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
    """The columns of a transition that every replay buffer stores."""
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


class ImageCompression:
    """Splits observations [N, D] into a float32 column `{name}` and, for images, a uint8 column `{name}_bytes`.

    Image values are rounded to the nearest of their block's levels, so images that were made from bytes are restored
    exactly.
    """

    def __init__(self, layout: ObservationLayout, device: str = "cpu") -> None:
        images = [block for block in layout if block.kind == "picture" and 0 < block.levels <= MAX_BYTE]
        others = [block for block in layout if block not in images]
        self.size, self.active = layout.size, bool(images)
        self._image_index, self._float_index = (
            torch.tensor([i for block in blocks for i in block.columns], dtype=torch.int64, device=device)
            for blocks in (images, others)
        )
        sizes = torch.tensor([block.size for block in images], dtype=torch.int64)
        lows = torch.tensor([block.low for block in images]).repeat_interleave(sizes)
        scales = torch.tensor([block.levels / (block.high - block.low) for block in images]).repeat_interleave(sizes)
        self._low, self._scale = lows.to(device), scales.to(device)

    def columns(self, name: str) -> ColumnSpecs:
        """Specifications of the columns that hold observations of this name."""
        floats, images = len(self._float_index), len(self._image_index)
        return {
            **({name: ((floats,), torch.float32)} if floats else {}),
            **({f"{name}_bytes": ((images,), torch.uint8)} if images else {}),
        }

    def compress(self, name: str, obs: Tensor) -> dict[str, Tensor]:
        """Values of each column for observations [N, D]."""
        if not self.active:
            return {name: obs}
        image = obs if not len(self._float_index) else obs.index_select(1, self._image_index)
        values = {f"{name}_bytes": (image - self._low).mul_(self._scale).round_().clamp_(0, MAX_BYTE)}
        return values | ({name: obs.index_select(1, self._float_index)} if len(self._float_index) else {})

    def decompress(self, name: str, columns: Mapping[str, Tensor], index: Tensor) -> Tensor:
        """The observations [B, D] at indices [B] of flat columns."""
        if not self.active:
            return columns[name].index_select(0, index)
        image = columns[f"{name}_bytes"].index_select(0, index).float().div_(self._scale).add_(self._low)
        if not len(self._float_index):
            return image
        obs = torch.empty((len(index), self.size), device=index.device)
        obs.index_copy_(1, self._image_index, image)
        return obs.index_copy_(1, self._float_index, columns[name].index_select(0, index))


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
        self.filled = 0  # number of slots written

    def __len__(self) -> int:
        return self.filled * self.rows

    @property
    def newest(self) -> int:
        """The slot that was completed last."""
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
        """Complete the slot at the head."""
        self.head = (self.head + 1) % self.slots
        self.filled = min(self.filled + 1, self.slots)

    def truncate_unfinished_episodes(self) -> None:
        """Mark the newest step of each row as the last of its episode, because the environment was reset after it."""
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
            raise TownletError(f"the saved buffer has other columns than {', '.join(self.columns)}", SAME_SETTINGS)
        filled = min(len(next(iter(saved.values()))), slots)
        valid_heads = range(slots) if filled == slots else (filled,)
        if not isinstance(head, int) or head not in valid_heads:
            raise TownletError(f"the saved buffer has an invalid write position: slot {head!r}", SAME_SETTINGS)
        for name, column in self.columns.items():
            copy_tensor(column[:filled], saved[name], name)
        self.head, self.filled = head, filled
