"""The bandit: arms pay around their means."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import townlet
from townlet.errors import TownletError


def test_gymnasium_checker_passes() -> None:
    check_env(gym.make(townlet.BANDIT).unwrapped, skip_render_check=True)


def test_arms_pay_around_their_means_until_truncation() -> None:
    env = gym.make(townlet.BANDIT, means=[1.0, -2.0], deviations=[0.5, 0.0], length=400)
    env.reset(seed=0)
    pulls = [env.step(0) for _ in range(400)]
    paid = np.array([reward for _, reward, *_ in pulls])
    assert abs(paid.mean() - 1) < 4 * 0.5 / np.sqrt(400)
    assert abs(paid.std() - 0.5) < 0.1
    assert [truncated for *_, truncated, _ in pulls] == [False] * 399 + [True]
    assert pulls[0][-1] == {"best": True}
    env.reset()
    assert env.step(1)[1:] == (-2.0, False, False, {"best": False})


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"arms": 3, "means": [1.0, 2.0]}, "got 2 means for 3 arms"),
        ({"arms": 2, "deviations": -1.0}, "negative"),
        ({"arms": 0}, "0 arms"),
        ({"length": 0}, "0 pulls"),
    ],
)
def test_errors_are_explained(kwargs: dict[str, Any], says: str) -> None:
    with pytest.raises(TownletError, match=says):
        gym.make(townlet.BANDIT, **kwargs)
