"""Pictures made smaller: without colour, and of another size."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from PIL import Image

from townlet.errors import TownletError


class Picture(gym.ObservationWrapper[Any, Any, Any]):
    """Pictures [H, W, 3] or [H, W] of bytes as [h, w] gray or [h, w, 3]; they stay bytes."""

    def __init__(self, env: gym.Env[Any, Any], gray: bool, size: tuple[int, int] | None) -> None:
        super().__init__(env)
        space = env.observation_space
        shape = space.shape or ()
        colour = len(shape) == 3 and shape[2] == 3
        if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or not (colour or len(shape) == 2):
            raise TownletError(
                "grayscale and resize are for pictures, which this observation is not",
                "write observation: rgb, or drop them",
            )
        self._gray, self._size = gray and colour, None if size is None else (size[1], size[0])
        height, width = size or shape[:2]
        inner = (height, width) if gray or not colour else (height, width, 3)
        self.observation_space = spaces.Box(0, 255, inner, np.uint8)

    def observation(self, observation: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The smaller picture. Box averaging keeps small things, such as a ball of two pixels, visible."""
        picture = Image.fromarray(observation)
        if self._gray:
            picture = picture.convert("L")
        if self._size is not None:
            picture = picture.resize(self._size, Image.Resampling.BOX)
        return np.asarray(picture)
