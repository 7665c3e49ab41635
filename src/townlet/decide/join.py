"""Join of decisions and outcomes: each outcome counts once, however often and in whatever order it arrives.

No clock and no disk: the state follows from the calls in their order, so that replaying a log reproduces it.
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
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from townlet.errors import TownletError
from townlet.interfaces.state import SAME_SETTINGS, State, get_part

WINDOW: Final = 1_000_000  # past decisions whose status and report are remembered, three bytes each
NONE, WAITED, JOINED, FAILED, EXPIRED = range(5)  # remembered status; pending decisions have NONE, too
MICRO: Final = 1_000_000  # times are summed in whole microseconds, which is exact


class OutcomeStatus(Enum):
    """The effect of a report; the value is the name of its counter."""

    JOINED = "joined"  # counted
    FAILED = "failed"  # counted: the decision was not carried out
    DUPLICATE = "duplicates"  # an equal report came before
    CONTRADICTING = "contradicting"  # a different outcome was reported earlier
    LATE = "late"  # the decision has expired, or is older than the window
    UNKNOWN = "unknown"  # no such decision, or nothing was sent


@dataclass(frozen=True)
class DecisionCounts:
    """Decisions by status, and counts of rejected reports."""

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
        """Decisions to wait, and decisions that could not be carried out."""
        return self.waited + self.failed

    @property
    def balanced(self) -> bool:
        """Invariant: every decision has exactly one status."""
        return self.decisions == self.joined + self.expired + self.pending + self.not_executed


COUNTERS: Final = tuple(field.name for field in fields(DecisionCounts) if field.name != "pending")
REJECTED: Final = ("duplicates", "late", "unknown", "contradicting")  # counters of rejected reports


def report_digest(value: float, failed: bool) -> int:
    """16-bit digest of a report, to distinguish duplicates from contradictions; never 0, which means no report."""
    return crc32(struct.pack("<d?", value + 0.0, failed)) & 0xFFFF or 1


class PendingDecision(NamedTuple):
    """A decision that waits for its outcome."""

    territory: str
    time: float  # the game's
    at: float  # the server's


class Join:
    """Pending decisions, and the status of past ones. Memory grows only with the number of pending decisions."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._pending: OrderedDict[int, PendingDecision] = OrderedDict()  # by number, and so by `at`
        self._by_territory: dict[str, list[tuple[float, int]]] = {}  # (time, number), sorted
        self._status = bytearray(window)  # of decision n at n % window
        self._digests = array("H", bytes(2 * window))  # of the counted reports, at the same indices
        self._last = 0  # number of the newest decision
        self.clock = -np.inf  # the latest server time seen
        self._sum_at = 0  # sum of `at` over pending decisions, in microseconds
        self._counts = dict.fromkeys(COUNTERS, 0)

    def add_decision(self, number: int, territory: str, time: float, at: float, send: bool) -> None:
        """Add a decision made at the game's `time` and the server's `at`; without `send` it has no outcome."""
        if number <= self._last:
            raise ValueError(f"decision {number} comes after {self._last}")
        if not (isfinite(time) and isfinite(at)):
            raise ValueError(f"decision {number} has a time that is not finite: {time}, {at}")
        for skipped in range(max(self._last, number - self._window) + 1, number + 1):  # become unknown
            self._status[skipped % self._window] = NONE
            self._digests[skipped % self._window] = 0
        self._last = number
        self.clock = max(self.clock, at)
        self._counts["decisions"] += 1
        if send:
            self._add_pending(number, PendingDecision(territory, time, self.clock))
        else:
            self._set_status(number, WAITED, "waited")

    def _add_pending(self, number: int, pending: PendingDecision) -> None:
        self._pending[number] = pending
        insort(self._by_territory.setdefault(pending.territory, []), (pending.time, number))
        self._sum_at += round(pending.at * MICRO)

    def _remove_pending(self, number: int) -> bool:
        pending = self._pending.pop(number, None)
        if pending is None:
            return False
        queue = self._by_territory[pending.territory]
        del queue[bisect_left(queue, (pending.time, number))]
        if not queue:
            del self._by_territory[pending.territory]
        self._sum_at -= round(pending.at * MICRO)
        return True

    def _set_status(self, number: int, status: int, counter: str, digest: int = 0) -> None:
        self._counts[counter] += 1
        if number > self._last - self._window:
            self._status[number % self._window] = status
            self._digests[number % self._window] = digest

    def is_pending(self, number: int) -> bool:
        return number in self._pending

    def add_outcome(self, number: int, digest: int = 0, failed: bool = False) -> OutcomeStatus:
        """Add an outcome, or a report that the decision could not be carried out; only the first one counts.

        An observed outcome has the digest 0.
        """
        if not self._remove_pending(number):
            return self.reject(number, digest)
        self._set_status(number, FAILED if failed else JOINED, "failed" if failed else "joined", digest)
        return OutcomeStatus.FAILED if failed else OutcomeStatus.JOINED

    def reject(self, number: int, digest: int = 0) -> OutcomeStatus:
        """Count a report about a decision that is not pending."""
        status, remembered = OutcomeStatus.UNKNOWN, self._status[number % self._window]
        if 0 < number <= self._last - self._window or (0 < number <= self._last and remembered == EXPIRED):
            status = OutcomeStatus.LATE
        elif 0 < number <= self._last and remembered in (JOINED, FAILED):
            known = self._digests[number % self._window]
            contradicts = digest and known not in (0, digest)
            status = OutcomeStatus.CONTRADICTING if contradicts else OutcomeStatus.DUPLICATE
        self._counts[status.value] += 1
        return status

    def contradicts_failure(self, number: int) -> bool:
        """Whether a decision now reported as executed was reported as failed before; counts it if so."""
        remembered = self._last - self._window < number <= self._last
        if not remembered or self._status[number % self._window] != FAILED:
            return False
        self._counts["contradicting"] += 1
        return True

    @property
    def rejected(self) -> tuple[int, ...]:
        """Counts of rejected reports, in the order of `REJECTED`."""
        return tuple(self._counts[name] for name in REJECTED)

    def set_rejected(self, counts: Sequence[int]) -> None:
        """Replace these counts with logged ones."""
        self._counts.update(zip(REJECTED, counts, strict=True))

    def pending_before(self, territory: str, time: float) -> list[int]:
        """Pending decisions of a territory made before this game time, in its order."""
        queue = self._by_territory.get(territory, [])
        return [number for _, number in queue[: bisect_left(queue, (time, 0))]]

    def expire(self, at: float, after: float, most: int | None = None) -> list[int]:
        """Expire decisions pending for more than `after` seconds, and the oldest beyond `most`."""
        self.clock = max(self.clock, at)
        expired = []
        while self._pending:
            number, pending = next(iter(self._pending.items()))
            if self.clock - pending.at <= after and (most is None or len(self._pending) <= most):
                break
            self._remove_pending(number)
            self._set_status(number, EXPIRED, "expired")
            expired.append(number)
        return expired

    @property
    def counts(self) -> DecisionCounts:
        return DecisionCounts(pending=len(self._pending), **self._counts)

    @property
    def decisions(self) -> int:
        """Number of decisions made; cheaper than `counts`."""
        return self._counts["decisions"]

    def ages(self, at: float) -> tuple[float, float]:
        """Seconds for which the oldest pending decision has been pending, and the mean; 0 without any."""
        if not self._pending:
            return 0.0, 0.0
        now = max(self.clock, at)
        mean = max(now - self._sum_at / MICRO / len(self._pending), 0.0)
        return now - next(iter(self._pending.values())).at, mean

    def state(self) -> State:
        pending = list(self._pending.values())
        return {
            "window": self._window,
            "last": self._last,
            "clock": np.array(self.clock),
            "counts": dict(self._counts),
            "status": np.frombuffer(self._status, np.uint8)[: self._last + 1].copy(),
            "digests": np.frombuffer(self._digests, np.uint16)[: self._last + 1].copy(),
            "numbers": np.array(list(self._pending), np.int64),
            "territories": np.frombuffer(json.dumps([one.territory for one in pending]).encode(), np.uint8),
            "times": np.array([one.time for one in pending], np.float64),
            "at": np.array([one.at for one in pending], np.float64),
        }

    def restore(self, state: State) -> None:
        """Restore a state that was taken with the same window."""
        names = ("window", "last", "clock", "counts", "status", "digests", "numbers", "territories", "times", "at")
        window, last, clock, counts, status, digests, *columns = (get_part(state, name, "join") for name in names)
        status, digests = np.asarray(status, np.uint8), np.asarray(digests, np.uint16)
        columns = [column if isinstance(column, list) else np.asarray(column).tolist() for column in columns]
        try:
            columns[1] = json.loads(bytes(columns[1]))
        except (ValueError, TypeError) as error:
            what = "the saved join does not name the territories of pending decisions"
            raise TownletError(what, SAME_SETTINGS) from error
        _check(window == self._window, f"remembers {window} decisions, this one {self._window}")
        _check(isinstance(counts, Mapping) and set(counts) == set(COUNTERS), "does not hold the same counts")
        _check(isinstance(last, int) and len(status) == min(last + 1, window), "lacks the status of some decisions")
        _check(len(digests) == len(status), "lacks the reports of some decisions")
        _check(len({len(column) for column in columns}) == 1, "has incomplete pending decisions")
        self._pending.clear()
        self._by_territory.clear()
        self._sum_at = 0
        self._status[:] = status.tobytes().ljust(window, b"\0")
        self._digests = array("H", digests.tobytes().ljust(2 * window, b"\0"))
        self._last, self.clock, self._counts = last, float(np.asarray(clock)), dict(counts)
        for number, *rest in zip(*columns, strict=True):
            self._add_pending(number, PendingDecision(*rest))


def _check(valid: bool, problem: str) -> None:
    if not valid:
        raise TownletError(f"the saved join {problem}", SAME_SETTINGS)
