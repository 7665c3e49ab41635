"""Experiences to learn from: the newest ones, in arrays that are there from the beginning. Any thread may use it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from townlet.allocation import reserve
from townlet.decide.domain import ColumnSpec, ObservationBatch, ObservationRow
from townlet.errors import TownletError
from townlet.interfaces.state import SAME_RECIPE, State, copy_tensor, get_part

ALPHA: Final = 0.6  # how strongly large errors are preferred
BETA: Final = 0.4  # how much of the bias that this brings is corrected
EPSILON: Final = 1e-6  # added to every error, so that none is never drawn


class DecisionFields(TypedDict):
    """What is kept of an experience beside its observation."""

    number: int
    action: int
    time: float  # the game's
    propensity: float
    confidence: float
    send: bool
    expected: float
    outcome: float
    has_outcome: bool
    version: int
    gate: int  # which of the gates that ever judged


DECISION_COLUMNS: Final = {
    "number": ColumnSpec((), "int64"),
    "action": ColumnSpec((), "int64"),
    "time": ColumnSpec((), "float64"),
    "propensity": ColumnSpec((), "float64"),
    "confidence": ColumnSpec((), "float32"),
    "send": ColumnSpec((), "bool"),
    "expected": ColumnSpec((), "float64"),
    "outcome": ColumnSpec((), "float64"),
    "has_outcome": ColumnSpec((), "bool"),
    "version": ColumnSpec((), "int64"),
    "gate": ColumnSpec((), "int64"),
}


@dataclass(frozen=True)
class ExperienceBatch:
    """B experiences, copied: nothing that happens to the buffer changes them."""

    places: NDArray[np.int64]  # [B], where they lay
    weight: NDArray[np.float32]  # [B], of importance: below 1 for those that were preferred, the largest is 1
    rows: dict[str, NDArray[Any]]  # column → [B, ...]
    number: NDArray[np.int64]  # [B], and so all that follow
    action: NDArray[np.int64]
    time: NDArray[np.float64]
    propensity: NDArray[np.float64]
    confidence: NDArray[np.float32]
    send: NDArray[np.bool_]
    expected: NDArray[np.float64]
    outcome: NDArray[np.float64]
    has_outcome: NDArray[np.bool_]
    version: NDArray[np.int64]
    gate: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.number)


class ExperienceBuffer:
    """The last `capacity` experiences; each new one takes the place of the oldest."""

    def __init__(
        self, capacity: int, columns: Mapping[str, ColumnSpec], alpha: float = ALPHA, beta: float = BETA
    ) -> None:
        if twice := sorted(columns.keys() & DECISION_COLUMNS.keys()):
            raise ValueError(f"'{twice[0]}' is kept of every experience already")
        every = {**columns, **DECISION_COLUMNS}
        size = capacity * sum(prod(column.shape) * np.dtype(column.dtype).itemsize for column in every.values())
        reserve(self, size, f"a replay buffer of {capacity:,} experiences", "lower memory.capacity or memory.judged_by")
        self.capacity = capacity
        self._alpha, self._beta = alpha, beta
        self._names = tuple(columns)
        self._columns: dict[str, NDArray[Any]] = {
            name: np.zeros((capacity, *column.shape), column.dtype) for name, column in every.items()
        }
        self._priority = np.zeros(capacity)
        self._top = 1.0  # the largest so far: new ones get it, so that they are soon drawn
        self._head, self._filled = 0, 0  # the place that is written next, and how many there are
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._filled

    @property
    def use(self) -> float:
        """The share of the places that are taken."""
        return self._filled / self.capacity

    def add(self, row: ObservationRow, **facts: Unpack[DecisionFields]) -> None:
        """One experience more: its observation, and what is known of it."""
        given = self._fitting({**row, **facts}, ())
        with self._lock:
            self._write(self._head, given, 1)

    def add_many(self, rows: ObservationBatch, facts: Mapping[str, ArrayLike]) -> None:
        """B experiences more, oldest first: observations [B, ...] by column, and facts [B] by name."""
        given = self._fitting({**rows, **facts}, np.shape(facts.get("number", ())))
        given = {name: array[-self.capacity :] for name, array in given.items()}
        count = len(given["number"])
        with self._lock:
            self._write((self._head + np.arange(count)) % self.capacity, given, count)

    def _fitting(self, given: Mapping[str, Any], lead: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """The values as they are kept, [*lead, ...]. All are looked at before anything is written over."""
        if given.keys() != self._columns.keys():
            odd = min(given.keys() ^ self._columns.keys())
            raise ValueError(f"an experience {'lacks' if odd in self._columns else 'has an unknown'} '{odd}'")
        arrays = {}
        for name, column in self._columns.items():
            arrays[name] = array = np.asarray(given[name], column.dtype)
            if array.shape != lead + column.shape[1:]:
                raise ValueError(f"'{name}' has shape {array.shape}, needed is {lead + column.shape[1:]}")
        return arrays

    def _write(self, places: int | NDArray[np.int64], given: Mapping[str, NDArray[Any]], count: int) -> None:
        for name, column in self._columns.items():
            column[places] = given[name]
        self._priority[places] = self._top
        self._head = (self._head + count) % self.capacity
        self._filled = min(self._filled + count, self.capacity)

    def sample(
        self,
        batch: int,
        generator: np.random.Generator,
        train_on_wait: bool = False,
        *,
        least: int = 1,
        stratified: bool = False,
        prioritized: bool = False,
    ) -> ExperienceBatch | None:
        """Up to `batch` different experiences that may be learned from; None if there are not even `least`.

        Stratified, half of them were sent and went well, as far as there are; prioritized, large errors come oftener.
        """
        with self._lock:
            pool = self._eligible(train_on_wait)
            count = min(batch, len(pool))
            if count < max(min(batch, least), 1):
                return None
            if stratified:
                good = self._columns["send"][pool] & (self._columns["outcome"][pool] > 0)
                places = self._halves(pool[good], pool[~good], count, generator, prioritized)
            else:
                places = self._draw(pool, count, generator, prioritized)
            return self._copy(places, self._importance(places) if prioritized else np.ones(count, np.float32))

    def _eligible(self, train_on_wait: bool) -> NDArray[np.int64]:
        """Places of what has an outcome, or was not carried out. A look at all of them is cheaper than any index."""
        known = self._columns["has_outcome"][: self._filled]
        return np.flatnonzero(known | ~self._columns["send"][: self._filled] if train_on_wait else known)

    def _halves(
        self,
        good: NDArray[np.int64],
        others: NDArray[np.int64],
        count: int,
        generator: np.random.Generator,
        prioritized: bool,
    ) -> NDArray[np.int64]:
        """Half from each; where one has too few the other makes up for it."""
        lucky = min(max(count // 2, count - len(others)), len(good))
        drawn = [
            self._draw(pool, size, generator, prioritized) for pool, size in ((good, lucky), (others, count - lucky))
        ]
        return np.concatenate(drawn)

    def _draw(
        self, pool: NDArray[np.int64], count: int, generator: np.random.Generator, prioritized: bool
    ) -> NDArray[np.int64]:
        """`count` different places of the pool."""
        if not prioritized or not count:
            return generator.choice(pool, count, replace=False)
        # Waiting times with the priorities as rates: the first to come are a draw without replacement by priority.
        times = generator.standard_exponential(len(pool)) / self._priority[pool]
        return pool[np.argpartition(times, count - 1)[:count]]

    def _importance(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        priority = self._priority[places]
        weight: NDArray[np.float64] = (priority / priority.min()) ** -self._beta
        return weight.astype(np.float32)

    def _copy(self, places: NDArray[np.int64], weight: NDArray[np.float32], seen: bool = True) -> ExperienceBatch:
        rows = {name: self._columns[name][places] for name in self._names} if seen else {}
        return ExperienceBatch(places, weight, rows, **{name: self._columns[name][places] for name in DECISION_COLUMNS})

    def outcomes(self, most: int) -> NDArray[np.float64]:
        """What came of the last ones of which that is known."""
        with self._lock:
            places = (self._head - self._filled + np.arange(self._filled)) % self.capacity
            known: NDArray[np.float64] = self._columns["outcome"][places[self._columns["has_outcome"][places]]]
            return known[-most:]

    def everything(self) -> ExperienceBatch:
        """All that is kept, oldest first, whether it may be learned from or not."""
        return self.newest(self.capacity)

    def newest(self, most: int) -> ExperienceBatch:
        """The last ones, oldest first."""
        with self._lock:
            count = min(most, self._filled)
            places = (self._head - count + np.arange(count)) % self.capacity
            return self._copy(places, np.ones(count, np.float32))

    def news(self, known: NDArray[np.int64]) -> tuple[ExperienceBatch, ExperienceBatch]:
        """All that is kept, as it lies and without observations; and with theirs those whose numbers are not `known`.

        `known` [capacity] has the number of who was found at each place the last time.
        """
        with self._lock:
            places = np.arange(self._filled)
            new = np.flatnonzero(self._columns["number"][: self._filled] != known[: self._filled])
            whole, some = np.ones(self._filled, np.float32), np.ones(len(new), np.float32)
            return self._copy(places, whole, seen=False), self._copy(new, some)

    def reprioritize(self, places: NDArray[np.int64], number: NDArray[np.int64], error: ArrayLike) -> None:
        """Errors [B] of decisions by their numbers, which were at these places; what was written over is left alone."""
        # What is not finite is the trainer's to report; here it would spoil every later draw.
        size = np.abs(np.nan_to_num(np.asarray(error, np.float64), nan=0.0, posinf=0.0, neginf=0.0))
        priority = (size + EPSILON) ** self._alpha
        with self._lock:
            still = self._columns["number"][places] == number
            self._priority[places[still]] = priority[still]
            self._top = max(self._top, float(priority[still].max(initial=0.0)))

    def state(self) -> State:
        """All that is kept, copied, and where to go on."""
        with self._lock:
            columns = {name: column[: self._filled].copy() for name, column in self._columns.items()}
            priority = self._priority[: self._filled].copy()
            whole = {"capacity": self.capacity, "head": self._head, "top": self._top}
            return {**whole, "columns": columns, "priority": priority}

    def restore(self, state: State) -> None:
        """Take over what a buffer of the same capacity and columns kept."""
        names = ("capacity", "head", "top", "columns", "priority")
        capacity, head, top, columns, priority = (get_part(state, name, "buffer") for name in names)
        if capacity != self.capacity:
            raise TownletError(f"the saved buffer has {capacity} places and this one {self.capacity}", SAME_RECIPE)
        if not isinstance(columns, Mapping) or columns.keys() != self._columns.keys():
            raise TownletError(f"the saved buffer does not hold {', '.join(self._columns)}", SAME_RECIPE)
        filled = min(len(priority), capacity)
        if not isinstance(head, int) or not (0 <= head < capacity if filled == capacity else head == filled):
            raise TownletError(f"the saved buffer cannot go on at place {head!r}", SAME_RECIPE)
        with self._lock:
            for name, column in self._columns.items():
                copy_tensor(torch.from_numpy(column[:filled]), columns[name], name)
            copy_tensor(torch.from_numpy(self._priority[:filled]), priority, "priority")
            self._head, self._filled, self._top = head, filled, float(top)
