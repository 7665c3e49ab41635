"""A window on the screen that shows pictures (extra `window`: pygame)."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError

# What pygame calls keys that are no characters.
NAMES: Final = {"up": "up", "down": "down", "left": "left", "right": "right", "space": " ", "return": "\r"}
CLOSED: Final = "q"  # closing the window is a wish to leave
MOMENT: Final = 0.005  # seconds between two looks at the keyboard


def has_screen() -> bool:
    """Whether a window can be seen here."""
    if sys.platform.startswith(("win", "darwin")):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def use_headless_driver() -> None:
    """Let pygame draw pictures where there is no screen, and say nothing about it."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # else it greets on standard output
    if not has_screen():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")


class Window:
    """One window; it opens with the first picture and keeps to a rate of pictures a second."""

    def __init__(self, title: str, rate: float) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        try:
            import pygame
        except ImportError as missing:
            raise TownletError(
                "a window needs pygame, which is not installed", 'install it: pip install "townlet[window]"'
            ) from missing
        self._pygame: Any = pygame
        self._title, self._rate = title, rate
        self._screen: Any = None
        self._clock: Any = None
        self._keys: deque[str] = deque()

    def show(self, picture: NDArray[np.uint8]) -> None:
        """Show a picture [height, width, 3], waiting as long as the rate asks."""
        game = self._pygame
        if self._screen is None:
            game.display.init()
            self._screen = game.display.set_mode((picture.shape[1], picture.shape[0]))
            game.display.set_caption(self._title)
            self._clock = game.time.Clock()
        self._listen()  # also keeps the system from calling the window unresponsive
        self._screen.blit(game.surfarray.make_surface(picture.swapaxes(0, 1)), (0, 0))
        game.display.flip()
        self._clock.tick(self._rate)

    def title(self, text: str) -> None:
        """Another title."""
        self._title = text
        if self._screen is not None:
            self._pygame.display.set_caption(text)

    def key(self, seconds: float | None) -> str:
        """The next key, named as a terminal's keyboard does; "" when none came in time (None waits)."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._screen is not None:
            self._listen()
            if self._keys:
                return self._keys.popleft()
            if deadline is not None and time.monotonic() >= deadline:
                break
            time.sleep(MOMENT)
        return ""

    def _listen(self) -> None:
        game = self._pygame
        for event in game.event.get():
            if event.type == game.QUIT:
                self._keys.append(CLOSED)
            elif event.type == game.KEYDOWN:
                named = NAMES.get(game.key.name(event.key), event.unicode)
                self._keys.extend([named] if named else [])

    def close(self) -> None:
        """Close it; a later picture opens it again."""
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None
