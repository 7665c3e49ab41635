"""Join against a simple model: counts always balance, and each outcome counts once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from townlet.decide.join import DecisionCounts, Join, OutcomeStatus
from townlet.errors import TownletError
from townlet.runs.serialization import flatten, unflatten

TERRITORIES = st.sampled_from(["north", "south", "east"])
WINDOW = 6
MOMENTS = st.integers(0, 5).map(float)  # few, so that some are the same


@dataclass
class Slow:
    """A decision in the model."""

    territory: str
    time: float
    at: float
    place: str  # pending, joined, failed, expired or waited


class Joining(RuleBasedStateMachine):
    """Reports are duplicated, late, reordered, unknown or missing; the window is short, so that decisions leave it."""

    numbers = Bundle("numbers")

    def __init__(self) -> None:
        super().__init__()
        self.join = Join(WINDOW)
        self.join.expire(0, 0.0)  # sets its clock to 0
        self.made: dict[int, Slow] = {}
        self.last, self.clock = 0, 0.0
        self.refused: Counter[OutcomeStatus] = Counter()
        self.used: Counter[int] = Counter()

    @rule(
        target=numbers,
        many=st.integers(1, 4),
        skip=st.sampled_from([0, 0, 0, 2, 9]),
        territory=TERRITORIES,
        time=MOMENTS,
        later=st.sampled_from([0.0, 1.0, 2.0, -5.0]),
        send=st.booleans(),
    )
    def decide(self, many: int, skip: int, territory: str, time: float, later: float, send: bool) -> object:
        self.last += skip  # numbers that were never used
        fresh = []
        for _ in range(many):
            self.last += 1
            at = self.clock + later  # the clock may be set back; then time does not advance
            self.join.add_decision(self.last, territory, time, at, send)
            self.clock = max(self.clock, at)
            self.made[self.last] = Slow(territory, time, self.clock, "pending" if send else "waited")
            fresh.append(self.last)
        return multiple(*fresh)

    def expected(self, number: int, counted: OutcomeStatus) -> OutcomeStatus:
        found = self.made.get(number)
        if found and found.place == "pending":
            return counted
        if 0 < number <= self.last - WINDOW:
            return OutcomeStatus.LATE
        if found is None or found.place == "waited":
            return OutcomeStatus.UNKNOWN
        return OutcomeStatus.LATE if found.place == "expired" else OutcomeStatus.DUPLICATE

    def hear(self, number: int, fails: bool) -> None:
        wanted = self.expected(number, OutcomeStatus.FAILED if fails else OutcomeStatus.JOINED)
        assert self.join.add_outcome(number, failed=fails) is wanted
        if wanted in (OutcomeStatus.JOINED, OutcomeStatus.FAILED):
            self.made[number].place = wanted.value
            self.used[number] += 1
        else:
            self.refused[wanted] += 1

    @rule(number=numbers, fails=st.booleans(), times=st.integers(1, 3))
    def report(self, number: int, fails: bool, times: int) -> None:
        for _ in range(times):
            self.hear(number, fails)

    @rule(back=st.integers(-2, 2 * WINDOW), fails=st.booleans())
    def report_one_near_the_window(self, back: int, fails: bool) -> None:
        self.hear(self.last - back, fails)

    @rule(territory=TERRITORIES, time=MOMENTS, lost=st.booleans())
    def observe(self, territory: str, time: float, lost: bool) -> None:
        waiting = [(s.time, n) for n, s in self.made.items() if s.place == "pending" and s.territory == territory]
        wanted = [number for moment, number in sorted(waiting) if moment < time]
        before = self.join.counts
        assert self.join.pending_before(territory, time) == wanted
        assert self.join.counts == before  # reading changes nothing
        for number in [] if lost else wanted:
            self.hear(number, fails=False)

    @rule(later=st.sampled_from([0.0, 1.0, 4.0, -9.0]), after=MOMENTS, most=st.none() | st.integers(0, 8))
    def expire(self, later: float, after: float, most: int | None) -> None:
        at = self.clock + later
        self.clock = max(self.clock, at)
        waiting = [number for number, s in self.made.items() if s.place == "pending"]
        old = {number for number in waiting if self.clock - self.made[number].at > after}
        if most is not None:
            old |= set(waiting[: max(len(waiting) - most, 0)])
        due = self.join.due(at, after, len(waiting) if most is None else most)
        assert due == sorted(old)
        self.join.expire(0, at)  # sets its clock
        for number in due:
            self.join.expire(number, at)
        for number in old:
            self.made[number].place = "expired"

    @rule()
    def save_and_restore(self) -> None:
        """Save and restore through a checkpoint."""
        saved = unflatten(flatten(self.join.state()))
        self.join = Join(WINDOW)
        self.join.add_decision(7, "unused", 0.0, 100.0, True)  # removed by the restore
        self.join.restore(saved)

    @invariant()
    def every_decision_is_in_one_place(self) -> None:
        places = Counter(slow.place for slow in self.made.values())
        counts = self.join.counts
        assert counts == DecisionCounts(
            decisions=len(self.made),
            joined=places["joined"],
            expired=places["expired"],
            pending=places["pending"],
            waited=places["waited"],
            failed=places["failed"],
            duplicates=self.refused[OutcomeStatus.DUPLICATE],
            late=self.refused[OutcomeStatus.LATE],
            unknown=self.refused[OutcomeStatus.UNKNOWN],
        )
        assert counts.decisions == counts.joined + counts.expired + counts.pending + counts.not_executed
        assert counts.balanced
        assert max(self.used.values(), default=0) <= 1

    @invariant()
    def ages_are_those_of_what_waits(self) -> None:
        waiting = [slow for slow in self.made.values() if slow.place == "pending"]
        oldest, mean = self.join.ages(self.clock + 1)
        if waiting:
            all_ages = [self.clock + 1 - slow.at for slow in waiting]
            assert oldest == max(all_ages)
            assert mean == pytest.approx(sum(all_ages) / len(all_ages), abs=1e-5)
        else:
            assert oldest == mean == 0


TestJoining = Joining.TestCase
TestJoining.settings = settings(deadline=None, derandomize=True, max_examples=60, stateful_step_count=40, database=None)


def expire(join: Join, at: float, timeout: float) -> None:
    for number in join.due(at, timeout, 10**9):
        join.expire(number, at)


def test_imbalance_is_detected() -> None:
    assert DecisionCounts(decisions=5, joined=1, expired=1, pending=1, waited=1, failed=1).balanced
    assert not DecisionCounts(decisions=5, joined=1, expired=1, pending=2, waited=1, failed=1).balanced


def test_unreliable_delivery_counts_each_outcome_once() -> None:
    """10 % duplicates, 10 % out of order, 5 % lost, some fail: counts balance after every call."""
    chance, join = random.Random(3), Join()
    statuses: Counter[OutcomeStatus] = Counter()
    waiting: list[tuple[float, int, bool]] = []
    lost = 0
    for number in range(1, 20_001):
        now = number * 0.01
        send = chance.random() < 0.7
        join.add_decision(number, f"territory {number % 50}", now, now, send)
        if send:
            delay = 1.0 if chance.random() < 0.9 else chance.uniform(1.0, 8.0)
            fails = chance.random() < 0.05
            if chance.random() < 0.05:
                lost += 1
            else:
                waiting.append((now + delay, number, fails))
                if chance.random() < 0.1:
                    waiting.append((now + delay + chance.uniform(0, 8.0), number, fails))
        ready = [report for report in waiting if report[0] <= now]
        for report in ready:
            waiting.remove(report)
            statuses[join.add_outcome(report[1], failed=report[2])] += 1
            assert join.counts.balanced
        if number % 100 == 0:
            expire(join, now, 5.0)
            assert join.counts.balanced
    expire(join, 1e9, 5.0)
    counts = join.counts
    assert counts.balanced
    assert counts.pending == 0
    assert (counts.joined, counts.failed) == (statuses[OutcomeStatus.JOINED], statuses[OutcomeStatus.FAILED])
    assert (counts.duplicates, counts.late, counts.unknown) == (
        statuses[OutcomeStatus.DUPLICATE],
        statuses[OutcomeStatus.LATE],
        0,
    )
    assert counts.expired >= lost > 0
    assert min(counts.duplicates, counts.late, counts.failed) > 0


def test_state_is_deterministic() -> None:
    def played() -> Join:
        chance, join = random.Random(9), Join(100)
        for number in range(1, 400):
            join.add_decision(number, f"t{number % 3}", chance.random(), number * 0.1, chance.random() < 0.8)
            join.add_outcome(chance.randrange(1, number + 1))
            expire(join, number * 0.1, 2.0)
        return join

    first, again = (flatten(played().state()) for _ in range(2))
    assert first.keys() == again.keys()
    for name, leaf in first.items():
        assert torch.equal(leaf, again[name]) if isinstance(leaf, torch.Tensor) else leaf == again[name]


def test_memory_does_not_grow_with_past_decisions() -> None:
    join = Join(1000)
    for number in range(1, 50_000):
        join.add_decision(number, f"territory {number}", 0.0, 0.0, True)
        join.add_outcome(number)
    assert join.ages(0.0) == (0.0, 0.0)
    leaves = flatten(join.state()).values()
    assert sum(leaf.numel() if hasattr(leaf, "numel") else len(str(leaf)) for leaf in leaves) < 2100
    assert join.add_outcome(1) is OutcomeStatus.LATE
    assert join.add_outcome(49_500) is OutcomeStatus.DUPLICATE


def test_pending_decision_older_than_the_window_counts() -> None:
    join = Join(10)
    for number in range(1, 101):
        join.add_decision(number, "t", 0.0, 0.0, number == 1)
    assert join.add_outcome(1) is OutcomeStatus.JOINED
    assert join.add_outcome(1) is OutcomeStatus.LATE
    assert join.add_outcome(95) is OutcomeStatus.UNKNOWN  # not a sent decision
    assert join.counts.balanced


def test_skipped_numbers_are_unknown() -> None:
    join = Join(10)
    for number in range(1, 11):
        join.add_decision(number, "t", 0.0, 0.0, True)
        join.add_outcome(number)
    join.add_decision(15, "t", 0.0, 0.0, True)
    assert [join.add_outcome(number) for number in (12, 14, 15, 16)] == [
        OutcomeStatus.UNKNOWN, OutcomeStatus.UNKNOWN, OutcomeStatus.JOINED, OutcomeStatus.UNKNOWN
    ]  # fmt: skip
    assert [join.add_outcome(number) for number in (5, 6)] == [OutcomeStatus.LATE, OutcomeStatus.DUPLICATE]


def test_used_numbers_and_non_finite_times_are_refused() -> None:
    join = Join()
    join.add_decision(5, "t", 0.0, 0.0, True)
    join.add_decision(3, "t", 0.0, 0.0, False)  # a number that was skipped: processes commit in any order
    for number, time, at in ((5, 0.0, 0.0), (3, 0.0, 0.0), (6, float("nan"), 0.0), (6, 0.0, float("inf"))):
        with pytest.raises(ValueError, match="decision"):
            join.add_decision(number, "t", time, at, True)
    assert join.counts == DecisionCounts(decisions=2, pending=1, waited=1)
    assert join.pending_before("t", 1.0) == [5]


def test_incompatible_state_is_refused() -> None:
    join = Join(10)
    join.add_decision(1, "t", 0.0, 0.0, True)
    state = join.state()
    for wrong, words in (
        ({"window": 11}, "has a window of 11 decisions, not 10"),
        ({"counts": {}}, "does not hold the same counts"),
        ({"last": 3}, "lacks the status of some"),
        ({"territories": []}, "does not name the territories"),
        ({"territories": np.frombuffer(b"[]", np.uint8)}, "incomplete pending decisions"),
    ):
        with pytest.raises(TownletError, match=words):
            Join(10).restore({**state, **wrong})
    with pytest.raises(TownletError, match="no 'status'"):
        Join(10).restore({name: leaf for name, leaf in state.items() if name != "status"})
