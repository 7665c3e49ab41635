"""Multi-armed bandit with Gaussian rewards, registered as `Bandit-v0`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from townlet.errors import TownletError


class Bandit(gym.Env[NDArray[np.float32], np.int64]):
    """Pulling arm a gives a reward drawn from N(means[a], deviations[a]²); episodes are truncated after `length` pulls.

    The observation is always 1. `info["best"]` is true if the pulled arm has the highest mean.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        arms: int | None = None,
        means: Sequence[float] | None = None,
        deviations: float | Sequence[float] = 0.1,
        length: int = 100,
        render_mode: str | None = None,
    ) -> None:
        if arms is None:
            arms = 10 if means is None else len(means)
        if arms < 1 or length < 1:
            raise TownletError(f"a bandit cannot have {arms} arms and {length} pulls", "give at least one of each")
        self.arms, self.length, self.render_mode = arms, length, render_mode
        # By default arm a has mean a / (arms − 1): the last is the best.
        self.means = _per_arm("means", np.linspace(0, 1, arms).tolist() if means is None else means, arms)
        self.deviations = _per_arm("deviations", deviations, arms)
        if (self.deviations < 0).any():
            raise TownletError("a deviation is negative", "give numbers of at least 0")
        self.pulls = 0
        self.observation_space = spaces.Box(0, 1, (1,), np.float32)
        self.action_space = spaces.Discrete(arms)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.pulls = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.pulls += 1
        mean = self.means[action]
        reward = float(mean + self.deviations[action] * self.np_random.standard_normal())
        truncated = self.pulls >= self.length
        return np.ones(1, np.float32), reward, False, truncated, {"best": bool(mean == self.means.max())}


def _per_arm(name: str, given: float | Sequence[float], arms: int) -> NDArray[np.float64]:
    """Broadcast one number, or check one number per arm."""
    values = np.asarray(given, np.float64)
    if values.shape not in ((), (arms,)):
        raise TownletError(f"got {values.size} {name} for {arms} arms", f"give {arms} numbers, or one for all")
    return np.broadcast_to(values, arms).copy()
