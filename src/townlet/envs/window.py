"""A window on the screen that shows pictures (extra `window`: pygame)."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError


class Window:
    """One window; it opens with the first picture and keeps to a rate of pictures a second."""

    def __init__(self, title: str, rate: int) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # else it greets on standard output
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

    def show(self, picture: NDArray[np.uint8]) -> None:
        """Show a picture [height, width, 3], waiting as long as the rate asks."""
        game = self._pygame
        if self._screen is None:
            game.display.init()
            self._screen = game.display.set_mode((picture.shape[1], picture.shape[0]))
            game.display.set_caption(self._title)
            self._clock = game.time.Clock()
        game.event.pump()  # keeps the system from calling the window unresponsive
        self._screen.blit(game.surfarray.make_surface(picture.swapaxes(0, 1)), (0, 0))
        game.display.flip()
        self._clock.tick(self._rate)

    def close(self) -> None:
        """Close it; a later picture opens it again."""
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None
