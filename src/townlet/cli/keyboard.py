"""Single keys from a terminal, without Enter."""

from __future__ import annotations

import os
import re
import select
import sys
from collections import deque
from typing import Any, Final

try:
    import termios
    import tty
except ImportError:  # Windows: towns can be watched there, not played by hand
    TERMINALS = False
else:
    TERMINALS = True

ARROWS: Final = {"A": "up", "B": "down", "C": "right", "D": "left"}
# An arrow, any other sequence that a special key sends, or one character.
KEY: Final = re.compile(r"\x1b[\[O]([ABCD])|\x1b[\[O][0-9;]*[A-Za-z~]|[\s\S]")


def keys_of(text: str) -> list[str]:
    """The keys behind what a terminal sent: "up", "down", "left", "right" or the character typed."""
    return [ARROWS[m[1]] if m[1] else m[0] for m in KEY.finditer(text)]


class Keyboard:
    """Inside `with`, keys arrive as they are pressed and are not shown; Ctrl-C still interrupts."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._in = sys.stdin.fileno() if descriptor is None else descriptor
        self._waiting: deque[str] = deque()
        self._before: list[Any] = []

    @staticmethod
    def available() -> bool:
        """Whether someone can press keys here."""
        return TERMINALS and sys.stdin is not None and sys.stdin.isatty()

    def __enter__(self) -> Keyboard:
        self._before = termios.tcgetattr(self._in)
        tty.setcbreak(self._in)
        return self

    def __exit__(self, *error: object) -> None:
        termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def key(self, timeout: float | None) -> str:
        """The next key, or "" when none came in time (seconds; None waits as long as it takes)."""
        if not self._waiting and select.select([self._in], [], [], timeout)[0]:
            sent = os.read(self._in, 64)
            if not sent:  # the terminal is gone
                raise KeyboardInterrupt
            self._waiting.extend(keys_of(sent.decode(errors="ignore")))
        return self._waiting.popleft() if self._waiting else ""
