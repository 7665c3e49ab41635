"""What people do in a town: a diary over some rows for metrics, and the sums of whole lives for evaluations.

Both read what was really used (`Engine.used`) after every step, and change nothing in the town.
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
COUNTS: Final = ("uses", "transitions", "cells", "meters")  # what a diary hands out; the rest belongs to the rows


def workplaces(world: World) -> NDArray[np.bool_]:
    """Which affordances are work [A]: a whole session leaves more in the purse than it takes."""
    currency = world.spec.currency
    return np.array([currency is not None and net_income(a, currency) > 0 for a in world.spec.affordances], np.bool_)


def copy_array(into: NDArray[Any], state: State, name: str) -> None:
    """Copy a field of a state into an array of the same shape."""
    given = to_numpy(state[name])
    if given.shape != into.shape:
        what = f"the field '{name}' has shape {given.shape} and here it is {into.shape}"
        raise TownletError(what, "take a state of the same world and number of rows")
    into[...] = given


class UsageCounts(NamedTuple):
    """What was noted between two looks at the diary."""

    steps: int  # noted: watched rows × steps
    uses: Counts  # [A] steps in which each affordance was really used
    transitions: Counts  # [A, A] sessions begun, by the one before in the same life (from) and by their own (to)
    cells: Counts  # [C] steps that ended on each cell; an ended row stands on the first cell of its next life
    meters: NDArray[np.float64]  # [M] mean; zeros when nothing was noted


def count_rows(
    used: Counts,
    cell: NDArray[Any],
    meters: NDArray[Any],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    last: Counts,
    under_way: Counts,
    uses: Counts,
    transitions: Counts,
    cells: Counts,
    sums: NDArray[np.float64],
) -> None:
    """Add one step of all rows to what a diary keeps, row by row: made to be compiled."""
    none = len(uses) - 1
    for row in range(len(last)):
        place = used[row] >> 1
        uses[place] += 1
        cells[cell[row]] += 1
        if place != none and place != under_way[row]:  # a session begins
            transitions[last[row] * none + place] += 1
            last[row] = place
        under_way[row] = none if used[row] & 1 else place
        if terminated[row] or truncated[row]:
            last[row] = under_way[row] = none
    for m in range(len(sums)):
        total = np.float64(0)  # of the step first: a sum over many steps would lose digits of each row
        for row in range(len(last)):
            total += meters[row, m]
        sums[m] += total


class UsageCounter:
    """Counts what the first `watched` rows do. Call `note` after every step, `take` whenever the counts are wanted."""

    def __init__(self, town: Town, watched: int = 256) -> None:
        self._engine = town.engine
        self.watched = min(watched, town.rows)
        town.track_usage(self.watched)
        places, cells = len(town.world.affordances), town.world.tables.next_cell.shape[1]
        self._note = jit_if_available(count_rows)
        self._live = self._look() if town.engine.name == "numba" else ()  # it writes into the same arrays for ever
        self._kept: dict[str, NDArray[Any]] = {
            "last": np.full(self.watched, places, np.int64),  # affordance used last in this life, or A
            "under_way": np.full(self.watched, places, np.int64),  # affordance of a session that is not over, or A
            "uses": np.zeros(places + 1, np.int64),  # the last: steps without use
            "transitions": np.zeros((places + 1) * places, np.int64),  # flat; the last `from`: first use of a life
            "cells": np.zeros(cells, np.int64),
            "meters": np.zeros(len(town.world.meters), np.float64),  # sums
        }

    def note(self) -> None:
        """Write down the last step."""
        self._note(self._engine.used, *(self._live or self._look()), *self._kept.values())

    def _look(self) -> tuple[NDArray[Any], ...]:
        """Where the rows are, their meters, and whether they ended."""
        seen = self._engine.peek("cell", "meters")
        return seen["cell"], seen["meters"], to_numpy(self._engine.terminated), to_numpy(self._engine.truncated)

    def take(self) -> UsageCounts:
        """The counts since they were last taken; they begin at zero again."""
        uses, transitions, cells, meters = (self._kept[name].copy() for name in COUNTS)
        for name in COUNTS:
            self._kept[name][...] = 0
        steps = int(uses.sum())
        ways = transitions.reshape(len(uses), -1)
        return UsageCounts(steps, uses[:-1], ways[:-1], cells, meters / max(steps, 1))

    def state(self) -> State:
        """The counts, and what each watched row used last."""
        return {name: kept.copy() for name, kept in self._kept.items()}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken. Where other rows were watched, they count as just begun."""
        for name in COUNTS:
            copy_array(self._kept[name], state, name)
        for name in self._kept.keys() - set(COUNTS):
            given = to_numpy(state[name])[: self.watched]
            self._kept[name][: len(given)] = given


class EndedLifetimes(NamedTuple):
    """Lives that ended in one step of all rows, as columns; k may be 0."""

    rows: Counts  # [k] ascending
    uses: Counts  # [k, A] steps in which each affordance was really used
    earned: NDArray[np.float64]  # [k] what came into the purse, in the unit of the currency; 0 without one
    works: Counts  # [k] of the uses, those of a place that pays


class LifetimeStats:
    """Sums over every row's present life. Make it after a reset, call `note` after every step."""

    def __init__(self, town: Town) -> None:
        self._engine, self._world = town.engine, town.world
        town.track_usage(town.rows)
        self._work = workplaces(town.world)
        self._uses = np.zeros((town.rows, len(town.world.affordances)), np.int64)
        self._earned = np.zeros(town.rows, np.float64)
        self._purse = np.zeros(town.rows, np.float32)
        self._purse[...] = self._money()

    def _money(self) -> NDArray[Any]:
        if self._world.spec.currency is None:
            return np.zeros_like(self._purse)
        return self._engine.peek("meters")["meters"][:, self._world.tables.currency]

    def note(self) -> EndedLifetimes:
        """Add the last step; gives the lives that it ended and begins their sums anew."""
        used = self._engine.used
        active = np.flatnonzero(used < 2 * len(self._work))
        self._uses[active, used[active] >> 1] += 1
        over = np.flatnonzero(to_numpy(self._engine.terminated | self._engine.truncated))
        now = np.array(self._money())
        last = now.copy()
        if len(over) and self._world.spec.currency is not None:
            last[over] = self._engine.final_meters(over)[:, self._world.tables.currency]
        self._earned += np.maximum(last - self._purse, 0)
        self._purse = now
        uses = self._uses[over]
        lived = EndedLifetimes(over, uses, self._earned[over], uses[:, self._work].sum(axis=1))
        self._uses[over] = 0
        self._earned[over] = 0
        return lived

    def _fields(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, f"_{name}") for name in ("uses", "earned", "purse")}

    def state(self) -> State:
        """The sums of all rows so far."""
        return {name: kept.copy() for name, kept in self._fields().items()}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        for name, kept in self._fields().items():
            copy_array(kept, state, name)
