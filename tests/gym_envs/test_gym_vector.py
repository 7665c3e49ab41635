"""Many towns as one Gymnasium vector environment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector

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
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    obs, info = env.reset(seed=1)
    chance = np.random.default_rng(0)
    for _ in range(130):
        assert obs in env.observation_space
        assert info["action_mask"].shape == (3, instance(env.single_action_space, gym.spaces.Discrete).n)
        obs, reward, terminated, truncated, info = env.step(valid(info, chance))
        assert reward.shape == terminated.shape == truncated.shape == (3,)
        assert np.allclose(sum(v for k, v in info.items() if k.startswith("reward_")), reward, atol=1e-5)
    env.close()


def same(a: Any, b: Any) -> bool:
    """Whether infos or observations have the same keys, types and values; rows not marked in `_key` do not count."""
    if isinstance(a, dict):
        if set(a) != set(b):
            return False
        marks = {key: a.get(f"_{key}", slice(None)) for key in a}
        return all(
            same(a[key], b[key]) if isinstance(a[key], dict) else same(a[key][marks[key]], b[key][marks[key]])
            for key in a
        )
    if a.dtype == object:
        return a.shape == b.shape and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b))


def test_a_difference_between_infos_is_noticed() -> None:
    marks = np.array([True, False])
    assert same({"x": np.array([1, 2]), "_x": marks}, {"x": np.array([1, 3]), "_x": marks})
    assert not same({"x": np.array([1, 2]), "_x": marks}, {"x": np.array([0, 2]), "_x": marks})
    assert not same({"x": np.array([1, 2]), "_x": marks}, {"x": np.array([1, 2])})
    assert not same(np.array([1, 2]), np.array([1.0, 2.0]))


class TownOfRow(TownEnv):
    """The single environment with the random stream of a row of the vector environment."""

    def __init__(self, row: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._engine.restore({"row": np.array([row], np.int32)})


@pytest.mark.parametrize("mask_observation", [False, True])
@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("world", ["town-shuffled", "town-l3"])
def test_every_mode_equals_gymnasium_vectorization(world: str, mode: AutoresetMode, mask_observation: bool) -> None:
    settings: dict[str, Any] = {"overrides": ["max_steps=60"], "mask_observation": mask_observation}
    rows = [partial(TownOfRow, row, world, **settings) for row in range(5)]
    theirs = SyncVectorEnv(rows, autoreset_mode=mode)
    ours = TownVectorEnv(5, world, autoreset_mode=mode, **settings)
    got, expected = ours.reset(seed=3), theirs.reset(seed=[3] * 5)
    chance = np.random.default_rng(0)
    ends = 0
    for step in range(200):
        assert all(same({"part": a}, {"part": b}) for a, b in zip(expected, got, strict=True)), step
        actions = np.where(np.arange(5) < 3, RIGHT, chance.integers(0, 6, 5))
        took, expects = ours.step(actions), theirs.step(actions)
        assert all(same({"part": a}, {"part": b}) for a, b in zip(expects[:4], took[:4], strict=True)), step
        got, expected = took[::4], expects[::4]
        ended = took[2] | took[3]
        ends += int(ended.sum())
        if mode is AutoresetMode.DISABLED and ended.any():
            assert all(same({"part": a}, {"part": b}) for a, b in zip(expected, got, strict=True)), step
            got, expected = (env.reset(options={"reset_mask": ended.copy()}) for env in (ours, theirs))
    assert ends > 10


def test_final_causes_are_codes_of_their_names() -> None:
    env = TownVectorEnv(3, "town", ["map.start=[0, 0]", "max_steps=120"], autoreset_mode="same_step")
    env.reset(seed=0)
    ends = []
    for age in range(1, 131):
        actions = np.array([RIGHT, WAIT, RIGHT if age > 40 else WAIT])
        _, _, terminated, truncated, info = env.step(actions)
        assert (info["cause"] == -1).all()
        for row in np.flatnonzero(terminated | truncated).tolist():
            ends.append((age, row, env.cause_name(info["final_info"]["cause"][row])))
    assert ends == [(100, 0, "energy"), (116, 2, "energy"), (120, 1, "time")]


def test_a_row_that_ended_must_be_reset_if_autoreset_is_disabled() -> None:
    env = TownVectorEnv(2, "town", ["max_steps=2"], autoreset_mode="disabled")
    env.reset(seed=0)
    env.step([WAIT, WAIT])
    assert env.step([WAIT, WAIT])[3].all()
    env.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(TownletError, match=r"row 1 has ended.*reset_mask"):
        env.step([WAIT, WAIT])
    env.reset(options={"reset_mask": np.array([False, True])})
    assert not env.step([WAIT, WAIT])[3].any()


@pytest.mark.parametrize("mode", AutoresetMode)
def test_max_episode_steps_equals_the_time_limit_of_single_environments(mode: AutoresetMode) -> None:
    ours = gym.make_vec("Townlet/Town-L3-v0", 2, autoreset_mode=mode, max_episode_steps=5)
    assert ours.spec is not None
    assert ours.spec.max_episode_steps == 5
    single = gym.make("Townlet/Town-L3-v0", max_episode_steps=5)
    single.reset(seed=1)
    ours.reset(seed=1)
    for _ in range(5):
        obs, reward, _, truncated, info = ours.step(np.array([WAIT, WAIT]))
        expected = single.step(WAIT)
        assert (reward[0], truncated[0]) == (expected[1], expected[3])
    assert truncated.all()
    last = info["final_obs"][0] if mode is AutoresetMode.SAME_STEP else obs[0]
    assert (last == expected[0]).all()


def test_the_spec_makes_an_equal_environment() -> None:
    env = gym.make_vec("Townlet/Town-v0", 2, overrides=["max_steps=9"], autoreset_mode="same_step")
    assert env.spec is not None
    again = gym.make_vec(env.spec)
    assert again.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert (again.reset(seed=1)[0] == env.reset(seed=1)[0]).all()
    assert again.spec is not None
    assert again.spec.max_episode_steps == env.spec.max_episode_steps == 9


BOX = ["observation=[meters, position]"]
WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "TransformObservation": lambda env: vector.TransformObservation(env, lambda obs: obs * 2),
    "VectorizeTransformObservation": lambda env: vector.VectorizeTransformObservation(
        env, gym.wrappers.TransformObservation, func=lambda obs: obs * 2, observation_space=env.single_observation_space
    ),
    "FlattenObservation": vector.FlattenObservation,
    "ReshapeObservation": lambda env: vector.ReshapeObservation(env, (2, 5)),
    "RescaleObservation": lambda env: vector.RescaleObservation(env, np.float32(-1), np.float32(1)),
    "DtypeObservation": lambda env: vector.DtypeObservation(env, np.float32),
    "NormalizeObservation": vector.NormalizeObservation,
    "TransformAction": lambda env: vector.TransformAction(env, lambda action: action),
    "TransformReward": lambda env: vector.TransformReward(env, lambda reward: reward * 2),
    "VectorizeTransformReward": lambda env: vector.VectorizeTransformReward(
        env, gym.wrappers.TransformReward, func=lambda reward: reward * 2
    ),
    "ClipReward": lambda env: vector.ClipReward(env, -1, 1),
    "NormalizeReward": vector.NormalizeReward,
    "RecordEpisodeStatistics": vector.RecordEpisodeStatistics,
    "DictInfoToList": vector.DictInfoToList,
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_gymnasium_wrappers_work_with_the_default_mode(name: str) -> None:
    env = WRAPPERS[name](gym.make_vec("Townlet/Town-v0", 2, overrides=[*BOX, "max_steps=3"]))
    env.reset(seed=0)
    actions = np.array([RIGHT, WAIT])
    ended = [bool(env.step(actions)[3].all()) for _ in range(8)]
    assert ended == [False, False, True, False] * 2
    env.close()


def test_filter_observation_selects_the_mask() -> None:
    env = vector.FilterObservation(gym.make_vec("Townlet/Town-v0", 2, mask_observation=True), ["action_mask"])
    obs, info = env.reset(seed=0)
    assert (obs["action_mask"] == info["action_mask"]).all()


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
    with pytest.raises(TownletError, match="same_step"):
        gym.make_vec("Townlet/Town-v0", num_envs=2, autoreset_mode="same-step")
    with pytest.raises(TownletError, match=r"1 to 500.*max_steps=900"):
        gym.make_vec("Townlet/Town-v0", num_envs=2, max_episode_steps=900)
    env = TownVectorEnv(2, "town")
    for mask in ([True, False], np.array([1, 0]), np.zeros(2, bool), np.ones(3, bool)):
        with pytest.raises(TownletError, match="2 booleans"):
            env.reset(options={"reset_mask": mask})
    with pytest.raises(TownletError, match="without it first"):
        env.reset(options={"reset_mask": np.array([True, False])})


def test_every_row_is_rendered() -> None:
    env = gym.make_vec("Townlet/Town-L0-v0", num_envs=3, render_mode="rgb_array")
    env.reset(seed=0)
    env.step(np.array([RIGHT, WAIT, 0]))
    frames = env.render()
    assert frames is not None
    images = [instance(frame, np.ndarray) for frame in frames]
    assert [image.shape for image in images] == [(640, 960, 3)] * 3
    assert (images[0] != images[1]).any()
