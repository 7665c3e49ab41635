"""Loops of the service, such as training and election: work that is repeated until the loop is stopped."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from errno import EMFILE, ENFILE
from math import inf
from typing import Final

from townlet.errors import TownletError
from townlet.web.limits import DESCRIPTOR_REMEDY

MAX_PAUSE: Final = 5.0  # seconds; the pause doubles with each failure in a row, up to this
SHOWN: Final = 60.0  # seconds for which an unexpected error is a problem after the work succeeded again
logger = logging.getLogger(__name__)


class ServiceLoop:
    """Repeats work in a thread, or in the event loop. An error does not end it: the work is tried again."""

    def __init__(self, name: str, work: Callable[[], object], interval: float) -> None:
        """`interval`: seconds from one beginning of the work to the next."""
        self.name = name
        self._work = work
        self._interval = interval
        self._failures = 0  # in a row
        self._error = ""  # the last one
        self._shown_until = -inf
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def problem(self) -> str:
        """The last error, while the work fails, and for some time if it was unexpected; else empty."""
        return self._error if self._failures or time.monotonic() < self._shown_until else ""

    @property
    def ended(self) -> bool:
        """Whether its thread has ended."""
        return self._thread is not None and not self._thread.is_alive()

    def start(self) -> None:
        """Repeat the work in a thread."""
        thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """End the thread, once its work is done."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def pause(self, seconds: float) -> None:
        """In the thread, let other threads run."""
        if threading.current_thread() is self._thread:
            self._stop.wait(seconds)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._stop.wait(self.attempt())

    async def run_in_event_loop(self) -> None:
        """Repeat the work until the task is canceled."""
        while True:
            await asyncio.sleep(self.attempt())

    def attempt(self) -> float:
        """Do the work once; returns the seconds until the next time."""
        started = time.monotonic()
        try:
            self._work()
        except (Exception, SystemExit) as error:  # SystemExit would end a thread silently
            self._note(error)
            return min(self._interval * 2.0 ** min(self._failures, 10), MAX_PAUSE)
        self._failures = 0
        return max(0.0, self._interval - (time.monotonic() - started))

    def _note(self, error: BaseException) -> None:
        self._failures += 1
        expected = isinstance(error, TownletError)
        if not expected:
            self._shown_until = time.monotonic() + SHOWN
        text = str(error) if expected else describe_error(error)[:300]
        if text != self._error or self._failures == 1:  # once, although it is repeated
            logger.warning("%s failed, and is tried again: %s", self.name, text, exc_info=None if expected else error)
        self._error = text


def describe_error(error: BaseException) -> str:
    """The error as text, with the remedy if file descriptors are used up."""
    if isinstance(error, OSError) and error.errno in (EMFILE, ENFILE):
        return f"file descriptors are used up: {DESCRIPTOR_REMEDY}"
    return f"{type(error).__name__}: {error}"
