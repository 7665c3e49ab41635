"""American roulette, registered as `Roulette-v0`: every bet loses on average, and one action leaves the table."""

from __future__ import annotations

from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from townlet.errors import TownletError

POCKETS: Final = 38  # 0 to 36, and 00 as 37
RED: Final = frozenset({1, 3, 5, 7, 9, 12, 14, 16, 18, 19, 21, 23, 25, 27, 30, 32, 34, 36})
NUMBERS: Final = frozenset(range(1, 37))
EVEN_CHANCES: Final = (
    RED,
    NUMBERS - RED,
    frozenset(range(2, 37, 2)),
    frozenset(range(1, 37, 2)),
    frozenset(range(1, 19)),
    frozenset(range(19, 37)),
)
BETS: Final = (*(frozenset({pocket}) for pocket in range(POCKETS)), *EVEN_CHANCES)
LEAVE: Final = len(BETS)  # the last action


class Roulette(gym.Env[np.int64, np.int64]):
    """Each step stakes 1 on a bet, or leaves; episodes are truncated after `length` spins (van Hasselt 2010).

    Actions 0 to 37 bet on a pocket, 38 to 43 on red, black, even, odd, 1–18 and 19–36; 44 leaves the table: reward 0,
    and the episode terminates. A bet on n pockets wins 36 / n − 1, or loses 1, so its mean reward is −1/19.
    The observation is always 0.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, length: int = 100, render_mode: str | None = None) -> None:
        if length < 1:
            raise TownletError(f"an episode cannot have {length} spins", "give at least 1")
        self.length, self.render_mode = length, render_mode
        self.spins = 0
        self.observation_space = spaces.Discrete(1)
        self.action_space = spaces.Discrete(LEAVE + 1)
        self._rewards = _rewards()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        self.spins = 0
        return np.int64(0), {}

    def step(self, action: Any) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        if action == LEAVE:
            return np.int64(0), 0.0, True, False, {}
        self.spins += 1
        reward = float(self._rewards[action, self.np_random.integers(POCKETS)])
        return np.int64(0), reward, False, self.spins >= self.length, {}


def _rewards() -> NDArray[np.float64]:
    """Rewards [bet, pocket] of a stake of 1."""
    rewards = np.full((len(BETS), POCKETS), -1.0)
    for bet, pockets in enumerate(BETS):
        rewards[bet, sorted(pockets)] = 36 / len(pockets) - 1
    return rewards
