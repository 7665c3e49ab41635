"""A window that shows images, drawn by pygame."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError

# Special keys, from pygame's names to those that a terminal uses.
KEYS: Final = {"up": "up", "down": "down", "left": "left", "right": "right", "space": " ", "return": "\r"}
QUIT_KEY: Final = "q"  # closing the window counts as this key
POLL_SECONDS: Final = 0.005
INSTALL_PYGAME: Final = "install it: pip install pygame-ce"


def has_screen() -> bool:
    """Whether a display is available."""
    if sys.platform.startswith(("win", "darwin")):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def use_dummy_driver_if_headless() -> None:
    """Let pygame draw even without a display, and suppress its greeting."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not has_screen():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")


class Window:
    """A window that opens with the first image and limits the frame rate."""

    def __init__(self, title: str, fps: float) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        try:
            import pygame
        except ImportError as missing:
            raise TownletError("a window needs pygame, which is not installed", INSTALL_PYGAME) from missing
        self._pygame: Any = pygame
        self._title, self._fps = title, fps
        self._screen: Any = None
        self._clock: Any = None
        self._keys: deque[str] = deque()

    def show(self, image: NDArray[np.uint8]) -> None:
        """Show an image [height, width, 3], then wait until the next frame is due."""
        game = self._pygame
        if self._screen is None:
            game.display.init()
            self._screen = game.display.set_mode((image.shape[1], image.shape[0]))
            game.display.set_caption(self._title)
            self._clock = game.time.Clock()
        self._poll_events()  # also keeps the window responsive
        self._screen.blit(game.surfarray.make_surface(image.swapaxes(0, 1)), (0, 0))
        game.display.flip()
        self._clock.tick(self._fps)

    def set_title(self, text: str) -> None:
        self._title = text
        if self._screen is not None:
            self._pygame.display.set_caption(text)

    def key(self, seconds: float | None) -> str:
        """The next key, named as in a terminal; "" if there is none within `seconds` (None: no limit) or no window."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._screen is not None:
            self._poll_events()
            if self._keys:
                return self._keys.popleft()
            if deadline is not None and time.monotonic() >= deadline:
                break
            time.sleep(POLL_SECONDS)
        return ""

    def _poll_events(self) -> None:
        game = self._pygame
        for event in game.event.get():
            if event.type == game.QUIT:
                self._keys.append(QUIT_KEY)
            elif event.type == game.KEYDOWN:
                key = KEYS.get(game.key.name(event.key), event.unicode)
                self._keys.extend([key] if key else [])

    def close(self) -> None:
        """Close the window; a later image opens it again."""
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None
