"""Answers that many ask for at the same time, worked out once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
MOST: Final = 64  # answers that are remembered


class Shared(Generic[T]):
    """What a question was answered with is good for some seconds, for everybody; two who ask at once wait for one."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._known, self._lock = seconds, dict[Hashable, tuple[float, T]](), threading.Lock()

    def get(self, question: Hashable, answer: Callable[[], T]) -> T:
        """The answer from memory, or a new one; a failure is not remembered."""
        with self._lock:
            found = self._known.get(question)
            if found is None or time.monotonic() - found[0] > self._seconds:
                self._known.pop(question, None)
                self._known[question] = found = time.monotonic(), answer()
                if len(self._known) > MOST:
                    del self._known[next(iter(self._known))]
            return found[1]
