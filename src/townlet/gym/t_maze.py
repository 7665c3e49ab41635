"""T-maze with a cue at its start (Bakker 2001), registered as `TMaze-v0`."""

from __future__ import annotations

from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from townlet.errors import TownletError

ACTIONS: Final = ("north", "east", "south", "west")
NORTH, EAST, SOUTH, WEST = range(4)
CUES: Final = {NORTH: (1, 1, 0), SOUTH: (0, 1, 1)}  # shown at the start, by the side of the reward
CORRIDOR: Final = (1, 0, 1)
JUNCTION: Final = (0, 1, 0)
CORRECT, WRONG, BUMP = 4.0, -0.1, -0.1  # rewards


class TMaze(gym.Env[NDArray[np.float32], np.int64]):
    """A corridor leads east from a cue to a junction, `length` steps away, with a reward at one of its two sides.

    The observation is one of four patterns of three bits. The cue tells the side and is visible at the start only, so
    a policy without memory is right half of the time. Walking into a wall costs 0.1. Episodes terminate at either side
    and are truncated after `limit` steps, by default ten times the length. At the end, `info["correct"]` says whether
    the side was right.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, length: int = 10, limit: int | None = None, render_mode: str | None = None) -> None:
        if length < 1:
            raise TownletError(f"a T-maze cannot have a length of {length}", "give at least 1")
        self.length, self.render_mode = length, render_mode
        self.limit = 10 * length if limit is None else limit
        if self.limit <= length:
            raise TownletError(f"{self.limit} steps do not suffice for a length of {length}", "raise `limit`")
        self.observation_space = spaces.Box(0, 1, (3,), np.float32)
        self.action_space = spaces.Discrete(len(ACTIONS))
        self.position = self.age = 0
        self.side = NORTH

    def get_action_meanings(self) -> tuple[str, ...]:
        """The names of the actions."""
        return ACTIONS

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.position = self.age = 0
        self.side = (NORTH, SOUTH)[self.np_random.integers(2)]
        return self._observe(), {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.age += 1
        if self.position == self.length and action in (NORTH, SOUTH):
            correct = bool(action == self.side)
            return self._observe(), CORRECT if correct else WRONG, True, False, {"correct": correct}
        before = self.position
        self.position = min(max(before + int(action == EAST) - int(action == WEST), 0), self.length)
        reward = BUMP if self.position == before else 0.0
        return self._observe(), reward, False, self.age >= self.limit, {}

    def _observe(self) -> NDArray[np.float32]:
        if 0 < self.position < self.length:
            return np.array(CORRIDOR, np.float32)
        return np.array(CUES[self.side] if self.position == 0 else JUNCTION, np.float32)
