"""Reward shaped by a potential: guidance that keeps what is best (Ng, Harada & Russell 1999)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, SupportsFloat

import gymnasium as gym

from townlet.errors import TownletError


class Potential(gym.Wrapper[Any, Any, Any, Any], ABC):
    """Adds γ·Φ(s′) − Φ(s) to the reward, with Φ = 0 where an episode terminates; being cut off changes nothing."""

    def __init__(self, env: gym.Env[Any, Any], gamma: float, size: int, name: str) -> None:
        super().__init__(env)
        if env.observation_space.shape != (size,):
            raise TownletError(
                f"{name} shapes an observation of {size} numbers, this one is {env.observation_space}",
                "put it first among the wrappers, on the environment it is made for",
            )
        self._gamma, self._before = gamma, 0.0

    @abstractmethod
    def potential(self, seen: Any) -> float:
        """Φ: higher is better."""

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        seen, info = self.env.reset(**how)
        self._before = self.potential(seen)
        return seen, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Act, and be paid for getting better."""
        seen, reward, terminated, truncated, info = self.env.step(action)
        now = 0.0 if terminated else self.potential(seen)
        reward = float(reward) + self._gamma * now - self._before
        self._before = now
        return seen, reward, terminated, truncated, info
