"""The story of a life: events in plain words, found in the recorded steps by fixed rules."""

from __future__ import annotations

from typing import Final

import numpy as np

from townlet.live.explain import affordance_label
from townlet.town.episode_recorder import Recording
from townlet.town.state import OUT_OF_TIME
from townlet.town.world.tables import TOLERANCE, World

CRITICAL, SAFE = 0.2, 0.5  # a lethal meter below the first is an event, and so is its return above the second
MILESTONES: Final = (100, 250, 500, 1000, 1500, 2000, 3000, 5000, 10_000)  # ages worth a line


class Story:
    """Events of one episode by timestep; `advance` adds those of the timesteps that were recorded since."""

    def __init__(self, world: World, record: int | None = None) -> None:
        """`record` is the age of the longest life so far; exceeding it is an event."""
        self._world, self._record = world, record
        self._events: dict[int, list[str]] = {}
        self._next = 1  # first timestep that was not read yet
        self._used: set[int] = set()
        self._critical: set[int] = set()
        self._was_broke = False
        prices = np.asarray(world.tables.price)[: len(world.affordances)]
        self._cheapest = float(prices[prices > 0].min(initial=np.inf))

    def events(self, first: int, last: int) -> list[list[str] | None]:
        """The events of the timesteps first … last."""
        return [self._events.get(timestep) for timestep in range(first, last + 1)]

    def advance(self, r: Recording) -> None:
        """Read all timesteps of the recording that are new."""
        for timestep in range(self._next, len(r) + 1):
            found = [*self._first_use(r, timestep), *self._money(r, timestep), *self._danger(r, timestep)]
            found += self._age(int(r.age[timestep]))
            if found:
                self._events[timestep] = [f"{self._when(r, timestep)}: {text}" for text in found]
        self._next = max(self._next, len(r) + 1)

    def end(self, r: Recording, cause: str) -> None:
        """Add the end of the episode."""
        text = "lives to the step limit" if cause == OUT_OF_TIME else f"dies: no {cause} left"
        self._events.setdefault(len(r), []).append(f"{self._when(r, len(r))}: {text}")

    def _when(self, r: Recording, timestep: int) -> str:
        """Day and, in worlds with time of day, the hour before the step."""
        spec, before = self._world.spec.clock, timestep - 1
        day = int(r.age[before]) // spec.day + 1
        return f"Day {day}, {int(r.hour[before]):02d}:00" if spec.temporal else f"Day {day}"

    def _first_use(self, r: Recording, timestep: int) -> list[str]:
        """The first completed use of an affordance."""
        used = completed_use(self._world, r, timestep)
        if used is None or used in self._used:
            return []
        self._used.add(used)
        name, spec = affordance_label(self._world.affordances[used]), self._world.spec
        if spec.currency is None:
            return [f"first time at the {name}"]
        money = self._world.tables.currency
        earned = float(r.meters[timestep, money] - r.meters[timestep - 1, money]) > 0
        return [f"first shift at the {name}" if earned else f"first time at the {name}"]

    def _money(self, r: Recording, timestep: int) -> list[str]:
        """The first time that nothing is affordable."""
        spec = self._world.spec
        if spec.currency is None or self._was_broke:
            return []
        money = float(r.meters[timestep, self._world.tables.currency])
        self._was_broke = money + TOLERANCE < self._cheapest < np.inf
        return [f"broke for the first time, with ${money * spec.dollars:.2f} left"] if self._was_broke else []

    def _danger(self, r: Recording, timestep: int) -> list[str]:
        """A lethal meter becomes critical, or is safe again."""
        found = []
        for meter in self._world.tables.lethal:
            name, value = self._world.meters[meter], float(r.meters[timestep, meter])
            if value < CRITICAL and meter not in self._critical:
                self._critical.add(meter)
                found.append(f"{name} is critical, at {value:.0%}")
            elif value >= SAFE and meter in self._critical:
                self._critical.remove(meter)
                found.append(f"saved: {name} is back at {value:.0%}")
        return found

    def _age(self, age: int) -> list[str]:
        """Milestones, and a new record."""
        found = [f"{age} steps old"] if age in MILESTONES else []
        if self._record is not None and age == self._record + 1:
            found.append(f"a new record, longer than {self._record} steps")
        return found


def completed_use(world: World, r: Recording, timestep: int) -> int | None:
    """The affordance whose use the step to this timestep completed; None if there is none."""
    t, step = world.tables, timestep - 1
    action = int(r.actions[step])
    if not t.first_interact <= action < t.wait:
        return None
    if world.size:
        at = np.flatnonzero(r.cell_of == r.cell[step])
        if not len(at):
            return None
        used = int(at[0])
    else:
        used = action - int(t.first_interact)
    is_open = bool(t.open_at[used, int(r.hour[step])])
    affordable = world.spec.currency is None or r.meters[step, t.currency] + TOLERANCE >= t.price[used]
    if not is_open or not affordable:
        return None
    progress = int(r.progress[step]) if int(r.using[step]) == used else 0
    return used if progress + 1 >= int(t.ticks[used]) else None
