"""A clock that never goes back, whatever is done to the machine's own."""

from __future__ import annotations

import time


class MonotonicClock:
    """Seconds since 1970 as they were at its beginning, and since then as many as have passed."""

    def __init__(self) -> None:
        self._begun = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._begun + time.monotonic()

    def pass_by(self, moment: float) -> None:
        """Go on from this moment, where it lies ahead: what was written down then is not of the future."""
        self._begun = max(self._begun, moment - time.monotonic())
