"""The view of MiniGrid, whose picture holds numbers of things instead of colours."""

from __future__ import annotations

from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from townlet.errors import TownletError

IMAGE: Final = "image"
VALUES: Final = (11, 6, 4)  # kinds of things, colours, and states of doors or ways of the agent
CODES: Final = tuple(np.eye(n, dtype=np.float32) for n in VALUES)


class Cells(gym.ObservationWrapper[Any, Any, Any]):
    """Its image [H, W, 3] as [H, W, 21]: for each cell a 1 at its kind, one at its colour and one at its state."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        image = space.spaces.get(IMAGE) if isinstance(space, spaces.Dict) else None
        if not isinstance(space, spaces.Dict) or not isinstance(image, spaces.Box) or image.shape[-1] != len(VALUES):
            raise TownletError("the observation has no image of a grid", "drop the wrapper 'cells': it is for MiniGrid")
        coded = spaces.Box(0, 1, (*image.shape[:-1], sum(VALUES)), np.float32)
        self.observation_space = spaces.Dict({**space.spaces, IMAGE: coded})

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        """The same with the codes of its cells."""
        image: NDArray[np.uint8] = observation[IMAGE]
        coded = [codes[image[..., n]] for n, codes in enumerate(CODES)]
        return {**observation, IMAGE: np.concatenate(coded, axis=-1)}
