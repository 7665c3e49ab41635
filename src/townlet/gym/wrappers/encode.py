"""A state's number in another form: its place among all, its bits, or the number itself."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from townlet.errors import TownletError


class Encode(gym.ObservationWrapper[Any, Any, Any]):
    """Discrete observations, alone or several together, as numbers: [one_hot], [binary] or [array]."""

    def __init__(self, env: gym.Env[Any, Any], to: str) -> None:
        super().__init__(env)
        self._first, counts = _parts(env.observation_space)
        self._many = not isinstance(env.observation_space, spaces.Discrete)
        low, high = np.zeros(1), np.ones(1)
        if to == "array":
            low, high = self._first.astype(np.float32), (self._first + counts - 1).astype(np.float32)
            size = len(counts)
        elif to == "binary":
            bits = [max(1, int(count - 1).bit_length()) for count in counts]
            self._of_part = np.repeat(np.arange(len(counts)), bits)
            self._shift = np.concatenate([np.arange(n)[::-1] for n in bits])
            size = sum(bits)
        else:
            self._starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
            size = int(counts.sum())
        self._to = to
        self.observation_space = spaces.Box(
            np.broadcast_to(low, size).astype(np.float32), np.broadcast_to(high, size).astype(np.float32)
        )

    def observation(self, observation: Any) -> NDArray[np.float32]:
        """The numbers that stand for a state."""
        state: NDArray[np.int64] = np.array(observation if self._many else [observation], np.int64).reshape(-1)
        if self._to == "array":
            return state.astype(np.float32)
        state = state - self._first
        if self._to == "binary":
            bits: NDArray[np.int64] = (state[self._of_part] >> self._shift) & 1
            return bits.astype(np.float32)
        shown = np.zeros(self.observation_space.shape or (), np.float32)
        shown[self._starts + state] = 1
        return shown


def _parts(space: spaces.Space[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first number and the count of every part of a space of whole numbers."""
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.reshape(-1).astype(np.int64), space.nvec.reshape(-1).astype(np.int64)
    parts = space.spaces if isinstance(space, spaces.Tuple) else (space,)
    whole = [p for p in parts if isinstance(p, spaces.Discrete)]
    if len(whole) != len(parts):
        raise TownletError(
            f"an observation of {type(space).__name__} is not a state's number", "drop the wrapper 'encode'"
        )
    return np.array([int(p.start) for p in whole]), np.array([int(p.n) for p in whole])
