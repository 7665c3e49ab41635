"""Where ball and paddles are in Pong and Breakout, read from the console's memory."""

from __future__ import annotations

import re
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from townlet.errors import TownletError

# Cells of the memory that hold positions; the ball's two come last (Anand et al. 2019, annotated RAM).
GAMES: Final = {
    "Pong": {"player_y": 51, "enemy_y": 50, "ball_x": 49, "ball_y": 54},
    "Breakout": {"player_x": 72, "ball_x": 99, "ball_y": 101},
}
FAST: Final = 16.0  # pixels of a step that count as full speed


class Features(gym.Wrapper[Any, Any, Any, Any]):
    """From memory [128] to positions in 0 … 1 and the ball's way since the last step in −1 … 1."""

    def __init__(self, env: gym.Env[Any, Any], id: str) -> None:
        super().__init__(env)
        found = re.match(r"(?:ALE/)?(Pong|Breakout)(?![a-z])", id)
        if found is None:
            raise TownletError(f"nobody knows where the objects of {id} are", f"this works for {', '.join(GAMES)}")
        cells = GAMES[found[1]]
        self.names = (*cells, "ball_dx", "ball_dy")
        self._cells = np.array(list(cells.values()))
        self._ball = np.zeros(2, np.float32)
        low = np.array([0.0] * len(cells) + [-1.0] * 2, np.float32)
        self.observation_space = spaces.Box(low, np.ones(len(low), np.float32))

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, with a ball that does not move yet."""
        memory, info = self.env.reset(**how)
        self._ball = memory[self._cells[-2:]].astype(np.float32)
        return self._seen(memory), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act, and see where things are."""
        memory, reward, terminated, truncated, info = self.env.step(action)
        return self._seen(memory), reward, terminated, truncated, info

    def _seen(self, memory: NDArray[np.uint8]) -> NDArray[np.float32]:
        places = memory[self._cells].astype(np.float32)
        ball = places[-2:]
        # 0 is no ball: it did not come from there, nor goes there.
        way = np.where((ball > 0) & (self._ball > 0), (ball - self._ball) / FAST, 0)
        self._ball = ball.copy()
        return np.concatenate([places / 255, np.clip(way, -1, 1)]).astype(np.float32)
