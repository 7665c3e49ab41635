"""One row of a town, step by step in the order of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reference.document import filled
from reference.grid import Grid
from reference.observation import observed
from reference.rewards import component, potential

NEAR = 5e-5  # a value this close to a limit counts as on it


@dataclass(frozen=True)
class Result:
    """The result of one step."""

    reward: float
    components: tuple[float, ...]
    terminated: bool
    truncated: bool


class Town:
    """The state of one row; `layout` is the cell of each affordance, by default from the document."""

    def __init__(
        self,
        doc: dict[str, Any],
        cell: int = 0,
        hour: int | None = None,
        meters: Sequence[float] | None = None,
        layout: Sequence[int] | None = None,
        multiplier: float = 1.0,
        active: Sequence[bool] | None = None,
        mix: Sequence[float] | None = None,
    ) -> None:
        self.doc = filled(doc)
        self.names = [m["name"] for m in self.doc["meters"]]
        self.affordances: list[dict[str, Any]] = self.doc["affordances"]
        self.none = len(self.affordances)
        ground = self.doc["map"]
        self.grid = Grid(tuple(ground["size"]), ground["boundary"]) if ground["kind"] == "grid" else None
        self.temporal: bool = self.doc["clock"]["temporal"]
        self.day: int = self.doc["clock"]["day"]
        self.layout = list(layout) if layout is not None else self._own_layout()
        self.cell, self.age, self.progress, self.using = cell, 0, 0, self.none
        first = self.doc["clock"]["start"]
        self.hour = hour if hour is not None else int(first)
        starts = [m["start"] for m in self.doc["meters"]]
        self.meters = [float(v) for v in (starts if meters is None else meters)]
        self.multiplier = multiplier
        self.active = [True] * len(self.names) if active is None else [bool(a) for a in active]
        self.mix = [1.0] * len(self.doc["rewards"]) if mix is None else [float(m) for m in mix]
        self.terminated = self.truncated = False

    def _own_layout(self) -> list[int]:
        if self.grid is None:
            return list(range(self.none))
        return [self.grid.flat(list(a["cell"])) for a in self.affordances]

    @property
    def actions(self) -> list[tuple[str, int, int]]:
        """(kind, axis or affordance, direction) of every action; -1 is the current cell."""
        if self.grid is None:
            return [*(("interact", a, 0) for a in range(self.none)), ("wait", -1, 0)]
        return [*(("move", axis, by) for axis, by in self.grid.moves()), ("interact", -1, 0), ("wait", -1, 0)]

    def kind(self, cell: int) -> int:
        """The affordance on a cell, or the number of affordances for none."""
        return self.layout.index(cell) if cell in self.layout else self.none

    @property
    def here(self) -> int:
        return self.kind(self.cell)

    # prices, ticks and hours of affordances

    def ticks(self, place: int) -> int:
        return int(self.affordances[place]["ticks"]) if self.temporal else 1

    def price(self, place: int) -> float:
        """The price of one INTERACT; 0 while the currency is frozen."""
        currency = self.doc["currency"]
        if currency is None or not self.active[self.names.index(currency)]:
            return 0.0
        a = self.affordances[place]
        return float(a["price"]) if self.temporal else float(a["price"]) * int(a["ticks"])

    def can_pay(self, place: int) -> bool:
        currency = self.doc["currency"]
        return currency is None or self.meters[self.names.index(currency)] >= self.price(place) - NEAR

    def open(self, place: int) -> bool:
        hours = self.affordances[place]["hours"]
        if not self.temporal or hours is None:
            return True
        first, last = int(hours[0]), int(hours[1])
        opening = (last - first) % self.day or self.day  # hours between opening and closing
        return (self.hour - first) % self.day < opening

    # the step

    def step(self, action: int) -> Result:
        """Play one action; an ended town does not change and pays nothing."""
        if self.terminated or self.truncated:
            return Result(0.0, (0.0,) * len(self.mix), self.terminated, self.truncated)
        kind, what, by = self.actions[action]
        before = potential(self)
        if kind == "move" and self.grid is not None:
            self.cell = self.grid.moved(self.cell, what, by)
        elif kind == "interact" and self.grid is None:
            self.cell = self.layout[what]
        for i, meter in enumerate(self.doc["meters"]):
            if kind in ("move", "wait"):
                self._lose(i, meter[kind])
        if not (kind == "interact" and self._interact()):
            self.progress, self.using = 0, self.none
        self._decay()
        self._modulate()
        self._cascade()
        self.terminated = any(self.meters[self.names.index(name)] < NEAR for name in self.doc["lethal"])
        self.age += 1
        self.hour = (self.hour + 1) % self.day
        self.truncated = self.age >= self.doc["max_steps"] and not self.terminated
        paid = [
            component(self, r, before) * r["weight"] * m for r, m in zip(self.doc["rewards"], self.mix, strict=True)
        ]
        return Result(sum(paid), tuple(paid), self.terminated, self.truncated)

    def _lose(self, meter: int, amount: float) -> None:
        """Take from an active meter, within [0, 1]."""
        if self.active[meter]:
            self.meters[meter] = min(1.0, max(0.0, self.meters[meter] - amount))

    def _interact(self) -> bool:
        """Apply INTERACT; whether it succeeded."""
        here = self.here
        if here == self.none or not self.open(here) or not self.can_pay(here):
            return False
        if self.doc["currency"] is not None:
            self._lose(self.names.index(self.doc["currency"]), self.price(here))
        done = self.progress + 1 if self.using == here else 1
        last = done >= self.ticks(here)
        figures = self.affordances[here]
        repeats = 1 if self.temporal else int(figures["ticks"])
        for i, name in enumerate(self.names):
            gain = repeats * figures["each_tick"].get(name, 0.0)
            if last:
                gain += figures["at_end"].get(name, 0.0)
            self._lose(i, -gain)
        self.progress, self.using = (0, self.none) if last else (done, here)
        return True

    def _decay(self) -> None:
        for i, meter in enumerate(self.doc["meters"]):
            self._lose(i, meter["decay"] * self.multiplier)

    def _modulate(self) -> None:
        for link in self.doc["modulations"]:
            source = self.meters[self.names.index(link["source"])]
            loss = link["base"] + link["range"] * (1 - source)
            self._lose(self.names.index(link["target"]), loss * self.multiplier)

    def _cascade(self) -> None:
        for link in self.doc["cascades"]:
            source = self.names.index(link["source"])
            lack = (link["threshold"] - self.meters[source]) / link["threshold"]
            if self.active[source] and lack > 0:
                self._lose(self.names.index(link["target"]), link["strength"] * lack)

    # observation and mask

    def mask(self) -> list[bool]:
        """The valid actions; WAIT is always valid."""
        return [self._allowed(*action) for action in self.actions]

    def _allowed(self, kind: str, what: int, by: int) -> bool:
        if kind == "move" and self.grid is not None:
            return self.grid.boundary != "clamp" or not self.grid.at_edge(self.cell, what, by)
        if kind == "interact":
            place = self.here if self.grid is not None else what
            if place == self.none or not self.open(place):
                return False
            return self.can_pay(place) or not self.doc["mask_unaffordable"]
        return True

    def observe(self) -> list[float]:
        """All blocks of the observation, one after the other."""
        return [value for block in self.doc["observation"] for value in observed(self, block)]
