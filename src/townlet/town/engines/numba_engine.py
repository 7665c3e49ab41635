"""The Numba engine: rows in NumPy arrays, stepped by compiled kernels on one or more threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.town import state as town_state
from townlet.town.engines import numba_kernel
from townlet.town.engines.numba_lowering import NativeTables
from townlet.town.state import FIELDS, FRACTION, StartsSpec, State
from townlet.town.world.tables import World

INT64 = np.dtype(np.int64)
ROWS_PER_THREAD = 4096  # with fewer, another thread does not pay off


class NumbaEngine:
    """N rows of one world on the CPU. All arrays are written in place and reused at every step."""

    name = "numba"

    def __init__(
        self, world: World, rows: int, *, autoreset: bool = True, threads: int | None = None,
        starts: StartsSpec | None = None,
    ) -> None:  # fmt: skip
        self.world, self.rows, self.autoreset = world, rows, autoreset
        self.threads = max(1, min(threads or os.cpu_count() or 1, rows // ROWS_PER_THREAD))
        self._pool: ThreadPoolExecutor | None = None
        self._pool_pid = 0  # the process that owns the threads
        self._w = NativeTables(world.tables)
        self._starts = town_state.start_table(world, starts)
        self._explores = bool(self._starts[FRACTION].any())
        self._key = 0
        self._state = np.zeros(rows, town_state.record_dtype(len(world.meters)))
        self._final = self._state.copy()
        start = town_state.initial_state(world, rows)
        self._layout = (start["kind_at"], start["cell_of"])
        self._final_kind_at: NDArray[Any] = start["kind_at"].copy() if world.tables.shuffled else start["kind_at"]
        self._mix = start["reward_mix"]
        self._actions = np.zeros(rows, np.int64)
        self.used = np.zeros(0, np.int64)
        self._obs = np.zeros((rows, world.layout.size), np.float32)
        self._obs_is_old = False  # after a step that wrote the observations elsewhere
        self.mask = np.zeros((rows, len(world.actions)), np.bool_)
        self.reward = np.zeros(rows, np.float32)
        self.components = np.zeros((rows, len(world.rewards)), np.float32)
        self.terminated = np.zeros(rows, np.bool_)
        self.truncated = np.zeros(rows, np.bool_)
        self._inputs = (self._state, self._final, *self._layout, self._final_kind_at, self._w)
        self._outputs = (self.mask, self.reward, self.components, self.terminated, self.truncated)
        bounds = np.linspace(0, rows, self.threads + 1).astype(int).tolist()
        self._chunks = list(pairwise(bounds))
        self.restore(start)

    @property
    def obs(self) -> NDArray[np.float32]:
        if self._obs_is_old:
            self._observe_all()
        return self._obs

    def reset(self, key: int) -> None:
        self._key = key
        self._state["episode"] = 0
        self._start_episodes(np.arange(self.rows))

    def reset_rows(self, rows: NDArray[np.bool_]) -> None:
        chosen = np.flatnonzero(rows)
        self._state["episode"][chosen] += 1
        self._start_episodes(chosen)

    def _start_episodes(self, rows: NDArray[np.int64]) -> None:
        self._reset(rows)
        for output in (self.reward, self.components, self.terminated, self.truncated):
            output[rows] = 0

    def _reset(self, rows: NDArray[np.int64]) -> None:
        """Put rows into the first state of their current episode."""
        numba_kernel.reset_rows(self._state, *self._layout, self._w, self._key, rows, self._obs, self.mask)
        self._randomize(rows, self._obs)

    def _randomize(self, rows: NDArray[np.int64], obs: NDArray[np.float32]) -> None:
        """Apply exploring starts, if any, to rows that have just been reset."""
        if self._explores and len(rows):
            args = (self._state, self._layout[0], self._w, self._starts, self._key, rows, obs, self.mask)
            numba_kernel.randomize_rows(*args)

    def step(
        self, actions: NDArray[np.int64], obs_out: NDArray[np.float32] | None = None, *, reset_ended: bool = False
    ) -> None:
        if actions.dtype != INT64 or actions.shape != (self.rows,) or not actions.flags.carray:
            town_state.check_actions(actions, self.rows)
            self._actions[:] = actions  # kernels are compiled for one memory layout
            actions = self._actions
        randomized = self._ended_rows() if self._explores and reset_ended and not self.autoreset else None
        obs, new_obs = (self._obs, self._obs_is_old) if obs_out is None else (obs_out, True)
        args = (actions, reset_ended, obs, new_obs)
        if self.threads == 1:
            invalid_row = self._step_chunk(*args, 0, self.rows)
        else:
            if self._pool is None or self._pool_pid != os.getpid():  # a fork inherits the object but not its threads
                self._pool, self._pool_pid = ThreadPoolExecutor(self.threads - 1, "town"), os.getpid()
            others = [self._pool.submit(self._step_chunk, *args, *chunk) for chunk in self._chunks[1:]]
            invalid_row = self._step_chunk(*args, *self._chunks[0])
            for other in others:
                other.result()
        if invalid_row >= 0:
            what = f"row {invalid_row} has the unknown action {actions[invalid_row]}"
            raise TownletError(what, f"give integers from 0 to {len(self.world.actions) - 1}")
        self._obs_is_old = obs_out is not None
        if self._explores and self.autoreset:
            randomized = self._ended_rows()
        if randomized is not None:
            self._randomize(randomized, obs)

    def _step_chunk(
        self, actions: NDArray[np.int64], reset_ended: bool, obs: NDArray[np.float32], new_obs: bool,
        first: int, last: int,
    ) -> int:  # fmt: skip
        args = (*self._inputs, self._key, self._mix, self.autoreset, reset_ended, actions, obs, *self._outputs)
        invalid_row: int = numba_kernel.step_rows(*args, self.used, new_obs, first, last)
        return invalid_row

    def _ended_rows(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.terminated | self.truncated)

    def track_usage(self, n_rows: int) -> None:
        self.used = np.full(max(n_rows, len(self.used)), 2 * self.world.tables.n_affordances, np.int64)

    def final_obs(self, rows: NDArray[np.int64] | None = None) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        if rows is None:
            rows = self._ended_rows()
        index = np.asarray(rows, np.int64)
        if self.autoreset:
            return self._observe(self._final, self._final_kind_at, index)
        return self._observe(self._state, self._layout[0], index)

    def _observe(
        self, state: NDArray[Any], kind_at: NDArray[Any], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        obs = np.empty((len(rows), self._obs.shape[1]), np.float32)
        mask = np.empty((len(rows), self.mask.shape[1]), np.bool_)
        numba_kernel.observe_rows(state, kind_at, self._w, rows, obs, mask)
        return obs, mask

    def final_state(self, rows: NDArray[np.int64], *names: str) -> State:
        state, kind_at = (self._final, self._final_kind_at) if self.autoreset else (self._state, self._layout[0])
        layout_rows = rows if self.world.tables.shuffled else rows * 0
        return {
            n: town_state.cells_of_affordances(kind_at[layout_rows], self.world) if n == "cell_of" else state[n][rows]
            for n in names
        }

    def final_causes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        causes = np.empty(len(rows), np.int64)
        numba_kernel.find_causes(self._final if self.autoreset else self._state, self._w, rows, causes)
        return causes

    def peek(self, *names: str) -> State:
        kind_at, cell_of = self._layout
        others: State = {"reward_mix": self._mix, "kind_at": kind_at, "cell_of": cell_of}
        return {
            name: others[name] if name in others else self._state[name]
            for name in names or ("meters", *FIELDS, *others)
        }

    def records(self, n_rows: int) -> NDArray[np.void]:
        return self._state[:n_rows]

    def state(self) -> State:
        ends: State = {"terminated": self.terminated, "truncated": self.truncated, "key": np.array(self._key, np.int64)}
        return {name: values.copy() for name, values in (self.peek() | ends).items()}

    def restore(self, state: State) -> None:
        town_state.check_state(self.world, self.rows, state)
        fields = self.peek() | {"terminated": self.terminated, "truncated": self.truncated}
        for name, values in state.items():
            if name == "key":
                self._key = int(values)
            else:
                fields[name][...] = values
        if self.autoreset:  # final observations are not part of a state
            self.terminated[:] = self.truncated[:] = False
        all_rows = np.arange(self.rows)
        layout_rows = all_rows if self.world.tables.shuffled else all_rows * 0
        fields["here"][...] = fields["kind_at"][layout_rows, fields["cell"]]
        self._observe_all()

    def _observe_all(self) -> None:
        all_rows = np.arange(self.rows)
        numba_kernel.observe_rows(self._state, self._layout[0], self._w, all_rows, self._obs, self.mask)
        self._obs_is_old = False

    def set(self, settings: State, rows: Any = None) -> None:
        chosen = town_state.row_indices(rows, self.rows)
        town_state.check_settings(self.world, len(chosen), settings)
        fields = self.peek(*settings)
        for name, values in settings.items():
            fields[name][chosen] = values
        if "active" not in settings:
            return  # observation and mask do not depend on the others
        if self._explores:  # an episode that has not stepped yet restarts with the meters now active
            self._reset(chosen[self._state["age"][chosen] == 0])
        if self.world.tables.mask_unaffordable:
            self._obs[chosen], self.mask[chosen] = self._observe(self._state, self._layout[0], chosen)

    def close(self) -> None:
        if self._pool is not None and self._pool_pid == os.getpid():
            self._pool.shutdown()
        self._pool = None

    def __getstate__(self) -> dict[str, Any]:
        """Copies start their own threads."""
        return self.__dict__ | {"_pool": None}
