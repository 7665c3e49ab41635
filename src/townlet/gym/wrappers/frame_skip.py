"""An action done several times in a row."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym


class FrameSkip(gym.Wrapper[Any, Any, Any, Any]):
    """Does each action `frames` times, or a drawn number of times up to `most`, and adds up the rewards."""

    def __init__(self, env: gym.Env[Any, Any], frames: int, most: int | None = None) -> None:
        super().__init__(env)
        self._frames, self._most = frames, most

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Act until the frames are over, or the episode."""
        times = self._frames
        if self._most is not None:
            times = int(self.np_random.integers(self._frames, self._most + 1))
        total = 0.0
        for _ in range(times):
            seen, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return seen, total, terminated, truncated, info
