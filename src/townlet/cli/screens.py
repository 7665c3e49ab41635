"""Screens to watch on: the terminal, and a window."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from townlet.cli.keyboard import Keyboard
from townlet.cli.stage import Seat, stage
from townlet.errors import TownletError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live


class Terminal:
    """The whole terminal, inside `with`; keys are heard where there is a keyboard."""

    def __init__(self, console: Console) -> None:
        self._console, self._open = console, ExitStack()
        self._keys: Keyboard | None = None
        self._live: Live | None = None

    def __enter__(self) -> Terminal:
        from rich.live import Live

        self._keys = self._open.enter_context(Keyboard()) if Keyboard.available() else None
        self._live = self._open.enter_context(Live(console=self._console, screen=True, auto_refresh=False))
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def draw(self, seats: Sequence[Seat], words: str, moment: float) -> None:
        """All seats, as there is room."""
        assert self._live is not None
        self._live.update(stage(seats, self._console, words, moment), refresh=True)

    def key(self, seconds: float | None) -> str:
        """The next key; without a keyboard only time goes by."""
        if self._keys is not None:
            return self._keys.key(seconds)
        time.sleep(seconds or 0)
        return ""


class InWindow:
    """A window of its own, inside `with`; needs pygame, a screen, and something that draws pictures."""

    def __init__(self, title: str) -> None:
        from townlet.window import Window, has_screen

        if not has_screen():
            fix = "watch in the terminal (leave out --window), or write a video: --video episode.mp4"
            raise TownletError("there is no screen to open a window on", fix)
        self._window = Window(title, 0)

    def __enter__(self) -> InWindow:
        return self

    def __exit__(self, *error: object) -> None:
        self._window.close()

    def draw(self, seats: Sequence[Seat], words: str, moment: float) -> None:
        """The pictures of all seats side by side; the words are its title."""
        from townlet.runs.video import beside

        self._window.show(beside([seat.show for seat in seats]))
        self._window.title(" · ".join(f"{seat.name}: {seat.show.told()}" for seat in seats) + f" · {words}")

    def key(self, seconds: float | None) -> str:
        """The next key; closing the window is one as well."""
        return self._window.key(seconds)
