"""Custom wrappers: CartPole with discrete states, for tabular agents, and one that cannot be saved."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from townlet.config.user_code import wrapper

EDGES = (1.2, 0.5, 0.06, 0.5)  # of position, velocity, angle and angular velocity: below −edge, between, above


@wrapper("bins")
class Bins(gym.ObservationWrapper[Any, Any, Any]):
    """Three bins for each of the four numbers: one of 81 states."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = gym.spaces.Discrete(3 ** len(EDGES))

    def observation(self, observation: Any) -> int:
        state = 0
        for value, edge in zip(observation, EDGES, strict=True):
            state = 3 * state + int(np.digitize(value, (-edge, edge)))
        return state


@wrapper("unsavable")
class Unsavable(gym.Wrapper[Any, Any, Any, Any]):
    """Holds an iterator, of which nothing can be saved."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.rewards = iter(range(10**9))
