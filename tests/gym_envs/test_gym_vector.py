"""Many towns as one Gymnasium vector environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import townlet
from narrow import instance
from townlet.errors import TownletError
from townlet.town.gymnasium import TownEnv, TownVectorEnv

RIGHT, WAIT = 3, 5


def valid(info: dict[str, Any], chance: np.random.Generator) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A random valid action in every row."""
    return np.array([chance.choice(np.flatnonzero(row)) for row in info["action_mask"]])


@pytest.mark.parametrize("name", townlet.IDS)
def test_make_vec_steps_every_id_within_its_spaces(name: str) -> None:
    env = gym.make_vec(name, num_envs=3)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    obs, info = env.reset(seed=1)
    chance = np.random.default_rng(0)
    for _ in range(130):
        assert obs in env.observation_space
        assert info["action_mask"].shape == (3, instance(env.single_action_space, gym.spaces.Discrete).n)
        obs, reward, terminated, truncated, info = env.step(valid(info, chance))
        assert reward.shape == terminated.shape == truncated.shape == (3,)
        assert np.allclose(sum(v for k, v in info["rewards"].items() if k[0] != "_"), reward, atol=1e-5)
    env.close()


def test_first_row_equals_the_single_environment() -> None:
    one, many = TownEnv("town-shuffled"), TownVectorEnv(2, "town-shuffled")
    obs, _ = one.reset(seed=9)
    rows, info = many.reset(seed=9)
    assert (rows[0] == obs).all()
    chance = np.random.default_rng(0)
    ends = 0
    for _ in range(400):
        actions = valid(info, chance)
        obs, reward, terminated, truncated, mine = one.step(actions[0])
        rows, rewards, terminations, truncations, info = many.step(actions)
        assert (reward, terminated, truncated) == (rewards[0], terminations[0], truncations[0])
        if terminated or truncated:
            assert (info["final_obs"][0] == obs).all()
            assert info["final_info"]["cause"][0] == mine["cause"]
            obs, mine = one.reset()
            ends += 1
        assert (rows[0] == obs).all()
        assert (info["action_mask"][0] == mine["action_mask"]).all()
    assert ends > 1


def same(a: Any, b: Any) -> bool:
    """Whether infos are equal, key by key; rows not marked in `_key` are not compared."""
    if isinstance(a, dict):
        return all(same(a[key], b[key]) for key in a)
    if a.dtype == object:
        return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    return a.dtype == b.dtype and np.allclose(a, b)


def test_autoreset_matches_gymnasium_vector_env() -> None:
    overrides = ["map.start=[0, 0]", "max_steps=120"]
    theirs = SyncVectorEnv(
        [lambda: TownEnv("town", overrides) for _ in range(3)], autoreset_mode=AutoresetMode.SAME_STEP
    )
    ours = TownVectorEnv(3, "town", overrides)
    theirs.reset(seed=0)
    ours.reset(seed=0)
    ends = []
    for age in range(1, 131):
        actions = np.array([RIGHT, WAIT, RIGHT if age > 40 else WAIT])
        expected: tuple[Any, ...] = theirs.step(actions)
        got: tuple[Any, ...] = ours.step(actions)
        for a, b in zip(expected[:4], got[:4], strict=True):
            assert a.dtype == b.dtype
            assert np.allclose(a, b)
        for key in ("final_obs", "_final_obs", "final_info", "_final_info", "action_mask", "_action_mask"):
            assert (key in expected[4]) == (key in got[4])
            if key in expected[4]:
                assert same(expected[4][key], got[4][key]), key
        ends += [(age, int(row), got[4]["final_info"]["cause"][row]) for row in np.flatnonzero(got[2] | got[3])]
    assert ends == [(100, 0, "energy"), (116, 2, "energy"), (120, 1, "time")]


def test_results_are_not_overwritten() -> None:
    env = TownVectorEnv(2, "town")
    env.reset(seed=0)
    kept = env.step([RIGHT, WAIT])
    copies = [np.array(part) for part in kept[:4]]
    for _ in range(5):
        env.step([WAIT, RIGHT])
    assert all((a == b).all() for a, b in zip(kept[:4], copies, strict=True))


def test_same_seed_same_rows_and_rows_differ() -> None:
    env = TownVectorEnv(64, "town")
    first, _ = env.reset(seed=4)
    following, _ = env.reset()
    assert (env.reset(seed=4)[0] == first).all()
    assert (env.reset()[0] == following).all()
    assert (first != following).any()
    assert len(np.unique(first, axis=0)) > 20


@pytest.mark.parametrize("actions", [[0], [0, 6], [0, -1], [0.0, 1.0], 3])
def test_wrong_actions_are_rejected(actions: Any) -> None:
    env = TownVectorEnv(2, "town")
    env.reset(seed=0)
    with pytest.raises(TownletError, match="integers"):
        env.step(actions)


def test_misuse_is_explained() -> None:
    with pytest.raises(TownletError, match=r"reset\(\)"):
        TownVectorEnv(2, "town").step([0, 0])
    with pytest.raises(TownletError, match="one seed"):
        TownVectorEnv(2, "town").reset(seed=[1, 2])
    with pytest.raises(TownletError, match="render_mode"):
        gym.make_vec("Townlet/Town-v0", num_envs=2, render_mode="human")
    with pytest.raises(TownletError, match="at least one row"):
        TownVectorEnv(0, "town")


def test_every_row_is_rendered() -> None:
    env = gym.make_vec("Townlet/Town-L0-v0", num_envs=3, render_mode="rgb_array")
    env.reset(seed=0)
    env.step(np.array([RIGHT, WAIT, 0]))
    frames = env.render()
    assert frames is not None
    images = [instance(frame, np.ndarray) for frame in frames]
    assert [image.shape for image in images] == [(640, 960, 3)] * 3
    assert (images[0] != images[1]).any()
