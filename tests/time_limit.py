"""Time limits that grow with the current slowness of the machine.

A limit catches what would take minutes, such as a quadratic search or a lock that is never released, but must not fail
because other work runs on the machine. So a known piece of work is timed just before and just after, by the same clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ROUNDS = 200_000
SECONDS = 0.01  # time of ROUNDS additions on an idle core of 2.5 GHz

Clock = Callable[[], float]


@contextmanager
def within(seconds: float, clock: Clock = time.process_time) -> Iterator[None]:
    """Fail if the block takes longer, in CPU time of this process or in wall time (`time.monotonic`)."""
    before, begin = slowdown(clock), clock()
    yield
    took = clock() - begin
    allowed = seconds * max(before, slowdown(clock))
    assert took < allowed, f"it took {took:.2f} s, more than {allowed:.2f} s"


def slowdown(clock: Clock) -> float:
    """How many times slower this machine is now than the one of SECONDS, at least 1."""
    begin, total = clock(), 0
    for number in range(ROUNDS):
        total += number
    return max(1.0, (clock() - begin) / SECONDS)
