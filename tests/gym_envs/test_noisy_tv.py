"""The corridor with a television: noise on demand, and a reward at the end."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import townlet
from townlet.errors import TownletError
from townlet.gym.noisy_tv import BACK, FORWARD, REMOTE


def test_gymnasium_checker_passes() -> None:
    check_env(gym.make(townlet.NOISY_TV).unwrapped, skip_render_check=True)


def test_the_end_of_the_corridor_is_rewarded() -> None:
    env = gym.make(townlet.NOISY_TV, length=4)
    env.reset(seed=0)
    steps = [env.step(action) for action in (BACK, FORWARD, FORWARD, BACK, FORWARD, FORWARD)]
    assert [int(obs["position"].argmax()) for obs, *_ in steps] == [0, 1, 2, 1, 2, 3]
    assert [reward for _, reward, *_ in steps] == [0.0] * 5 + [1.0]
    assert [terminated for _, _, terminated, *_ in steps] == [False] * 5 + [True]
    assert not any(obs["screen"].any() for obs, *_ in steps)


def test_the_remote_shows_a_new_picture_every_time_until_truncation() -> None:
    env = gym.make(townlet.NOISY_TV, length=4, pixels=6, limit=5)
    env.reset(seed=0)
    steps = [env.step(REMOTE) for _ in range(5)]
    pictures = np.stack([obs["screen"] for obs, *_ in steps])
    assert pictures.shape == (5, 6)
    assert len(np.unique(pictures)) == 30
    assert all(obs["position"][0] == 1 and info["watching"] for obs, *_, info in steps)
    assert [truncated for _, _, _, truncated, _ in steps] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [({"length": 1}, "1 cells"), ({"pixels": 0}, "0 pixels"), ({"length": 5, "limit": 4}, "4 steps do not suffice")],
)
def test_errors_are_explained(kwargs: dict[str, Any], says: str) -> None:
    with pytest.raises(TownletError, match=says):
        gym.make(townlet.NOISY_TV, **kwargs)
