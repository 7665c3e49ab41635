"""Every step of some rows, kept so that a life can be seen again once it is over.

A tape holds the latest `steps` moments of the first rows in arrays that are written in turn. It changes nothing in
the town, and its state goes into a checkpoint: a life that was interrupted is whole when it ends.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from townlet.contract.state import State
from townlet.errors import TownletError
from townlet.sim.compiled import compiled
from townlet.sim.diary import take_over
from townlet.sim.state import array
from townlet.sim.town import Town

WATCHED: Final = 4
STEPS: Final = 1024  # of a longer life the last ones are kept
STEP: Final = ("actions", "outputs", "mask", "reward", "components")
MOMENT: Final[dict[str, str]] = {"cell": "u4", "age": "u4", "hour": "u2", "progress": "u2", "using": "u2"}


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
        if any(len(getattr(one, name)) != steps + 1 for name in (*MOMENT, "meters")):
            raise TownletError("a recorded life has moments of different number", "leave it out: it is damaged")
        return one


def note_rows(
    place: int,
    moment: tuple[NDArray[Any], ...],
    step: tuple[NDArray[Any], ...],
    mask_before: NDArray[np.bool_],
    kept_moment: tuple[NDArray[Any], ...],
    kept_step: tuple[NDArray[Any], ...],
) -> None:
    """Write one step of the watched rows into a place of the tape, row by row: made to be compiled."""
    cell, age, hour, progress, using, meters = moment
    actions, outputs, mask, reward, components = step
    to_cell, to_age, to_hour, to_progress, to_using, to_meters = kept_moment
    to_actions, to_outputs, to_mask, to_reward, to_components = kept_step
    for row in range(len(mask_before)):
        to_cell[place, row], to_age[place, row], to_hour[place, row] = cell[row], age[row], hour[row]
        to_progress[place, row], to_using[place, row] = progress[row], using[row]
        to_actions[place, row], to_reward[place, row] = actions[row], reward[row]
        for m in range(meters.shape[1]):
            to_meters[place, row, m] = meters[row, m]
        for k in range(mask.shape[1]):
            to_outputs[place, row, k] = outputs[row, k]
            to_mask[place, row, k] = mask_before[row, k]
            mask_before[row, k] = mask[row, k]
        for r in range(components.shape[1]):
            to_components[place, row, r] = components[row, r]


class Tape:
    """The latest moments of the first rows. Call `note` after every step, `life` for a row that ended in it."""

    def __init__(self, town: Town, watched: int = WATCHED, steps: int = STEPS) -> None:
        self._town, self._engine = town, town.engine
        self.watched = rows = min(watched, town.rows)
        world, self._steps = town.world, min(steps, int(town.world.tables.max_steps)) + 1
        count, rewards, k = len(world.meters), len(world.rewards), len(world.actions)
        shape = self._steps, rows
        self._kept: dict[str, NDArray[Any]] = {
            **{name: np.zeros(shape, kind) for name, kind in MOMENT.items()},
            "meters": np.zeros((*shape, count), np.float32),
            "actions": np.zeros(shape, np.int16),
            "outputs": np.zeros((*shape, k), np.float32),
            "mask": np.zeros((*shape, k), np.bool_),
            "reward": np.zeros(shape, np.float32),
            "components": np.zeros((*shape, rewards), np.float32),
            "begun": np.zeros(rows, np.int64),  # which of them was the first of each row's life
        }
        self._written = 0  # moments so far
        self._live = self._engine.name == "numba"  # it writes into the same arrays for ever
        self._note = compiled(note_rows)
        self._moment, self._result = self._look()
        self._into = tuple(self._kept[name] for name in (*MOMENT, "meters")), tuple(self._kept[n] for n in STEP)
        self._mask_before = np.zeros((rows, k), np.bool_)
        self.begin()

    def begin(self) -> None:
        """The present moment is the first of every row's life, as far as is known."""
        self._kept["begun"][...] = self._written
        k = self._mask_before.shape[1]
        self.note(np.zeros(self.watched, np.int64), np.zeros((self.watched, k), np.float32))

    def _look(self) -> tuple[tuple[NDArray[Any], ...], tuple[NDArray[Any], ...]]:
        """The present moment, and what came of the last step: mask, reward and its components."""
        engine, rows = self._engine, self.watched
        seen = engine.peek(*MOMENT, "meters")
        came = (engine.mask, engine.reward, engine.components)
        return tuple(seen[name] for name in (*MOMENT, "meters")), tuple(array(part[:rows]) for part in came)

    def note(self, actions: Any, outputs: Any) -> None:
        """Keep the last step: the actions [N] that led here, and what stood behind them [≥ watched, K]."""
        if not self._live:
            self._moment, self._result = self._look()
        place = self._written % self._steps
        step = array(actions), array(outputs), *self._result
        self._note(place, self._moment, step, self._mask_before, *self._into)
        self._written += 1

    def life(self, row: int) -> Recording:
        """The life of a watched row that ended in the last step, and its next one begins."""
        kept = self._kept
        last = self._written - 1  # where the first moment of the next life stands, beside the last step
        first = max(int(kept["begun"][row]), last - self._steps + 1)
        moments = np.arange(first, last) % self._steps
        steps = np.arange(first + 1, last + 1) % self._steps
        final = self._engine.final_state(np.array([row]), *MOMENT, "meters", "cell_of")
        lived = {name: np.concatenate([kept[name][moments, row], final[name]]) for name in (*MOMENT, "meters")}
        did = {name: kept[name][steps, row] for name in STEP}
        kept["begun"][row] = last
        return Recording(**lived, **did, cell_of=final["cell_of"][0])

    def state(self) -> State:
        """All moments, and where the lives begin."""
        kept = {name: kept.copy() for name, kept in self._kept.items()}
        return kept | {"mask_before": self._mask_before.copy(), "written": self._written}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        for name, kept in self._kept.items():
            take_over(kept, state, name)
        take_over(self._mask_before, state, "mask_before")
        self._written = int(state["written"])
