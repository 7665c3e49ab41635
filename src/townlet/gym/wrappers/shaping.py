"""Reward shaping.

Potentials keep the optimal policy (Ng, Harada & Russell 1999); count bonus and rewards of actions may change it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Final, SupportsFloat

import gymnasium as gym
import numpy as np

from townlet.errors import TownletError, did_you_mean
from townlet.gym.wrappers.spec import (
    ActionRewardSpec,
    CartPoleShapingSpec,
    LunarLanderShapingSpec,
    MountainCarShapingSpec,
    PongShapingSpec,
    VizdoomShapingSpec,
)

CART_LIMIT: Final = 2.4  # |position| at which a CartPole episode ends
POLE_LIMIT: Final = math.radians(12)
CAR_LEFT, CAR_GOAL, CAR_RIGHT = -1.2, 0.5, 0.6
CAR_MAX_SPEED: Final = 0.07


class PotentialShaping(gym.Wrapper[Any, Any, Any, Any], ABC):
    """Adds γ·Φ(s′) − Φ(s) to the reward; Φ = 0 at termination, but not at truncation."""

    def __init__(self, env: gym.Env[Any, Any], gamma: float, size: int | None, name: str) -> None:
        """`size` is that of the observation, unless the potential does not depend on it."""
        super().__init__(env)
        if size is not None and env.observation_space.shape != (size,):
            what = f"{name} needs an observation of {size} numbers, but this one is {env.observation_space}"
            raise TownletError(what, "put it first among the wrappers, and use it only for its environment")
        self._gamma, self._potential = gamma, 0.0

    @abstractmethod
    def potential(self, obs: Any) -> float:
        """Φ(s); higher is better."""

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**options)
        self._potential = self.potential(obs)
        return obs, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        potential = 0.0 if terminated else self.potential(obs)
        reward = float(reward) + self._gamma * potential - self._potential
        self._potential = potential
        return obs, reward, terminated, truncated, info


class CartPolePotential(PotentialShaping):
    """Φ falls from 0 (centered, upright) to −weight at both limits."""

    def __init__(self, env: gym.Env[Any, Any], spec: CartPoleShapingSpec) -> None:
        super().__init__(env, spec.gamma, 4, spec.name)
        self._weight = spec.weight

    def potential(self, obs: Any) -> float:
        """Φ of [position, velocity, angle, angular velocity]."""
        return -self._weight * float(abs(obs[0]) / CART_LIMIT + abs(obs[2]) / POLE_LIMIT) / 2


class MountainCarPotential(PotentialShaping):
    """Φ is a weighted sum of position, speed and height; a count bonus that fades is added to the reward."""

    def __init__(self, env: gym.Env[Any, Any], spec: MountainCarShapingSpec) -> None:
        super().__init__(env, spec.gamma, 2, spec.name)
        self._position, self._velocity, self._height = spec.position, spec.velocity, spec.height
        self._count, self._bins = spec.count, spec.bins
        self._visits = np.zeros((spec.bins, spec.bins), np.int64)

    def potential(self, obs: Any) -> float:
        """Φ of [position, velocity]; the height of the hill is sin 3x."""
        position, velocity = float(obs[0]), float(obs[1])
        progress = (position - CAR_LEFT) / (CAR_GOAL - CAR_LEFT)
        height = (math.sin(3 * position) + 1) / 2
        return self._position * progress + self._velocity * abs(velocity) / CAR_MAX_SPEED + self._height * height

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode; a seed also clears the visit counts."""
        if options.get("seed") is not None:
            self._visits[:] = 0
        return super().reset(**options)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step with the shaped reward and the count bonus."""
        obs, reward, terminated, truncated, info = super().step(action)
        if self._count:
            fractions = (obs[0] - CAR_LEFT) / (CAR_RIGHT - CAR_LEFT), (obs[1] + CAR_MAX_SPEED) / (2 * CAR_MAX_SPEED)
            cell = tuple(min(self._bins - 1, max(0, int(fraction * self._bins))) for fraction in fractions)
            self._visits[cell] += 1
            reward = float(reward) + self._count / math.sqrt(self._visits[cell])
        return obs, reward, terminated, truncated, info


class LunarLanderPotential(PotentialShaping):
    """Φ falls with distance from the pad, speed and tilt, each times its weight."""

    def __init__(self, env: gym.Env[Any, Any], spec: LunarLanderShapingSpec) -> None:
        super().__init__(env, spec.gamma, 8, spec.name)
        self._distance, self._speed, self._angle = spec.distance, spec.speed, spec.angle

    def potential(self, obs: Any) -> float:
        """Φ of [x, y, vx, vy, angle, angular velocity, left leg, right leg]; the pad is at 0, 0."""
        x, y, vx, vy, angle = map(float, obs[:5])
        return -(self._distance * math.hypot(x, y) + self._speed * math.hypot(vx, vy) + self._angle * abs(angle))


class PongPotential(PotentialShaping):
    """Φ falls from 0 to −weight with the vertical distance of the paddle from the ball; it is 0 without a ball."""

    def __init__(self, env: gym.Env[Any, Any], spec: PongShapingSpec) -> None:
        super().__init__(env, spec.gamma, 6, spec.name)
        self._weight = spec.weight

    def potential(self, obs: Any) -> float:
        """Φ of [player y, enemy y, ball x, ball y, ball dx, ball dy], all positions in [0, 1]."""
        in_play = obs[2] > 0 and obs[3] > 0
        return -self._weight * float(abs(obs[0] - obs[3])) if in_play else 0.0


class VizdoomPotential(PotentialShaping):
    """Φ is a weighted sum of game variables, read from the game: observations need not contain them."""

    def __init__(self, env: gym.Env[Any, Any], spec: VizdoomShapingSpec) -> None:
        super().__init__(env, spec.gamma, None, spec.name)
        self._game: Any = getattr(env.unwrapped, "game", None)
        if not hasattr(self._game, "get_game_variable"):
            fix = f"use {spec.name} only for VizDoom"
            raise TownletError(f"{spec.name} needs a game of VizDoom, but {env.unwrapped} has none", fix)
        from vizdoom import GameVariable

        known = GameVariable.__members__
        if unknown := [name for name in spec.weights if name not in known]:
            raise TownletError(f"VizDoom has no game variable '{unknown[0]}'", did_you_mean(unknown[0], list(known)))
        self._weights = [(known[name], weight) for name, weight in spec.weights.items()]

    def potential(self, obs: Any) -> float:
        return sum(weight * float(self._game.get_game_variable(variable)) for variable, weight in self._weights)


class ActionReward(gym.Wrapper[Any, Any, Any, Any]):
    """Adds to each reward that of the action."""

    def __init__(self, env: gym.Env[Any, Any], spec: ActionRewardSpec) -> None:
        super().__init__(env)
        space, given = env.action_space, len(spec.rewards)
        if not isinstance(space, gym.spaces.Discrete):
            raise TownletError("action_reward needs discrete actions", f"drop the wrapper '{spec.name}'")
        if space.n != given:
            what = f"action_reward has {given} rewards, but there are {space.n} actions"
            raise TownletError(what, "give one reward for each action")
        self._rewards, self._start = spec.rewards, int(space.start)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(reward) + self._rewards[int(action) - self._start], terminated, truncated, info
