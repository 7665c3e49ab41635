"""Guidance for CartPole: stay in the middle and upright."""

from __future__ import annotations

import math
from typing import Any, Final

import gymnasium as gym

from townlet.gym.wrappers.potential import Potential
from townlet.gym.wrappers.spec import CartPoleShaping

EDGE: Final = 2.4  # where the episode ends
TILT: Final = math.radians(12)


class CartPolePotential(Potential):
    """Φ falls from 0 in the middle and upright to −weight at both limits."""

    def __init__(self, env: gym.Env[Any, Any], spec: CartPoleShaping) -> None:
        super().__init__(env, spec.gamma, 4, spec.name)
        self._weight = spec.weight

    def potential(self, seen: Any) -> float:
        """Φ of [position, speed, angle, speed of the angle]."""
        return -self._weight * float(abs(seen[0]) / EDGE + abs(seen[2]) / TILT) / 2
