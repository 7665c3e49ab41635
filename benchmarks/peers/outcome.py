"""What a use of a library returns, and how long it lasts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

ID: Final = "Townlet/Town-v0"


@dataclass(frozen=True)
class Outcome:
    """What a library did on a town of some rows."""

    rows: int
    steps: int
    checked: str


def repeat_for(seconds: float) -> Iterator[int]:
    """0, 1, 2, … until the time is over, at least one."""
    end, count = time.perf_counter() + seconds, 0
    while count == 0 or time.perf_counter() < end:
        yield count
        count += 1
