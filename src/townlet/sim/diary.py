"""What people do in a town: a diary over some rows for metrics, and the sums of whole lives for evaluations.

Both read what was really used (`Town.used`) after every step, and change nothing in the town.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from townlet.contract.state import State
from townlet.errors import TownletError
from townlet.sim.state import array
from townlet.sim.town import Town
from townlet.world.sessions import net_income
from townlet.world.tables import World

Counts = NDArray[np.int64]


def workplaces(world: World) -> NDArray[np.bool_]:
    """Which affordances are work [A]: a whole session leaves more in the purse than it takes."""
    currency = world.spec.currency
    return np.array([currency is not None and net_income(a, currency) > 0 for a in world.spec.affordances], np.bool_)


def take_over(into: NDArray[Any], state: State, name: str) -> None:
    """Copy a field of a state into an array of the same shape."""
    given = array(state[name])
    if given.shape != into.shape:
        what = f"the field '{name}' has shape {given.shape} and here it is {into.shape}"
        raise TownletError(what, "take a state of the same world and number of rows")
    into[...] = given


class Page(NamedTuple):
    """What was noted between two looks at the diary."""

    steps: int  # noted: watched rows × steps
    uses: Counts  # [A] steps in which each affordance was really used
    transitions: Counts  # [A, A] sessions begun, by the one before in the same life (from) and by their own (to)
    cells: Counts  # [C] steps that ended on each cell; an ended row stands on the first cell of its next life
    meters: NDArray[np.float64]  # [M] mean; zeros when nothing was noted


class Diary:
    """Counts what the first `watched` rows do. Call `note` after every step, `take` whenever the counts are wanted."""

    def __init__(self, town: Town, watched: int = 256) -> None:
        self._town, self._engine = town, town.engine
        self.watched = min(watched, town.rows)
        town.watch(self.watched)
        places, cells = len(town.world.affordances), town.world.tables.next_cell.shape[1]
        self._places = places
        self._rows = slice(0, self.watched)
        self._last = np.full(self.watched, places, np.int64)  # affordance used last in this life, or A
        self._under_way = self._last.copy()  # affordance of a session that is not over, or A
        self._steps = np.zeros((), np.int64)
        self._uses = np.zeros(places + 1, np.int64)  # the last: steps without use
        self._cells = np.zeros(cells, np.int64)
        self._transitions = np.zeros((places + 1) * places, np.int64)  # flat; the last `from`: first use of a life
        self._meters = np.zeros(len(town.world.meters), np.float64)

    def note(self) -> None:
        """Write down the last step."""
        engine, rows, last, none = self._engine, self._rows, self._last, self._places
        seen = engine.peek("cell", "meters")
        used = self._town.used[rows]
        place = used >> 1
        self._steps += self.watched
        self._uses += np.bincount(place, minlength=none + 1)
        self._cells += np.bincount(seen["cell"][rows], minlength=len(self._cells))
        self._meters += seen["meters"][rows].sum(axis=0, dtype=np.float64)
        began = np.flatnonzero((place != self._under_way) & (place < none))
        if len(began):
            way = last[began] * none + place[began]
            self._transitions += np.bincount(way, minlength=len(self._transitions))
            last[began] = place[began]
        self._under_way[:] = np.where(used & 1, none, place)
        over = array(engine.terminated[rows] | engine.truncated[rows])
        if over.any():
            last[over] = self._under_way[over] = none

    def take(self) -> Page:
        """The counts since they were last taken; they begin at zero again."""
        steps = int(self._steps)
        transitions = self._transitions.reshape(-1, self._places)[:-1].copy()
        page = Page(steps, self._uses[:-1].copy(), transitions, self._cells.copy(), self._meters / max(steps, 1))
        for kept in (self._steps, self._uses, self._transitions, self._cells, self._meters):
            kept[...] = 0
        return page

    def _fields(self) -> dict[str, NDArray[Any]]:
        names = ("last", "under_way", "steps", "uses", "transitions", "cells", "meters")
        return {name: getattr(self, f"_{name}") for name in names}

    def state(self) -> State:
        """The counts, and what each watched row used last."""
        return {name: kept.copy() for name, kept in self._fields().items()}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        for name, kept in self._fields().items():
            take_over(kept, state, name)


class Lived(NamedTuple):
    """Lives that ended in one step of all rows, as columns; k may be 0."""

    rows: Counts  # [k] ascending
    uses: Counts  # [k, A] steps in which each affordance was really used
    earned: NDArray[np.float64]  # [k] what came into the purse, in the unit of the currency; 0 without one
    works: Counts  # [k] of the uses, those of a place that pays


class Lives:
    """Sums over every row's present life. Make it after a reset, call `note` after every step."""

    def __init__(self, town: Town) -> None:
        self._town, self._engine, self._world = town, town.engine, town.world
        town.watch(town.rows)
        self._work = workplaces(town.world)
        self._uses = np.zeros((town.rows, len(town.world.affordances)), np.int64)
        self._earned = np.zeros(town.rows, np.float64)
        self._purse = np.zeros(town.rows, np.float32)
        self._purse[...] = self._money()

    def _money(self) -> NDArray[Any]:
        if self._world.spec.currency is None:
            return np.zeros_like(self._purse)
        return self._engine.peek("meters")["meters"][:, self._world.tables.currency]

    def note(self) -> Lived:
        """Add the last step; gives the lives that it ended and begins their sums anew."""
        used = self._town.used
        active = np.flatnonzero(used < 2 * len(self._work))
        self._uses[active, used[active] >> 1] += 1
        over = np.flatnonzero(array(self._engine.terminated | self._engine.truncated))
        now = np.array(self._money())
        last = now.copy()
        if len(over) and self._world.spec.currency is not None:
            last[over] = self._engine.final_meters(over)[:, self._world.tables.currency]
        self._earned += np.maximum(last - self._purse, 0)
        self._purse = now
        uses = self._uses[over]
        lived = Lived(over, uses, self._earned[over], uses[:, self._work].sum(axis=1))
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
            take_over(kept, state, name)
