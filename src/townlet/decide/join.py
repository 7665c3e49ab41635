"""Join of decisions and outcomes: each outcome counts once, however often and in whatever order it arrives.

It reads neither the system clock nor the disk: its state follows from the sequence of calls, so that replaying a log
reproduces it. `time` is always the game's time, `at` the server's.
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

from townlet.decide.clock import PAUSE
from townlet.errors import TownletError
from townlet.interfaces.state import SAME_SETTINGS, State, get_part

WINDOW: Final = 1_000_000  # past decisions whose status and report digest are stored, three bytes each
# Stored status. NONE: unknown or pending. WAITED: a decision to wait, which is not sent and has no outcome.
NONE, WAITED, JOINED, FAILED, EXPIRED = range(5)
MICRO: Final = 1_000_000  # times are summed as integer microseconds, so that adding and removing cancels exactly


class OutcomeStatus(Enum):
    """What became of an outcome or report; the value is the name of its counter."""

    JOINED = "joined"  # accepted
    FAILED = "failed"  # accepted: the decision could not be carried out
    DUPLICATE = "duplicates"  # an equal report arrived earlier
    CONTRADICTING = "contradicting"  # a different outcome was reported earlier
    LATE = "late"  # the decision has expired, or is older than the window
    UNKNOWN = "unknown"  # no such decision, or a decision to wait


@dataclass(frozen=True)
class DecisionCounts:
    """Decisions by status, and counts of rejected reports."""

    decisions: int = 0  # the sum of the next five
    joined: int = 0
    expired: int = 0
    pending: int = 0
    waited: int = 0  # decisions to wait
    failed: int = 0
    duplicates: int = 0  # from here on: rejected reports
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
    return (crc32(struct.pack("<d?", value + 0.0, failed)) & 0xFFFF) or 1  # adding 0.0 turns −0.0 into 0.0


def rejection(status: int, stored: int, digest: int) -> OutcomeStatus:
    """Why a report about a decision that is not pending is rejected; `stored` is the digest of the accepted report."""
    if status == EXPIRED:
        return OutcomeStatus.LATE
    if status not in (JOINED, FAILED):
        return OutcomeStatus.UNKNOWN
    return OutcomeStatus.CONTRADICTING if digest and stored not in (0, digest) else OutcomeStatus.DUPLICATE


class PendingDecision(NamedTuple):
    """A decision whose outcome is not known yet."""

    territory: str
    time: float
    at: float


class Join:
    """Pending decisions, and the status of past ones. Memory grows only with the number of pending decisions."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._pending: OrderedDict[int, PendingDecision] = OrderedDict()  # by number, and so by `at`
        self._by_territory: dict[str, list[tuple[float, int]]] = {}  # (time, number), sorted
        self._status = bytearray(window)  # ring buffer: decision n is at n % window
        # Digests of accepted reports, at the same indices; an expired decision has `inactive` there.
        self._digests = array("H", bytes(2 * window))
        self._last = 0  # number of the newest decision
        self.clock = -np.inf  # the latest `at` of all calls
        self._sum_at = 0  # sum of `at` over pending decisions, in microseconds
        self._counts = dict.fromkeys(COUNTERS, 0)

    def add_decision(self, number: int, territory: str, time: float, at: float, send: bool) -> None:
        """Add a decision; `send` is False for a decision to wait, which has no outcome."""
        if number <= self._last and not self._is_unused(number):
            raise ValueError(f"decision {number} exists, or is too old: the last one is {self._last}")
        if not (isfinite(time) and isfinite(at)):
            raise ValueError(f"decision {number} has a time that is not finite: {time}, {at}")
        for cleared in range(max(self._last, number - self._window) + 1, number + 1):  # skipped numbers stay unknown
            self._status[cleared % self._window] = NONE
            self._digests[cleared % self._window] = 0
        self._last = max(self._last, number)
        self.clock = max(self.clock, at)
        self._counts["decisions"] += 1
        if send:
            self._add_pending(number, PendingDecision(territory, time, self.clock))  # its `at` never decreases
        else:
            self._set_status(number, WAITED, "waited")

    def _is_unused(self, number: int) -> bool:
        """Whether a number was skipped. Processes that share a database commit their decisions in any order."""
        in_window = self._last - self._window < number
        return in_window and self._status[number % self._window] == NONE and number not in self._pending

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
        """Add an outcome, or a report that the decision could not be carried out; only the first one is accepted.

        `digest` is that of the report, 0 if the outcome was computed from the next observation.
        """
        if not self._remove_pending(number):
            return self.count_rejected(number, digest)
        if failed:
            self._set_status(number, FAILED, "failed", digest)
            return OutcomeStatus.FAILED
        self._set_status(number, JOINED, "joined", digest)
        return OutcomeStatus.JOINED

    def count_rejected(self, number: int, digest: int = 0) -> OutcomeStatus:
        """Count a report about a decision that is not pending, by the reason for which it is rejected."""
        status = self._rejection(number, digest)
        self._counts[status.value] += 1
        return status

    def _rejection(self, number: int, digest: int) -> OutcomeStatus:
        if not 0 < number <= self._last:
            return OutcomeStatus.UNKNOWN
        if self.is_forgotten(number):
            return OutcomeStatus.LATE
        return rejection(self._status[number % self._window], self._digests[number % self._window], digest)

    def status(self, number: int) -> int:
        """The stored status of a decision; NONE if it is pending, unknown, or older than the window."""
        in_window = self._last - self._window < number <= self._last
        return self._status[number % self._window] if in_window else NONE

    def digest(self, number: int) -> int:
        """The digest of the accepted report about a decision within the window; 0 if there is none."""
        return self._digests[number % self._window]

    def is_forgotten(self, number: int) -> bool:
        """Whether a decision is older than the window."""
        return number <= self._last - self._window

    def count_contradicting(self) -> None:
        """Count a report of success about a decision that was reported as failed earlier."""
        self._counts["contradicting"] += 1

    @property
    def rejected(self) -> tuple[int, ...]:
        """Counts of rejected reports, in the order of `REJECTED`."""
        return tuple(self._counts[name] for name in REJECTED)

    def set_rejected(self, counts: Sequence[int]) -> None:
        """Replace the counts of rejected reports with logged ones."""
        self._counts.update(zip(REJECTED, counts, strict=True))

    def pending_before(self, territory: str, time: float) -> list[int]:
        """Numbers of a territory's pending decisions made before this game time, the earliest first."""
        queue = self._by_territory.get(territory, [])
        return [number for _, number in queue[: bisect_left(queue, (time, 0))]]

    def due(self, at: float, timeout: float, max_pending: int) -> list[int]:
        """Decisions to expire: those pending for over `timeout` seconds, and the oldest beyond `max_pending`."""
        now, surplus = max(self.clock, at), len(self._pending) - max_pending
        numbers = []
        for index, (number, pending) in enumerate(self._pending.items()):
            if now - pending.at <= timeout and index >= surplus:
                break
            numbers.append(number)
        return numbers

    def resume(self, at: float) -> None:
        """Continue after a start: a long pause, in which nothing could be reported, does not count as pending time."""
        pause = at - self.clock
        self.clock = max(self.clock, at)
        if pause > PAUSE:
            for number, pending in self._pending.items():
                self._pending[number] = pending._replace(at=pending.at + pause)
            self._sum_at = sum(round(pending.at * MICRO) for pending in self._pending.values())

    def expire(self, number: int, at: float, inactive: bool = False) -> None:
        """Expire a pending decision; without effect if its outcome is known. `inactive`: it was never activated."""
        self.clock = max(self.clock, at)
        if self._remove_pending(number):
            self._set_status(number, EXPIRED, "expired", digest=int(inactive))

    def expired_inactive(self, number: int) -> bool:
        """Whether a decision expired without having been activated."""
        return self.status(number) == EXPIRED and self.digest(number) == 1

    @property
    def counts(self) -> DecisionCounts:
        return DecisionCounts(pending=len(self._pending), **self._counts)

    @property
    def last(self) -> int:
        """The highest number of a decision."""
        return self._last

    @property
    def decisions(self) -> int:
        """Number of decisions made; cheaper than `counts`."""
        return self._counts["decisions"]

    def ages(self, at: float) -> tuple[float, float]:
        """Age in seconds of the oldest pending decision, and the mean age; zeros if none is pending."""
        if not self._pending:
            return 0.0, 0.0
        now = max(self.clock, at)
        mean = max(now - self._sum_at / MICRO / len(self._pending), 0.0)
        return now - next(iter(self._pending.values())).at, mean

    def state(self) -> State:
        pending = list(self._pending.values())
        used = self._last + 1  # entries of the ring buffers; all of them once it exceeds the window
        return {
            "window": self._window,
            "last": self._last,
            "clock": np.array(self.clock),
            "counts": dict(self._counts),
            "status": np.frombuffer(self._status, np.uint8)[:used].copy(),
            "digests": np.frombuffer(self._digests, np.uint16)[:used].copy(),
            "numbers": np.array(list(self._pending), np.int64),
            "territories": np.frombuffer(json.dumps([one.territory for one in pending]).encode(), np.uint8),
            "times": np.array([one.time for one in pending], np.float64),
            "at": np.array([one.at for one in pending], np.float64),
        }

    def restore(self, state: State) -> None:
        """Restore a state that was taken with the same window."""
        window, last, clock, counts = (get_part(state, name, "join") for name in ("window", "last", "clock", "counts"))
        status = np.asarray(get_part(state, "status", "join"), np.uint8)
        digests = np.asarray(get_part(state, "digests", "join"), np.uint16)
        numbers, territories, times, at = (
            np.asarray(get_part(state, name, "join")).tolist() for name in ("numbers", "territories", "times", "at")
        )
        try:
            territories = json.loads(bytes(territories))
        except (ValueError, TypeError) as error:
            what = "the saved join does not name the territories of pending decisions"
            raise TownletError(what, SAME_SETTINGS) from error
        _check(window == self._window, f"has a window of {window} decisions, not {self._window}")
        _check(isinstance(counts, Mapping) and set(counts) == set(COUNTERS), "does not hold the same counts")
        _check(isinstance(last, int) and len(status) == min(last + 1, window), "lacks the status of some decisions")
        _check(len(digests) == len(status), "lacks the report digests of some decisions")
        _check(len(numbers) == len(territories) == len(times) == len(at), "has incomplete pending decisions")
        self._pending.clear()
        self._by_territory.clear()
        self._sum_at = 0
        self._status[:] = status.tobytes().ljust(window, b"\0")
        self._digests = array("H", digests.tobytes().ljust(2 * window, b"\0"))
        self._last, self.clock, self._counts = last, float(np.asarray(clock)), dict(counts)
        for number, *pending in zip(numbers, territories, times, at, strict=True):
            self._add_pending(number, PendingDecision(*pending))


def _check(valid: bool, problem: str) -> None:
    if not valid:
        raise TownletError(f"the saved join {problem}", SAME_SETTINGS)
