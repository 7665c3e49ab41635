"""Guidance for MountainCar: potentials of position, speed and height, and a bonus for states seldom seen."""

from __future__ import annotations

import math
from typing import Any, Final, SupportsFloat

import gymnasium as gym
import numpy as np

from townlet.gym.wrappers.potential import Potential
from townlet.gym.wrappers.spec import MountainCarShaping

LEFT, GOAL, RIGHT = -1.2, 0.5, 0.6
FASTEST: Final = 0.07


class MountainCarShaped(Potential):
    """Φ is a sum of shares, each up to its weight; the count bonus is paid besides and fades."""

    def __init__(self, env: gym.Env[Any, Any], spec: MountainCarShaping) -> None:
        super().__init__(env, spec.gamma, 2, spec.name)
        self._position, self._velocity, self._height = spec.position, spec.velocity, spec.height
        self._count, self._bins = spec.count, spec.bins
        self._visits = np.zeros((spec.bins, spec.bins), np.int64)

    def potential(self, seen: Any) -> float:
        """Φ of [position, velocity]; the hill is sin 3x."""
        place, speed = float(seen[0]), float(seen[1])
        near = (place - LEFT) / (GOAL - LEFT)
        high = (math.sin(3 * place) + 1) / 2
        return self._position * near + self._velocity * abs(speed) / FASTEST + self._height * high

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; with a seed everything begins anew, and nothing was ever seen."""
        if how.get("seed") is not None:
            self._visits[:] = 0
        return super().reset(**how)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Act, and be paid for getting better and for seeing what is new."""
        seen, reward, terminated, truncated, info = super().step(action)
        return seen, float(reward) + self._bonus(seen), terminated, truncated, info

    def _bonus(self, seen: Any) -> float:
        if not self._count:
            return 0.0
        shares = ((seen[0] - LEFT) / (RIGHT - LEFT), (seen[1] + FASTEST) / (2 * FASTEST))
        cell = tuple(min(self._bins - 1, max(0, int(share * self._bins))) for share in shares)
        self._visits[cell] += 1
        return self._count / math.sqrt(self._visits[cell])
