"""Replay buffer of decisions with their outcomes, in preallocated arrays; thread-safe.

Unlike `buffers.replay`, it stores single decisions without next observations, and samples eligible ones without
replacement.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from townlet.allocation import reserve
from townlet.decide.domain import ColumnSpec, ObservationRow
from townlet.errors import TownletError
from townlet.interfaces.state import SAME_SETTINGS, State, copy_tensor, get_part

ALPHA: Final = 0.6  # priority exponent (Schaul et al. 2016)
BETA: Final = 0.4  # exponent of the importance-sampling correction
EPSILON: Final = 1e-6  # added to every error, so that no experience has priority 0

DECISION_COLUMNS: Final = {  # fields of an experience besides its observation
    name: ColumnSpec((), dtype)
    for dtype, names in {
        "int64": ("number", "action", "version", "gate"),  # `gate` is an index into all gates ever used
        "float64": ("time", "propensity", "expected", "outcome"),
        "float32": ("confidence",),
        "bool": ("send", "has_outcome"),
    }.items()
    for name in names
}


@dataclass(frozen=True)
class ExperienceBatch:
    """B experiences, copied from the buffer."""

    slots: NDArray[np.int64]  # [B], their indices in the buffer
    weight: NDArray[np.float32]  # [B], importance weights, at most 1
    rows: dict[str, NDArray[Any]]  # observations: column → [B, ...]
    number: NDArray[np.int64]  # [B], like all that follow: the number of the decision
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
    """The newest `capacity` experiences; once full, each new one overwrites the oldest."""

    def __init__(
        self, capacity: int, columns: Mapping[str, ColumnSpec], alpha: float = ALPHA, beta: float = BETA
    ) -> None:
        if reserved := sorted(columns.keys() & DECISION_COLUMNS.keys()):
            raise ValueError(f"a column cannot be named '{reserved[0]}': every experience has a field of this name")
        specs = {**columns, **DECISION_COLUMNS}
        size = capacity * sum(prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in specs.values())
        fix = "lower memory.capacity or memory.held_out_capacity"
        reserve(self, size, f"a replay buffer of {capacity:,} experiences", fix)
        self.capacity = capacity
        self._alpha, self._beta = alpha, beta
        observed = {name: np.zeros((capacity, *spec.shape), spec.dtype) for name, spec in columns.items()}
        # One structured array for all scalars is written twice as fast as an array for each.
        fields = np.dtype([(name, spec.dtype) for name, spec in DECISION_COLUMNS.items()], align=True)
        self._observed: dict[str, NDArray[Any]] = observed
        self._fields: NDArray[np.void] = np.zeros(capacity, fields)
        self._columns: dict[str, NDArray[Any]] = observed | {name: self._fields[name] for name in DECISION_COLUMNS}
        self._priority = np.zeros(capacity)
        self._max_priority = 1.0  # given to new experiences, so that they are soon sampled
        self._head, self._filled = 0, 0  # the next slot to write, and the number of used slots
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._filled

    def add(self, row: ObservationRow, **fields: float) -> None:
        """Add one experience: its observation and its decision fields."""
        arrays, record = self._validated(row, fields)
        with self._lock:
            for column, array in zip(self._observed.values(), arrays, strict=True):
                column[self._head] = array
            self._fields[self._head] = record
            self._priority[self._head] = self._max_priority
            self._head = (self._head + 1) % self.capacity
            self._filled = min(self._filled + 1, self.capacity)

    def _validated(
        self, row: ObservationRow, fields: Mapping[str, float]
    ) -> tuple[list[NDArray[Any]], NDArray[np.void]]:
        """Observation and fields as arrays; all are validated, so that an invalid experience overwrites nothing."""
        for given, known in ((row.keys(), self._observed.keys()), (fields.keys(), DECISION_COLUMNS.keys())):
            if given != known:
                name = min(given ^ known)
                raise ValueError(f"an experience {'lacks' if name in known else 'has an unknown'} '{name}'")
        arrays = []
        for name, column in self._observed.items():
            arrays.append(array := np.asarray(row[name], column.dtype))
            if array.shape != column.shape[1:]:
                raise ValueError(f"'{name}' has shape {array.shape}, expected {column.shape[1:]}")
        return arrays, np.array(tuple(fields[name] for name in DECISION_COLUMNS), self._fields.dtype)

    def sample(
        self, batch_size: int, generator: np.random.Generator, train_on_wait: bool = False,
        *, min_batch_size: int = 1, stratified: bool = False, prioritized: bool = False,
    ) -> ExperienceBatch | None:  # fmt: skip
        """Up to `batch_size` distinct eligible experiences; None if fewer than `min_batch_size` are eligible.

        Experiences with an outcome are eligible; with `train_on_wait`, so are decisions to wait. If `stratified`, half
        of the batch has a positive outcome; if one half has too few experiences, the other half fills the batch.
        """
        with self._lock:
            eligible = self._columns["has_outcome"][: self._filled]
            if train_on_wait:
                eligible = eligible | ~self._columns["send"][: self._filled]
            pool = np.flatnonzero(eligible)  # scanning all slots is cheaper than an index
            count = min(batch_size, len(pool))
            if count < max(min(batch_size, min_batch_size), 1):
                return None
            if stratified:
                positive = self._columns["send"][pool] & (self._columns["outcome"][pool] > 0)
                n_positive = min(max(count // 2, count - int((~positive).sum())), int(positive.sum()))
                halves = (pool[positive], n_positive), (pool[~positive], count - n_positive)
                slots = np.concatenate([self._draw(half, size, generator, prioritized) for half, size in halves])
            else:
                slots = self._draw(pool, count, generator, prioritized)
            sampled = self._copy(slots)
            if not prioritized:
                return sampled
            priority = self._priority[slots]
            weight: NDArray[np.float64] = (priority / priority.min()) ** -self._beta
            return replace(sampled, weight=weight.astype(np.float32))

    def _draw(
        self, pool: NDArray[np.int64], count: int, generator: np.random.Generator, prioritized: bool
    ) -> NDArray[np.int64]:
        if not prioritized or not count:
            return generator.choice(pool, count, replace=False)
        # Exponential race: with the priorities as rates, the first arrivals are a sample without replacement.
        times = generator.standard_exponential(len(pool)) / self._priority[pool]
        return pool[np.argpartition(times, count - 1)[:count]]

    def _copy(self, slots: NDArray[np.int64], observations: bool = True) -> ExperienceBatch:
        rows = {name: self._columns[name][slots] for name in self._observed} if observations else {}
        fields = {name: self._columns[name][slots] for name in DECISION_COLUMNS}
        return ExperienceBatch(slots, np.ones(len(slots), np.float32), rows, **fields)

    def recent_outcomes(self, limit: int) -> NDArray[np.float64]:
        """The newest known outcomes, oldest first."""
        with self._lock:
            slots = (self._head - self._filled + np.arange(self._filled)) % self.capacity
            known: NDArray[np.float64] = self._columns["outcome"][slots[self._columns["has_outcome"][slots]]]
            return known[-limit:]

    def newest(self, limit: int) -> ExperienceBatch:
        """The newest experiences, oldest first, with or without an outcome."""
        with self._lock:
            count = min(limit, self._filled)
            return self._copy((self._head - count + np.arange(count)) % self.capacity)

    def changes(self, numbers: NDArray[np.int64]) -> tuple[ExperienceBatch, ExperienceBatch]:
        """All experiences in slot order, without their observations; and those that changed, with observations.

        `numbers` [capacity] holds the number of the decision that the caller has cached for each slot.
        """
        with self._lock:
            changed = np.flatnonzero(self._columns["number"][: self._filled] != numbers[: self._filled])
            return self._copy(np.arange(self._filled), observations=False), self._copy(changed)

    def update_priorities(self, slots: NDArray[np.int64], number: NDArray[np.int64], error: ArrayLike) -> None:
        """Set priorities from errors [B] of decisions with these numbers; overwritten slots are skipped."""
        # A non-finite error is reported by the trainer; here it would corrupt every later draw.
        size = np.abs(np.nan_to_num(np.asarray(error, np.float64), nan=0.0, posinf=0.0, neginf=0.0))
        priority = (size + EPSILON) ** self._alpha
        with self._lock:
            current = self._columns["number"][slots] == number
            self._priority[slots[current]] = priority[current]
            self._max_priority = max(self._max_priority, float(priority[current].max(initial=0.0)))

    def state(self) -> State:
        with self._lock:
            return {
                "capacity": self.capacity,
                "head": self._head,
                "max_priority": self._max_priority,
                "columns": {name: column[: self._filled].copy() for name, column in self._columns.items()},
                "priority": self._priority[: self._filled].copy(),
            }

    def restore(self, state: State) -> None:
        """Restore the contents of a buffer of the same capacity and columns."""
        names = ("capacity", "head", "max_priority", "columns", "priority")
        capacity, head, max_priority, columns, priority = (get_part(state, name, "buffer") for name in names)
        if capacity != self.capacity:
            what = f"the saved buffer has a capacity of {capacity}, not {self.capacity}"
            raise TownletError(what, SAME_SETTINGS)
        if not isinstance(columns, Mapping) or columns.keys() != self._columns.keys():
            raise TownletError(f"the saved buffer does not hold {', '.join(self._columns)}", SAME_SETTINGS)
        filled = min(len(priority), capacity)
        heads = range(capacity) if filled == capacity else (filled,)
        if not isinstance(head, int) or head not in heads:
            raise TownletError(f"the saved buffer has an invalid head: {head!r}", SAME_SETTINGS)
        with self._lock:
            for name, column in self._columns.items():
                copy_tensor(torch.from_numpy(column[:filled]), columns[name], name)
            copy_tensor(torch.from_numpy(self._priority[:filled]), priority, "priority")
            self._head, self._filled, self._max_priority = head, filled, float(max_priority)
