"""The time of a service, which does not follow changes of the host's clock while a process runs."""

from __future__ import annotations

import logging
import socket
import time
from typing import Final

from townlet.decide.logs import log_event
from townlet.decide.storage import StorageNotice

TOLERANCE: Final = 1.0  # seconds by which two clocks may differ
PAUSE: Final = 10.0  # seconds without service that count for pending decisions; a longer pause does not count
logger = logging.getLogger(__name__)


class ServiceClock:
    """Seconds since 1970: the host's clock at the start of the process, then the monotonic clock or that of a database.

    Methods may be called by several threads.
    """

    def __init__(self) -> None:
        self.offset = time.time() - time.monotonic()  # changes only if the clock is set

    def __call__(self) -> float:
        return self.offset + time.monotonic()

    def advance_to(self, at: float) -> None:
        """Continue from this time if the clock is behind it."""
        self.offset = max(self.offset, at - time.monotonic())

    def synchronize(self, now: float) -> None:
        """Continue from the time of the database if the clock differs from it."""
        offset = now - time.monotonic()
        if abs(offset - self.offset) > TOLERANCE:
            self.offset = offset

    def notices(self) -> list[StorageNotice]:
        """A notice if the host's clock differs."""
        skew = time.time() - self()
        if abs(skew) <= TOLERANCE:
            return []
        direction = "ahead of" if skew > 0 else "behind"
        what = f"The clock of {socket.gethostname()} is {abs(skew):.0f} s {direction} the time of the service"
        fix = "Correct that clock, for example with NTP. Decisions have the time of the service, so nothing is lost."
        return [StorageNotice("clock", what, fix, critical=False)]


class ManualClock(ServiceClock):
    """A clock for simulations, which moves only by hand."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.offset = 0.0

    def __call__(self) -> float:
        return self.now

    def advance_to(self, at: float) -> None:
        """Without effect."""

    def synchronize(self, now: float) -> None:
        """Without effect."""

    def notices(self) -> list[StorageNotice]:
        """None."""
        return []


def log_pause(seconds: float) -> None:
    """Log that a pause, or a jump of a clock, does not count for pending decisions."""
    what = f"Nothing was stored for {seconds:.0f} s: the service was stopped, or a clock was changed."
    log_event(logger, "paused", f"{what} Pending decisions expire that much later.", seconds=seconds)
