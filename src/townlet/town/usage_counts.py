"""How affordances are used: counts over all rows for metrics, and totals per episode for evaluations.

Both read `Engine.used` after every step and do not affect the town.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.interfaces.state import State
from townlet.jit import jit_if_available
from townlet.town.env import Town
from townlet.town.state import to_numpy
from townlet.town.world.sessions import net_income
from townlet.town.world.tables import World

Counts = NDArray[np.int64]
COUNTS: Final = ("uses", "transitions", "cells", "meters")  # arrays of `UsageCounter` that `flush` returns and clears


def workplaces(world: World) -> NDArray[np.bool_]:
    """Which affordances are work [A]: a full session earns more than it costs."""
    currency = world.spec.currency
    return np.array([currency is not None and net_income(a, currency) > 0 for a in world.spec.affordances], np.bool_)


def copy_array(into: NDArray[Any], state: State, name: str) -> None:
    """Copy a field of a state into an array of the same shape."""
    given = to_numpy(state[name])
    if given.shape != into.shape:
        what = f"the field '{name}' has shape {given.shape}, but {into.shape} is needed"
        raise TownletError(what, "use a state of the same world and number of rows")
    into[...] = given


class UsageCounts(NamedTuple):
    """Usage of affordances between two calls of `UsageCounter.flush`."""

    steps: int  # rows × steps
    uses: Counts  # [A] steps in which each affordance was used
    transitions: Counts  # [A, A] sessions started, by affordance of the episode's previous session and of this one
    cells: Counts  # [C] steps that ended on each cell; an ended row is on the first cell of its next episode
    meters: NDArray[np.float64]  # [M] means; zeros if there were no steps


def count_rows(
    used: Counts, cell: NDArray[Any], meters: NDArray[Any], terminated: NDArray[np.bool_], truncated: NDArray[np.bool_],
    last: Counts, current: Counts, uses: Counts, transitions: Counts, cells: Counts, sums: NDArray[np.float64],
) -> None:  # fmt: skip
    """Add one step of all rows to the counts; compiled where Numba is installed."""
    none = len(uses) - 1
    for row in range(len(last)):
        affordance = used[row] >> 1
        uses[affordance] += 1
        cells[cell[row]] += 1
        if affordance != none and affordance != current[row]:  # a session starts
            transitions[last[row] * none + affordance] += 1
            last[row] = affordance
        current[row] = none if used[row] & 1 else affordance  # odd: the last tick of a session
        if terminated[row] or truncated[row]:
            last[row] = current[row] = none
    for m in range(len(sums)):
        total = np.float64(0)  # sum over rows first: added to the large total one by one, rows would lose digits
        for row in range(len(last)):
            total += meters[row, m]
        sums[m] += total


class UsageCounter:
    """Counts uses, transitions and visited cells of all rows. Call `update` after every step, `flush` to read."""

    def __init__(self, town: Town) -> None:
        self._engine = town.engine
        town.engine.track_usage(town.rows)
        n, cells = len(town.world.affordances), town.world.tables.next_cell.shape[1]
        self._count = jit_if_available(count_rows)
        self._views = self._read() if town.engine.name == "numba" else ()  # this engine reuses its arrays
        self._arrays: dict[str, NDArray[Any]] = {
            "last": np.full(town.rows, n, np.int64),  # affordance of the episode's last session; n if none
            "under_way": np.full(town.rows, n, np.int64),  # affordance of an unfinished session; n if none
            "uses": np.zeros(n + 1, np.int64),  # the last entry: steps without use
            "transitions": np.zeros((n + 1) * n, np.int64),  # [n + 1, n], flat; from n: first session of an episode
            "cells": np.zeros(cells, np.int64),
            "meters": np.zeros(len(town.world.meters), np.float64),  # sums
        }

    def update(self) -> None:
        """Add the last step."""
        self._count(self._engine.used, *(self._views or self._read()), *self._arrays.values())

    def _read(self) -> tuple[NDArray[Any], ...]:
        state = self._engine.peek("cell", "meters")
        return state["cell"], state["meters"], to_numpy(self._engine.terminated), to_numpy(self._engine.truncated)

    def flush(self) -> UsageCounts:
        """Return the counts since the last flush and clear them."""
        uses, transitions, cells, meters = (self._arrays[name].copy() for name in COUNTS)
        for name in COUNTS:
            self._arrays[name][...] = 0
        steps = int(uses.sum())
        return UsageCounts(steps, uses[:-1], transitions.reshape(len(uses), -1)[:-1], cells, meters / max(steps, 1))

    def state(self) -> State:
        return {name: values.copy() for name, values in self._arrays.items()}

    def restore(self, state: State) -> None:
        """Continue from `state`; rows that it lacks count as just started."""
        for name, values in self._arrays.items():
            if name in COUNTS:
                copy_array(values, state, name)
            else:
                given = to_numpy(state[name])[: len(values)]
                values[: len(given)] = given


class EndedLifetimes(NamedTuple):
    """Totals of the k episodes that ended in one step, as columns."""

    rows: Counts  # [k] ascending
    uses: Counts  # [k, A] steps in which each affordance was used
    earned: NDArray[np.float64]  # [k] in the unit of the currency meter; 0 without one


class LifetimeStats:
    """Totals over the current episode of every row. Create it after a reset, call `update` after every step."""

    def __init__(self, town: Town) -> None:
        self._engine, self._world = town.engine, town.world
        town.engine.track_usage(town.rows)
        self._uses = np.zeros((town.rows, len(town.world.affordances)), np.int64)
        self._earned = np.zeros(town.rows, np.float64)
        self._money_before = np.array(self._money())  # after the last step

    def _money(self) -> NDArray[Any]:
        if self._world.spec.currency is None:
            return np.zeros(self._engine.rows, np.float32)
        return self._engine.peek("meters")["meters"][:, self._world.tables.currency]

    def update(self) -> EndedLifetimes:
        """Add the last step; returns the totals of the episodes that it ended and clears them."""
        used = self._engine.used
        users = np.flatnonzero(used < 2 * self._uses.shape[1])  # rows that used an affordance
        self._uses[users, used[users] >> 1] += 1
        ended = np.flatnonzero(to_numpy(self._engine.terminated | self._engine.truncated))
        money = np.array(self._money())
        last = money.copy()
        if len(ended) and self._world.spec.currency is not None:
            last[ended] = self._engine.final_state(ended, "meters")["meters"][:, self._world.tables.currency]
        self._earned += np.maximum(last - self._money_before, 0)
        self._money_before = money
        totals = EndedLifetimes(ended, self._uses[ended], self._earned[ended])
        self._uses[ended] = 0
        self._earned[ended] = 0
        return totals
