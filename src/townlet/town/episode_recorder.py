"""Every step of some rows, kept so that a life can be seen again once it is over.

A tape holds the latest `steps` moments of the first rows in arrays that are written in turn. It changes nothing in
the town, and its state goes into a checkpoint: a life that was interrupted is whole when it ends.
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
STEPS: Final = 1024  # of a longer life the last ones are kept
UNREAD, UNREAD_ROWS = 32, 2**17  # acts that wait to be read: so many, and fewer where a step has many rows
STEP: Final = ("actions", "outputs", "reward", "components")
FRAME_FIELDS: Final[dict[str, str]] = {"cell": "u4", "age": "u4", "hour": "u2", "progress": "u2", "using": "u2"}


@dataclass(frozen=True)
class Recording:
    """One life of one row, or its end: T steps between T + 1 moments."""

    cell: NDArray[np.uint32]  # [T + 1]
    age: NDArray[np.uint32]  # [T + 1]
    hour: NDArray[np.uint16]  # [T + 1]
    progress: NDArray[np.uint16]  # [T + 1]
    using: NDArray[np.uint16]  # [T + 1]
    meters: NDArray[np.float32]  # [T + 1, M]
    actions: NDArray[np.int16]  # [T], each led to the moment after it
    outputs: NDArray[np.float32]  # [T, K], what stood behind it: values, or probabilities
    mask: NDArray[np.bool_]  # [T, K], what was possible
    reward: NDArray[np.float32]  # [T]
    components: NDArray[np.float32]  # [T, R]
    cell_of: NDArray[np.uint32]  # [A], where the places were

    def __len__(self) -> int:
        return len(self.actions)

    def to_bytes(self) -> bytes:
        """For a file or another process."""
        return save({f.name: np.ascontiguousarray(getattr(self, f.name)) for f in fields(self)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Recording:
        """What `to_bytes` gave; refuses all else."""
        try:
            found = load(data)
            one = cls(**found)
        except (SafetensorError, TypeError, KeyError, ValueError):
            raise TownletError("this is no recorded life", "leave it out: it is damaged") from None
        steps = len(one.actions)
        if any(len(getattr(one, name)) != steps + 1 for name in (*FRAME_FIELDS, "meters")):
            raise TownletError("a recorded life has moments of different number", "leave it out: it is damaged")
        return one


def write_frame(
    place: int,
    state: NDArray[np.void],
    mask: NDArray[np.bool_],
    reward: NDArray[np.float32],
    components: NDArray[np.float32],
    to_state: NDArray[np.void],
    to_mask: NDArray[np.bool_],
    to_reward: NDArray[np.float32],
    to_components: NDArray[np.float32],
) -> None:
    """Write what came of one step into a place of the tape, row by row: made to be compiled."""
    for row in range(to_state.shape[1]):
        to_state[place, row], to_reward[place, row] = state[row], reward[row]
        for k in range(mask.shape[1]):
            to_mask[place, row, k] = mask[row, k]
        for r in range(components.shape[1]):
            to_components[place, row, r] = components[row, r]


def empty_arrays(world: World, *shape: int) -> dict[str, NDArray[Any]]:
    """Zeros for so many moments and steps, by the names of a recording."""
    k = len(world.actions)
    return {
        **{name: np.zeros(shape, kind) for name, kind in FRAME_FIELDS.items()},
        "meters": np.zeros((*shape, len(world.meters)), np.float32),
        "actions": np.zeros(shape, np.int16),
        "outputs": np.zeros((*shape, k), np.float32),
        "mask": np.zeros((*shape, k), np.bool_),
        "reward": np.zeros(shape, np.float32),
        "components": np.zeros((*shape, len(world.rewards)), np.float32),
    }


class EpisodeRecorder:
    """The latest moments of the first rows. Call `note` after every step, `life` for a row that ended in it.

    `outputs` reads what stood behind some acts [T, rows, K]. It is asked for many at a time, since at every single
    step it would take longer than all the rest.
    """

    def __init__(
        self,
        town: Town,
        outputs: Callable[[Sequence[Tensor], int], Tensor],
        watched: int = RECORDED_ROWS,
        steps: int = STEPS,
    ) -> None:
        self._engine, self._outputs = town.engine, outputs
        self.watched = rows = min(watched, town.rows)
        world, self._steps = town.world, min(steps, int(town.world.tables.max_steps)) + 1
        moments = np.zeros((self._steps, rows), record_dtype(len(world.meters)))
        self._begun = np.zeros(rows, np.int64)  # which moment was the first of each row's life
        # A place holds a moment with its mask, and the step that led to it.
        self._kept = empty_arrays(world, self._steps, rows) | {
            name: moments[name] for name in (*FRAME_FIELDS, "meters")
        }
        self._into = (moments, *(self._kept[name] for name in ("mask", "reward", "components")))
        self._written = 0  # moments so far
        self._acts: list[Tensor] = []  # that led to the latest of them, not yet read,
        self._behind: list[Tensor] = []  # and what stood behind each
        self._unread = max(1, min(UNREAD, UNREAD_ROWS // town.rows, self._steps))
        self._note = jit_if_available(write_frame)
        self._live = self._look() if town.engine.name == "numba" else ()  # it writes into the same arrays for ever
        self._write()  # the present moment is the first of every row's life, as far as is known

    def _look(self) -> tuple[NDArray[Any], ...]:
        """The present moment with its mask, and what the last step brought: reward and its components."""
        e, rows = self._engine, self.watched
        return e.records(rows), *(to_numpy(part[:rows]) for part in (e.mask, e.reward, e.components))

    def note(self, actions: Tensor, behind: Tensor) -> None:
        """Keep the last step: the actions [N] that led here and what stood behind them, tensors that nobody changes."""
        self._acts.append(actions)
        self._behind.append(behind)
        self._write()
        if len(self._acts) == self._unread:
            self._read()

    def _write(self) -> None:
        self._note(self._written % self._steps, *(self._live or self._look()), *self._into)
        self._written += 1

    def _read(self) -> None:
        """Read the acts that wait."""
        if not self._acts:
            return
        places = np.arange(self._written - len(self._acts), self._written) % self._steps
        self._kept["actions"][places] = to_numpy(torch.stack([actions[: self.watched] for actions in self._acts]))
        self._kept["outputs"][places] = to_numpy(self._outputs(self._behind, self.watched))
        self._acts.clear()
        self._behind.clear()

    def life(self, row: int) -> Recording:
        """The life of a watched row that ended in the last step, and its next one begins."""
        self._read()
        kept = self._kept
        last = self._written - 1  # where the first moment of the next life stands, beside the last step
        first = max(int(self._begun[row]), last - self._steps + 1)
        moments = np.arange(first, last) % self._steps
        steps = np.arange(first + 1, last + 1) % self._steps
        final = self._engine.final_state(np.array([row]), *FRAME_FIELDS, "meters", "cell_of")
        lived = {name: np.concatenate([kept[name][moments, row], final[name]]) for name in (*FRAME_FIELDS, "meters")}
        did = {name: kept[name][steps, row] for name in STEP}
        self._begun[row] = last
        return Recording(**lived, **did, mask=kept["mask"][moments, row], cell_of=final["cell_of"][0])

    def state(self) -> State:
        """All moments, and where the lives begin."""
        self._read()
        kept = {name: kept.copy() for name, kept in self._kept.items()}
        return kept | {"begun": self._begun.copy(), "written": self._written}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        for name, kept in self._kept.items():
            copy_array(kept, state, name)
        copy_array(self._begun, state, "begun")
        self._written = int(state["written"])
        self._acts.clear()
        self._behind.clear()
