"""The T-maze: the cue at its start says at which side of the junction the reward is."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import townlet
from townlet.errors import TownletError
from townlet.gym.t_maze import CORRIDOR, CUES, EAST, JUNCTION, NORTH, SOUTH, WEST


def test_gymnasium_checker_passes() -> None:
    check_env(gym.make(townlet.T_MAZE).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("follows_the_cue", [True, False])
def test_the_cue_names_the_side_of_the_reward(follows_the_cue: bool) -> None:
    env = gym.make(townlet.T_MAZE, length=3)
    sides = set()
    for seed in range(20):
        cue, _ = env.reset(seed=seed)
        side = next(side for side, pattern in CUES.items() if np.array_equal(cue, pattern))
        walk = [env.step(EAST) for _ in range(3)]
        assert [tuple(obs) for obs, *_ in walk] == [CORRIDOR, CORRIDOR, JUNCTION]
        assert [rest[:3] for _, *rest in walk] == [[0.0, False, False]] * 3
        turn = side if follows_the_cue else NORTH + SOUTH - side
        reward = 4.0 if follows_the_cue else -0.1
        assert env.step(turn)[1:] == (reward, True, False, {"correct": follows_the_cue})
        sides.add(side)
    assert sides == {NORTH, SOUTH}


def test_walls_cost_and_the_limit_truncates() -> None:
    env = gym.make(townlet.T_MAZE, length=2, limit=5)
    cue, _ = env.reset(seed=0)
    steps = [env.step(action) for action in (WEST, NORTH, EAST, WEST, SOUTH)]
    assert [reward for _, reward, *_ in steps] == [-0.1, -0.1, 0.0, 0.0, -0.1]
    assert [truncated for _, _, _, truncated, _ in steps] == [False] * 4 + [True]
    np.testing.assert_array_equal(steps[3][0], cue)  # visible again after the way back


@pytest.mark.parametrize(
    ("kwargs", "says"), [({"length": 0}, "length of 0"), ({"length": 5, "limit": 5}, "5 steps do not suffice")]
)
def test_errors_are_explained(kwargs: dict[str, Any], says: str) -> None:
    with pytest.raises(TownletError, match=says):
        gym.make(townlet.T_MAZE, **kwargs)
