"""Marks of seconds, as many times longer as this machine is slower right now than the one they are meant for.

A mark catches what would take minutes: a search in a loop, a lock that is never given back. It must not catch a machine
that is shared with others. So a known piece of work is measured just before and just after, by the same clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ROUNDS = 200_000
SECONDS = 0.01  # of that work on a core of 2.5 GHz that does nothing else

Clock = Callable[[], float]


@contextmanager
def within(seconds: float, clock: Clock = time.process_time) -> Iterator[None]:
    """Fails if the block takes longer; by the time of this process, or by that on the wall (`time.monotonic`)."""
    before, begin = slower(clock), clock()
    yield
    took = clock() - begin
    allowed = seconds * max(before, slower(clock))
    assert took < allowed, f"it took {took:.2f} s of {allowed:.2f}"


def slower(clock: Clock) -> float:
    """How many times slower than that machine this one is now, at least 1."""
    begin, total = clock(), 0
    for number in range(ROUNDS):
        total += number
    return max(1.0, (clock() - begin) / SECONDS)
