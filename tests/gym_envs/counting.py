"""A vector environment with predictable observations in all three autoreset modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

LIMIT = 100


class Counting(VectorEnv[Any, Any, Any]):
    """Row r observes [episode, age] and ends at age r + 2: even rows terminate, odd rows are truncated.

    The reward is the age. With `both`, every end is reported as both. A row that is not reset in time is an error.
    """

    def __init__(self, num_envs: int, mode: AutoresetMode | str, both: bool = False) -> None:
        self.num_envs, self.mode, self.both = num_envs, AutoresetMode(mode), both
        self.metadata = {"render_modes": [], "autoreset_mode": self.mode}
        self.single_observation_space = spaces.Box(0, LIMIT, (2,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.episode, self.age = np.zeros((2, num_envs), np.int64)
        self.over = np.zeros(num_envs, np.bool_)
        self.resets: list[list[int]] = []

    def _seen(self) -> Any:
        return np.stack([self.episode % LIMIT, self.age], 1).astype(np.float32)

    def _mask(self) -> dict[str, Any]:
        """Action 1 is valid at even ages only."""
        return {"action_mask": np.stack([np.ones(self.num_envs, np.bool_), self.age % 2 == 0], 1)}

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        self.resets.append(np.flatnonzero(mask).tolist())
        self.episode[mask] = self.episode[mask] + 1 if options else int(self.np_random.integers(50))
        self.age[mask] = 0
        self.over[mask] = False
        return self._seen(), self._mask()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        again = self.over.copy()
        assert self.mode is AutoresetMode.NEXT_STEP or not again.any(), "a row that ended was not reset"
        self.age += 1
        self.episode[again] += 1
        self.age[again] = 0
        ends = (self.age >= np.arange(self.num_envs) + 2) & ~again
        odd = np.arange(self.num_envs) % 2 == 1
        terminated, truncated = (ends, ends) if self.both else (ends & ~odd, ends & odd)
        reward = np.where(again, 7.0, self.age)  # the reward of an autoreset step is meaningless
        info: dict[str, Any] = {}
        self.over = ends
        if self.mode is AutoresetMode.SAME_STEP and ends.any():
            last = np.full(self.num_envs, None, object)
            for row in np.flatnonzero(ends):
                last[row] = self._seen()[row]
            info = {"final_obs": last, "_final_obs": ends, "final_info": {**self._mask(), "_action_mask": ends}}
            self.episode[ends] += 1
            self.age[ends] = 0
            self.over = np.zeros_like(ends)
        return self._seen(), reward, terminated, truncated, info | self._mask()


class CountingOne(gym.Env[Any, Any]):
    """Single environment, needed to register an id with a vector entry point."""


ENTRY_POINT: Callable[..., VectorEnv[Any, Any, Any]] = Counting

for name in AutoresetMode:
    gym.register(
        f"Counting{name.value}-v0",
        entry_point=None,
        vector_entry_point=ENTRY_POINT,
        kwargs={"mode": name.value},
    )
