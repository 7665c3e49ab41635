"""Decisions and what came of them: each outcome counts once, however often and in whatever order it is told.

No clock and no disk: everything here follows from the calls in their order, so that a log gives it back.
"""

from __future__ import annotations

import json
import struct
from array import array
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from math import isfinite
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from townlet.errors import TownletError
from townlet.interfaces.state import SAME_RECIPE, State, get_part

WINDOW: Final = 1_000_000  # past decisions whose fate and report are remembered, three bytes each
NONE, WAITED, JOINED, FAILED, EXPIRED = range(5)  # what is remembered of them; NONE as well while they are pending
MICRO: Final = 1_000_000  # whole microseconds, so that their sum is exact


class OutcomeStatus(Enum):
    """What a report did."""

    JOINED = "joined"  # it counts
    FAILED = "failed"  # it counts: the decision was not carried out
    DUPLICATE = "duplicate"  # another one came before
    CONTRADICTING = "contradicting"  # a different outcome was reported earlier
    LATE = "late"  # the decision has expired, or is older than anybody remembers
    UNKNOWN = "unknown"  # nothing was decided under that number, or to wait


@dataclass(frozen=True)
class DecisionCounts:
    """Where all decisions are, and reports that did not count."""

    decisions: int = 0
    joined: int = 0
    expired: int = 0
    pending: int = 0
    waited: int = 0
    failed: int = 0
    duplicates: int = 0
    late: int = 0
    unknown: int = 0
    contradicting: int = 0

    @property
    def not_executed(self) -> int:
        """Those to wait, and those that could not be carried out."""
        return self.waited + self.failed

    @property
    def balanced(self) -> bool:
        """The law: every decision is in one place."""
        return self.decisions == self.joined + self.expired + self.pending + self.not_executed


COUNTERS: Final = tuple(field.name for field in fields(DecisionCounts) if field.name != "pending")
REJECTED: Final = {
    OutcomeStatus.DUPLICATE: "duplicates",
    OutcomeStatus.LATE: "late",
    OutcomeStatus.UNKNOWN: "unknown",
    OutcomeStatus.CONTRADICTING: "contradicting",
}


def report_digest(value: float, failed: bool) -> int:
    """16 bits of a report, to tell an equal one from a contradicting one; 0 is none."""
    return crc32(struct.pack("<d?", value + 0.0, failed)) & 0xFFFF or 1


class PendingAges(NamedTuple):
    """How long decisions have waited for their outcome, in seconds (0 where none waits)."""

    oldest: float
    mean: float
    territories: dict[str, int]  # how many wait, where any do


class PendingDecision(NamedTuple):
    """A decision that waits for its outcome."""

    territory: str
    time: float  # the game's
    at: float  # the server's


class Join:
    """Which decisions wait, and what became of the others. Memory grows with those that wait only."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._pending: OrderedDict[int, PendingDecision] = OrderedDict()  # by number, and so by `at`
        self._places: dict[str, list[tuple[float, int]]] = {}  # the same by territory: (time, number), in order
        self._fates = bytearray(window)  # of number n at n % window
        self._digests = array("H", bytes(2 * window))  # of the reports that counted, in the same places
        self._last = 0  # the number of the newest decision
        self._clock = -np.inf  # the latest second that was ever told
        self._moments = 0  # sum over pending of `at`, in whole microseconds
        self._tally = dict.fromkeys(COUNTERS, 0)

    @property
    def clock(self) -> float:
        """The latest second that was ever told; −∞ before any."""
        return self._clock

    def decided(self, number: int, territory: str, time: float, at: float, send: bool) -> None:
        """A decision was made at the game's `time` and the server's `at`; without `send` nothing comes of it."""
        if number <= self._last:
            raise ValueError(f"decision {number} comes after {self._last}")
        if not (isfinite(time) and isfinite(at)):
            raise ValueError(f"decision {number} was made at {time}, {at}")
        self._forget(number)
        self._clock = max(self._clock, at)
        self._tally["decisions"] += 1
        if send:
            self._hold(number, PendingDecision(territory, time, self._clock))
        else:
            self._remember(number, WAITED, "waited")

    def _forget(self, number: int) -> None:
        """The window moves on to this number; numbers that were left out are unknown."""
        for skipped in range(max(self._last, number - self._window) + 1, number + 1):
            self._fates[skipped % self._window] = NONE
            self._digests[skipped % self._window] = 0
        self._last = number

    def _hold(self, number: int, pending: PendingDecision) -> None:
        self._pending[number] = pending
        insort(self._places.setdefault(pending.territory, []), (pending.time, number))
        self._moments += round(pending.at * MICRO)

    def _release(self, number: int) -> bool:
        """It waits no more; whether it did."""
        pending = self._pending.pop(number, None)
        if pending is None:
            return False
        there = self._places[pending.territory]
        del there[bisect_left(there, (pending.time, number))]
        if not there:
            del self._places[pending.territory]
        self._moments -= round(pending.at * MICRO)
        return True

    def _remember(self, number: int, fate: int, name: str, digest: int = 0) -> None:
        self._tally[name] += 1
        if number > self._last - self._window:
            self._fates[number % self._window] = fate
            self._digests[number % self._window] = digest

    def is_pending(self, number: int) -> bool:
        """Whether this decision waits for its outcome."""
        return number in self._pending

    def reported(self, number: int, digest: int = 0) -> OutcomeStatus:
        """The outcome of a decision; only the first one of a pending decision counts. 0 for one that was observed."""
        if not self._release(number):
            return self.refuse(number, digest)
        self._remember(number, JOINED, "joined", digest)
        return OutcomeStatus.JOINED

    def failed(self, number: int, digest: int = 0) -> OutcomeStatus:
        """A decision could not be carried out; it counts as the first report of it."""
        if not self._release(number):
            return self.refuse(number, digest)
        self._remember(number, FAILED, "failed", digest)
        return OutcomeStatus.FAILED

    def refuse(self, number: int, digest: int = 0) -> OutcomeStatus:
        """Count a report of a decision that is not pending."""
        fate = self._past(number)
        if fate is OutcomeStatus.DUPLICATE and digest and self._digests[number % self._window] not in (0, digest):
            fate = OutcomeStatus.CONTRADICTING
        self._tally[REJECTED[fate]] += 1
        return fate

    def contradicts_failure(self, number: int) -> bool:
        """Whether a decision now reported as executed was reported as failed before; counts it if so."""
        remembered = self._last - self._window < number <= self._last
        if not remembered or self._fates[number % self._window] != FAILED:
            return False
        self._tally[REJECTED[OutcomeStatus.CONTRADICTING]] += 1
        return True

    @property
    def refused(self) -> tuple[int, ...]:
        """Counts of refused reports, in the order of `REFUSED`."""
        return tuple(self._tally[name] for name in REJECTED.values())

    def set_refused(self, counts: Sequence[int]) -> None:
        """Replace them with the counts in the log."""
        self._tally.update(zip(REJECTED.values(), counts, strict=True))

    def _past(self, number: int) -> OutcomeStatus:
        """What a report of one that does not wait is."""
        if not 0 < number <= self._last:
            return OutcomeStatus.UNKNOWN
        if number <= self._last - self._window:
            return OutcomeStatus.LATE
        remembered = self._fates[number % self._window]
        if remembered == EXPIRED:
            return OutcomeStatus.LATE
        return OutcomeStatus.DUPLICATE if remembered in (JOINED, FAILED) else OutcomeStatus.UNKNOWN

    def due(self, territory: str, time: float) -> list[int]:
        """Those that wait there and were made before this game time, in its order: what is seen now tells of them."""
        there = self._places.get(territory, [])
        return [number for _, number in there[: bisect_left(there, (time, 0))]]

    def expire(self, at: float, after: float, most: int | None = None) -> list[int]:
        """Those that have waited for more than `after` seconds wait no more; nor do the oldest beyond `most`."""
        self._clock = max(self._clock, at)
        gone = []
        while self._pending:
            number, pending = next(iter(self._pending.items()))
            if self._clock - pending.at <= after and (most is None or len(self._pending) <= most):
                break
            self._release(number)
            self._remember(number, EXPIRED, "expired")
            gone.append(number)
        return gone

    @property
    def counts(self) -> DecisionCounts:
        """Where all decisions are now."""
        return DecisionCounts(pending=len(self._pending), **self._tally)

    @property
    def decisions(self) -> int:
        """Number of decisions made; cheaper than all counts."""
        return self._tally["decisions"]

    def ages(self, at: float) -> PendingAges:
        """How old those are that wait, and where they are."""
        if not self._pending:
            return PendingAges(0.0, 0.0, {})
        now, waiting = max(self._clock, at), len(self._pending)
        oldest = now - next(iter(self._pending.values())).at
        mean = max(now - self._moments / MICRO / waiting, 0.0)
        return PendingAges(oldest, mean, {name: len(there) for name, there in self._places.items()})

    def state(self) -> State:
        """Those that wait, and what is remembered of the others."""
        waiting = list(self._pending.values())
        return {
            "window": self._window,
            "last": self._last,
            "clock": np.array(self._clock),
            "tally": dict(self._tally),
            "fates": np.frombuffer(self._fates, np.uint8)[: self._last + 1].copy(),
            "digests": np.frombuffer(self._digests, np.uint16)[: self._last + 1].copy(),
            "numbers": np.array(list(self._pending), np.int64),
            "territories": np.frombuffer(json.dumps([pending.territory for pending in waiting]).encode(), np.uint8),
            "times": np.array([pending.time for pending in waiting], np.float64),
            "at": np.array([pending.at for pending in waiting], np.float64),
        }

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken, with a window of the same length."""
        names = ("window", "last", "clock", "tally", "fates", "digests", "numbers", "territories", "times", "at")
        window, last, clock, tally, fates, digests, *columns = (get_part(state, name, "join") for name in names)
        fates, digests = np.asarray(fates, np.uint8), np.asarray(digests, np.uint16)
        columns = [_listed(column) for column in columns]
        columns[1] = _names(columns[1])
        _check(window == self._window, f"remembers {window} decisions, and this one {self._window}")
        _check(isinstance(tally, Mapping) and set(tally) == set(COUNTERS), "does not hold the same counts")
        _check(isinstance(last, int) and len(fates) == min(last + 1, window), "does not hold the fates up to its last")
        _check(len(digests) == len(fates), "does not hold the reports up to its last")
        _check(len({len(column) for column in columns}) == 1, "does not know everything of those that wait")
        self._pending.clear()
        self._places.clear()
        self._moments = 0
        self._fates[:] = fates.tobytes().ljust(window, b"\0")
        self._digests = array("H", digests.tobytes().ljust(2 * window, b"\0"))
        self._last, self._clock, self._tally = last, float(np.asarray(clock)), dict(tally)
        for number, *rest in zip(*columns, strict=True):
            self._hold(number, PendingDecision(*rest))


def _listed(column: Any) -> list[Any]:
    return column if isinstance(column, list) else list(np.asarray(column).tolist())


def _names(text: list[int]) -> list[str]:
    try:
        return list(json.loads(bytes(text)))
    except (ValueError, TypeError) as error:
        raise TownletError("the saved join does not know whose decisions wait", SAME_RECIPE) from error


def _check(right: bool, wrong: str) -> None:
    if not right:
        raise TownletError(f"the saved join {wrong}", SAME_RECIPE)
