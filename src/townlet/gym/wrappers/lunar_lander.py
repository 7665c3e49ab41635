"""Guidance for LunarLander: near the pad, slow and upright."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym

from townlet.gym.wrappers.potential import Potential
from townlet.gym.wrappers.spec import LunarLanderShaping


class LunarLanderPotential(Potential):
    """Φ falls with distance from the pad, with speed and with tilt, each by its weight."""

    def __init__(self, env: gym.Env[Any, Any], spec: LunarLanderShaping) -> None:
        super().__init__(env, spec.gamma, 8, spec.name)
        self._distance, self._speed, self._angle = spec.distance, spec.speed, spec.angle

    def potential(self, seen: Any) -> float:
        """Φ of [x, y, speeds of both, angle, its speed, left leg, right leg]; the pad is at 0, 0."""
        x, y, vx, vy, angle = map(float, seen[:5])
        return -(self._distance * math.hypot(x, y) + self._speed * math.hypot(vx, vy) + self._angle * abs(angle))
