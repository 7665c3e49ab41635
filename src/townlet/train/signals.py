"""Ctrl-C and SIGTERM: the first asks to save and stop, the second leaves at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Final

from townlet.errors import EXIT_INTERRUPTED

ASKING: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """Somebody asked to stop, in the midst of what can be done again; where nobody catches it, it is a Ctrl-C."""


class Signals:
    """While this context lasts, `asked` tells whether somebody wants the run to stop.

    Once it is `urgent`, nothing is left to save: asking then interrupts at once. So many `echoes` of the first do not
    count.
    """

    def __init__(self, echoes: int = 0) -> None:
        self.asked = self.urgent = False
        self._echoes = echoes
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # Python allows it nowhere else
            self._before = {number: signal.signal(number, self._ask) for number in ASKING}
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked and self._echoes:
            self._echoes -= 1
            return
        if self.asked:
            os._exit(EXIT_INTERRUPTED)
        self.asked = True
        if self.urgent:
            raise KeyboardInterrupt

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
