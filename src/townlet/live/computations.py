"""Computations for viewers, one at a time in a thread of low priority."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from townlet.agents.agent import Interrupt

NICENESS: Final = 3  # of the thread; with more, the server would often wait for it to release the interpreter lock
T = TypeVar("T")


class ComputationCancelled(Exception):
    """The viewer no longer needs the result."""


class Computations:
    """Runs the computations of all viewers in one thread; the next one starts when the last one has returned."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, name, initializer=_lower_priority)

    async def run(self, work: Callable[[Interrupt], T]) -> T:
        """The result of `work`. If this call is cancelled, work that waits is dropped, and running work interrupted."""
        cancelled = threading.Event()

        def check_interrupt() -> None:
            if cancelled.is_set():
                raise ComputationCancelled

        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, check_interrupt)
        finally:
            cancelled.set()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _lower_priority() -> None:
    if sys.platform == "linux":  # elsewhere the whole process would be slowed down
        os.nice(NICENESS)
