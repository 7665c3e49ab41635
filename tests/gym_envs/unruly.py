"""An environment that misbehaves when its action is 1; processes of rows import it."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np


class Unruly(gym.Env[Any, Any]):
    """Endless episodes; `wrong` says what goes wrong."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, wrong: str) -> None:
        self._wrong = wrong

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: int) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        obs: Any = np.zeros(3, np.float32)
        reward: Any = 1.0
        if action == 1 and self._wrong == "exit":
            sys.exit(3)
        elif action == 1 and self._wrong == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif action == 1 and self._wrong == "raise":
            raise ZeroDivisionError("nothing to divide by")
        elif action == 1 and self._wrong == "slow":
            time.sleep(0.4)
        elif action == 1 and self._wrong == "text":
            reward = "1.5"
        elif action == 1 and self._wrong == "outside":
            obs += 1e6
        return obs, reward, False, False, {}
