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
    """Pictures [H, W, 3] or [H, W] of bytes as [h, w] gray or [h, w, 3]; they stay bytes.

    Where an observation has named parts, its pictures are made smaller and all else stays.
    """

    def __init__(self, env: gym.Env[Any, Any], gray: bool, size: tuple[int, int] | None) -> None:
        super().__init__(env)
        self._gray, self._size = gray, None if size is None else (size[1], size[0])
        space = env.observation_space
        parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        smaller = {name: self._space(part) if _is_picture(part) else part for name, part in parts.items()}
        self._named = tuple(name for name, part in parts.items() if _is_picture(part))
        if not self._named:
            raise TownletError(
                "grayscale and resize are for pictures, which this observation is not",
                "write observation: rgb, or drop them",
            )
        self.observation_space = spaces.Dict(smaller) if isinstance(space, spaces.Dict) else smaller[""]

    def _space(self, space: spaces.Space[Any]) -> spaces.Box:
        height, width, *colours = space.shape or ()
        if self._size is not None:
            width, height = self._size
        return spaces.Box(0, 255, (height, width, *(() if self._gray else colours)), np.uint8)

    def observation(self, observation: Any) -> Any:
        """The same with smaller pictures."""
        if isinstance(observation, dict):
            return {**observation, **{name: self._small(observation[name]) for name in self._named}}
        return self._small(observation)

    def _small(self, seen: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The smaller picture. Box averaging keeps small things, such as a ball of two pixels, visible."""
        picture = Image.fromarray(seen)
        if self._gray:
            picture = picture.convert("L")
        if self._size is not None:
            picture = picture.resize(self._size, Image.Resampling.BOX)
        return np.asarray(picture)


def _is_picture(space: spaces.Space[Any]) -> bool:
    shape = space.shape or ()
    colour = len(shape) == 3 and shape[2] == 3
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and (colour or len(shape) == 2)
