"""The valid actions of Gymnasium's Taxi, asked of the environments themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.toy_text.taxi import TaxiEnv
from gymnasium.vector import SyncVectorEnv

from narrow import instance
from townlet.gym.vector_env import GymVecEnv


def taxi_masks(env: GymVecEnv) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each action of each row is valid."""
    taxis = [instance(row.unwrapped, TaxiEnv) for row in instance(env.vec, SyncVectorEnv).envs]
    return np.stack([taxi.action_mask(taxi.s) for taxi in taxis])
