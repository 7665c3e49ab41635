"""The last ten minutes of a service: how fast counts grow, and figures one below the other in time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

EVERY: Final = 2.0  # seconds between two points
SLACK: Final = 0.5  # since nobody looks at the very moment
POINTS: Final = 300
LOOKS: Final = 10  # by which a pace is told, one a second
DIGITS: Final = 4  # of a figure in a curve
NAMES: Final = (
    "decisions_per_second", "p50_ms", "p99_ms", "pass_rate", "entropy", "expected", "actual", "loss",
)  # fmt: skip


class RateMeter:
    """How fast a count grows, over the last looks at it."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque(maxlen=LOOKS + 1)

    def look(self, now: float, count: int) -> None:
        """It is so high now, in seconds of a clock that never goes back."""
        self._looks.append((now, count))

    @property
    def per_second(self) -> float:
        """0 before it was looked at twice."""
        (then, before), (now, count) = (self._looks[0], self._looks[-1]) if self._looks else ((0.0, 0), (0.0, 0))
        return (count - before) / (now - then) if now > then else 0.0


class RecentCurves:
    """A row of figures every two seconds; what is not known yet is None."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float | None, ...]] = deque(maxlen=POINTS)
        self._due = float("-inf")

    def add(self, at: float, now: float, figures: Mapping[str, float | None]) -> None:
        """A row at this second since 1970, where the last one is old enough by the clock that never goes back."""
        if now >= self._due:
            self._due = now + EVERY - SLACK
            self._rows.append((round(at, 1), *(_short(figures[name]) for name in NAMES)))

    def told(self) -> dict[str, Any]:
        """As JSON: the names of the columns, and the rows, oldest first."""
        return {"names": ["at", *NAMES], "rows": list(self._rows)}


def _short(value: float | None) -> float | None:
    return None if value is None else round(float(f"{value:.{DIGITS}g}"), 9)
