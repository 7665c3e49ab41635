"""Recording of every step of some rows, so that an episode can be replayed once it has ended.

The recorder is a ring buffer of the last frames. It does not affect the town, and its state is part of a checkpoint:
the recording of an episode is complete even if the run was interrupted during it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor

from townlet.errors import TownletError
from townlet.interfaces.state import State
from townlet.jit import jit_if_available
from townlet.town.env import Town
from townlet.town.state import record_dtype, to_numpy
from townlet.town.usage_counts import copy_array
from townlet.town.world.tables import World

RECORDED_ROWS: Final = 4
MAX_STEPS: Final = 1024  # of a longer episode only the last steps are kept
MAX_PENDING, MAX_PENDING_ROWS = 32, 2**17  # outputs of at most so many steps, and steps × rows, are read together
STEP_FIELDS: Final = ("actions", "outputs", "reward", "components")
FRAME_FIELDS: Final[dict[str, str]] = {"cell": "u4", "age": "u4", "hour": "u2", "progress": "u2", "using": "u2"}


@dataclass(frozen=True)
class Recording:
    """One episode of one row, or its end: T steps between T + 1 frames. Other letters in shapes: `world.tables`."""

    cell: NDArray[np.uint32]  # [T + 1]
    age: NDArray[np.uint32]  # [T + 1]
    hour: NDArray[np.uint16]  # [T + 1]
    progress: NDArray[np.uint16]  # [T + 1]
    using: NDArray[np.uint16]  # [T + 1]
    meters: NDArray[np.float32]  # [T + 1, M]
    actions: NDArray[np.int16]  # [T], each leads from a frame to the next
    outputs: NDArray[np.float32]  # [T, K], action values or probabilities
    mask: NDArray[np.bool_]  # [T, K]
    reward: NDArray[np.float32]  # [T]
    components: NDArray[np.float32]  # [T, R]
    cell_of: NDArray[np.uint32]  # [A], cells of the affordances

    def __len__(self) -> int:
        return len(self.actions)

    def to_bytes(self) -> bytes:
        """The recording in safetensors format."""
        return save({f.name: np.ascontiguousarray(getattr(self, f.name)) for f in fields(self)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Recording:
        """The recording of `to_bytes`; refuses anything else."""
        try:
            recording = cls(**load(data))
        except (SafetensorError, TypeError, KeyError, ValueError):
            raise TownletError("this is not a recorded episode", "remove it: it is damaged") from None
        if any(len(getattr(recording, name)) != len(recording) + 1 for name in (*FRAME_FIELDS, "meters")):
            raise TownletError("the fields of a recorded episode differ in length", "remove it: it is damaged")
        return recording


def write_frame(
    at: int, state: NDArray[np.void], mask: NDArray[np.bool_], reward: NDArray[np.float32],
    components: NDArray[np.float32], to_state: NDArray[np.void], to_mask: NDArray[np.bool_],
    to_reward: NDArray[np.float32], to_components: NDArray[np.float32],
) -> None:  # fmt: skip
    """Write the result of one step at an index of the ring buffer; compiled where Numba is installed."""
    for row in range(to_state.shape[1]):
        to_state[at, row], to_reward[at, row] = state[row], reward[row]
        for k in range(mask.shape[1]):
            to_mask[at, row, k] = mask[row, k]
        for r in range(components.shape[1]):
            to_components[at, row, r] = components[row, r]


def empty_arrays(world: World, *shape: int) -> dict[str, NDArray[Any]]:
    """Arrays of zeros for frames and steps, by the field names of a recording."""
    k = len(world.actions)
    return {
        **{name: np.zeros(shape, dtype) for name, dtype in FRAME_FIELDS.items()},
        "meters": np.zeros((*shape, len(world.meters)), np.float32),
        "actions": np.zeros(shape, np.int16),
        "outputs": np.zeros((*shape, k), np.float32),
        "mask": np.zeros((*shape, k), np.bool_),
        "reward": np.zeros(shape, np.float32),
        "components": np.zeros((*shape, len(world.rewards)), np.float32),
    }


class EpisodeRecorder:
    """The last frames of the first rows. Call `record` after every step, `finish_episode` for each ended row.

    `describe_outputs(outputs, rows)` turns the policy's outputs of T steps into action values or probabilities
    [T, rows, K]. It is called for many steps at once: a call per step would take longer than everything else.
    """

    def __init__(
        self, town: Town, describe_outputs: Callable[[Sequence[Tensor], int], Tensor],
        rows: int = RECORDED_ROWS, steps: int = MAX_STEPS,
    ) -> None:  # fmt: skip
        self._engine, self._describe_outputs = town.engine, describe_outputs
        self.rows = rows = min(rows, town.rows)
        world, self._capacity = town.world, min(steps, int(town.world.tables.max_steps)) + 1  # in frames
        frames = np.zeros((self._capacity, rows), record_dtype(len(world.meters)))
        self._first = np.zeros(rows, np.int64)  # number of the first frame of each row's episode
        # Each index holds a frame with its mask, and the step that led to it.
        self._arrays = empty_arrays(world, self._capacity, rows)
        self._arrays |= {name: frames[name] for name in (*FRAME_FIELDS, "meters")}
        self._into = (frames, *(self._arrays[name] for name in ("mask", "reward", "components")))
        self._written = 0  # frames so far
        # Actions and policy outputs of the last steps, not yet written to the arrays.
        self._actions: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._max_pending = max(1, min(MAX_PENDING, MAX_PENDING_ROWS // town.rows, self._capacity))
        self._write_frame = jit_if_available(write_frame)
        self._views = self._read() if town.engine.name == "numba" else ()  # this engine reuses its arrays
        self._write()  # the current frame counts as the first one of every row's episode

    def _read(self) -> tuple[NDArray[Any], ...]:
        """The current frame and mask, and the last step's reward and its components."""
        e, rows = self._engine, self.rows
        return e.records(rows), *(to_numpy(part[:rows]) for part in (e.mask, e.reward, e.components))

    def record(self, actions: Tensor, outputs: Tensor) -> None:
        """Record the last step: its actions [N] and the policy's outputs. Both are read later: do not modify them."""
        self._actions.append(actions)
        self._outputs.append(outputs)
        self._write()
        if len(self._actions) == self._max_pending:
            self._read_outputs()

    def _write(self) -> None:
        self._write_frame(self._written % self._capacity, *(self._views or self._read()), *self._into)
        self._written += 1

    def _read_outputs(self) -> None:
        if not self._actions:
            return
        at = np.arange(self._written - len(self._actions), self._written) % self._capacity
        self._arrays["actions"][at] = to_numpy(torch.stack([actions[: self.rows] for actions in self._actions]))
        self._arrays["outputs"][at] = to_numpy(self._describe_outputs(self._outputs, self.rows))
        self._actions.clear()
        self._outputs.clear()

    def finish_episode(self, row: int) -> Recording:
        """The recording of a row's episode that ended in the last step; starts recording the next one."""
        self._read_outputs()
        arrays = self._arrays
        last = self._written - 1  # holds the last step, and the first frame of the next episode
        first = max(int(self._first[row]), last - self._capacity + 1)
        frames = np.arange(first, last) % self._capacity
        steps = np.arange(first + 1, last + 1) % self._capacity
        final = self._engine.final_state(np.array([row]), *FRAME_FIELDS, "meters", "cell_of")
        states = {name: np.concatenate([arrays[name][frames, row], final[name]]) for name in (*FRAME_FIELDS, "meters")}
        results = {name: arrays[name][steps, row] for name in STEP_FIELDS}
        self._first[row] = last
        return Recording(**states, **results, mask=arrays["mask"][frames, row], cell_of=final["cell_of"][0])

    def state(self) -> State:
        self._read_outputs()
        arrays = {name: values.copy() for name, values in self._arrays.items()}
        return arrays | {"begun": self._first.copy(), "written": self._written}

    def restore(self, state: State) -> None:
        for name, values in self._arrays.items():
            copy_array(values, state, name)
        copy_array(self._first, state, "begun")
        self._written = int(state["written"])
        self._actions.clear()
        self._outputs.clear()
