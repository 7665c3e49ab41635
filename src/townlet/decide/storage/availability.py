"""A storage that cannot be used at the moment, and for how long work is repeated until it can."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from townlet.errors import Diagnostic, TownletError

RETRY_SECONDS: Final = 10.0  # for which a message waits until the storage is available again
RETRY_PAUSE: Final = 0.1
Result = TypeVar("Result")


class StorageUnavailable(TownletError):
    """Nothing can be stored at the moment, and nothing can be decided; the message gives the reason."""


class Retry:
    """Repeats attempts while the storage is unavailable, as long as another one is expected to end in time."""

    def __init__(self) -> None:
        self._problem: Diagnostic | None = None  # of the last attempt; None if it succeeded
        self._seconds = 0.0  # that it took

    def __call__(self, attempt: Callable[[], Result], until: float | None = None) -> Result:
        """What the attempt returns. `until`: by the monotonic clock, `RETRY_SECONDS` from now by default.

        What an attempt has stored although it failed is found by the next one.
        """
        if until is None:
            until = time.monotonic() + RETRY_SECONDS
        while True:
            begun = time.monotonic()
            # At most half of the time, so that an attempt is made if all of it is left.
            expected = min(self._seconds, RETRY_SECONDS / 2)
            if (problem := self._problem) is not None and begun + expected > until:
                raise StorageUnavailable(problem.what, problem.fix)
            try:
                result = attempt()
            except StorageUnavailable as error:
                self._problem = error.diagnostics[0]
                self._seconds = time.monotonic() - begun
                time.sleep(RETRY_PAUSE)
            else:
                self._problem = None
                return result
