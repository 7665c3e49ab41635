"""Log messages that clients can cause thousands of times: of each kind, the 1st, 10th, 100th, … is logged."""

from __future__ import annotations

import logging
import threading
import traceback
from collections import Counter
from typing import Final

MAX_KINDS: Final = 1000  # that are counted separately


class RepeatedMessages:
    """Counts messages by kind. It is also a filter for a logger (`addFilter`)."""

    def __init__(self, max_kinds: int = MAX_KINDS) -> None:
        self._max_kinds = max_kinds
        self._counts = Counter[str]()
        self._lock = threading.Lock()

    def count(self, kind: str) -> str | None:
        """Count a message; returns what to append to it, such as ' (10 times)', or None if it is not to be logged."""
        with self._lock:
            kind = kind if kind in self._counts or len(self._counts) < self._max_kinds else ""
            self._counts[kind] += 1
            count = self._counts[kind]
        if str(count).strip("0") != "1":
            return None
        return f" ({count:,} times)" if count > 1 else ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a record; its kind is its message, without values, and the place of its exception."""
        error = record.exc_info[1] if record.exc_info else None
        place = traceback.format_tb(error.__traceback__, limit=-1) if error else []
        times = self.count(f"{record.msg} {type(error)} {place}")
        if times:
            record.msg, record.args = f"{record.getMessage().rstrip()}{times}", ()
        return times is not None
