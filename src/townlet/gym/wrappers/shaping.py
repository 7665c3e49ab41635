"""Reward shaped by a potential: guidance that keeps what is best (Ng, Harada & Russell 1999)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Final, SupportsFloat

import gymnasium as gym
import numpy as np

from townlet.errors import TownletError
from townlet.gym.wrappers.spec import CartPoleShapingSpec, LunarLanderShapingSpec, MountainCarShapingSpec


class PotentialShaping(gym.Wrapper[Any, Any, Any, Any], ABC):
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


EDGE: Final = 2.4  # where the episode ends
TILT: Final = math.radians(12)


class CartPolePotential(PotentialShaping):
    """Φ falls from 0 in the middle and upright to −weight at both limits."""

    def __init__(self, env: gym.Env[Any, Any], spec: CartPoleShapingSpec) -> None:
        super().__init__(env, spec.gamma, 4, spec.name)
        self._weight = spec.weight

    def potential(self, seen: Any) -> float:
        """Φ of [position, speed, angle, speed of the angle]."""
        return -self._weight * float(abs(seen[0]) / EDGE + abs(seen[2]) / TILT) / 2


LEFT, GOAL, RIGHT = -1.2, 0.5, 0.6
FASTEST: Final = 0.07


class MountainCarPotential(PotentialShaping):
    """Φ is a sum of shares, each up to its weight; the count bonus is paid besides and fades."""

    def __init__(self, env: gym.Env[Any, Any], spec: MountainCarShapingSpec) -> None:
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


class LunarLanderPotential(PotentialShaping):
    """Φ falls with distance from the pad, with speed and with tilt, each by its weight."""

    def __init__(self, env: gym.Env[Any, Any], spec: LunarLanderShapingSpec) -> None:
        super().__init__(env, spec.gamma, 8, spec.name)
        self._distance, self._speed, self._angle = spec.distance, spec.speed, spec.angle

    def potential(self, seen: Any) -> float:
        """Φ of [x, y, speeds of both, angle, its speed, left leg, right leg]; the pad is at 0, 0."""
        x, y, vx, vy, angle = map(float, seen[:5])
        return -(self._distance * math.hypot(x, y) + self._speed * math.hypot(vx, vy) + self._angle * abs(angle))
