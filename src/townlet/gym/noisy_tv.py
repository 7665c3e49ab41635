"""A corridor with a television that shows noise (after Burda et al. 2018), registered as `NoisyTV-v0`."""

from __future__ import annotations

from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from townlet.errors import TownletError

ACTIONS: Final = ("back", "forward", "remote")
BACK, FORWARD, REMOTE = range(3)
Obs = dict[str, Any]


class NoisyTV(gym.Env[Obs, np.int64]):
    """A corridor of `length` cells with a reward of 1 at its end, and a remote control that works everywhere.

    `remote` shows a new random picture on the screen, which is dark after the other actions. Episodes begin in the
    first cell, terminate in the last one, and are truncated after `limit` steps, by default twice the length.
    Observations are a dict of `position`, one-hot, and `screen`, the brightness of each pixel.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self, length: int = 20, pixels: int = 20, limit: int | None = None, render_mode: str | None = None
    ) -> None:
        if length < 2 or pixels < 1:
            raise TownletError(f"{length} cells and {pixels} pixels are too few", "give at least 2 cells and 1 pixel")
        self.length, self.pixels, self.render_mode = length, pixels, render_mode
        self.limit = 2 * length if limit is None else limit
        if self.limit < length:
            raise TownletError(f"{self.limit} steps do not suffice for {length} cells", "raise `limit`")
        self.observation_space = spaces.Dict(
            position=spaces.Box(0, 1, (length,), np.float32), screen=spaces.Box(0, 1, (pixels,), np.float32)
        )
        self.action_space = spaces.Discrete(len(ACTIONS))
        self.position = self.age = 0

    def get_action_meanings(self) -> tuple[str, ...]:
        """The names of the actions."""
        return ACTIONS

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = self.age = 0
        return self._observe(watching=False), {}

    def step(self, action: Any) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        self.age += 1
        self.position = max(self.position + int(action == FORWARD) - int(action == BACK), 0)
        goal = self.position == self.length - 1
        obs = self._observe(watching=bool(action == REMOTE))
        return obs, float(goal), goal, self.age >= self.limit and not goal, {"watching": bool(action == REMOTE)}

    def _observe(self, watching: bool) -> Obs:
        position, screen = np.zeros(self.length, np.float32), np.zeros(self.pixels, np.float32)
        position[self.position] = 1
        if watching:
            screen = self.np_random.random(self.pixels, np.float32)
        return {"position": position, "screen": screen}
