"""Fewer or other actions than the environment has."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from townlet.errors import TownletError

MASK = "action_mask"


class Remap(gym.Wrapper[Any, Any, Any, Any]):
    """What the agent calls 0, 1, … is what the environment calls `use`; its mask follows."""

    def __init__(self, env: gym.Env[Any, Any], use: tuple[int, ...]) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, spaces.Discrete):
            raise TownletError("only actions that are one of n can be chosen from", "drop the wrapper 'actions'")
        n = int(env.action_space.n)
        if beyond := [action for action in use if action >= n]:
            raise TownletError(f"the environment has no action {beyond[0]}", f"its actions are 0 to {n - 1}")
        self.use = use
        self._first = int(env.action_space.start)
        self.action_space = spaces.Discrete(len(use))

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        seen, info = self.env.reset(**how)
        return seen, self._masked(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act as the environment calls it."""
        seen, reward, terminated, truncated, info = self.env.step(self._first + self.use[int(action)])
        return seen, reward, terminated, truncated, self._masked(info)

    def _masked(self, info: dict[str, Any]) -> dict[str, Any]:
        return info if MASK not in info else {**info, MASK: np.asarray(info[MASK])[list(self.use)]}
