"""An environment that cannot be saved in the middle of an episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import gymnasium as gym
import numpy as np

ID: Final = "Unsavable-v0"


class Unsavable(gym.Env[Any, Any]):
    """Holds an object that cannot be saved, from its first reset on."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=how.get("seed"))
        self.world = object()
        return self.np_random.random(1).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.np_random.random(1).astype(np.float32), 1.0, bool(self.np_random.random() < 0.1), False, {}


ENTRY_POINT: Callable[..., gym.Env[Any, Any]] = Unsavable
gym.register(ID, ENTRY_POINT)
