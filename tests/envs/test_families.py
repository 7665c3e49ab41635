"""Families of environments that are installed apart, where they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from townlet.contract import conformance
from townlet.contract.vec_env import Discrete
from townlet.envs import extras
from townlet.envs.make import make_vec
from townlet.envs.spec import EnvSpec
from townlet.errors import TownletError


def spec(**keys: Any) -> EnvSpec:
    return EnvSpec.model_validate({"max_episode_steps": 50, **keys})


def family(name: str) -> Any:
    """Skips where a family is not installed."""
    there = next(f for f in extras.FAMILIES if f.extra == name).installed
    return pytest.mark.skipif(not there, reason=f"townlet[{name}] is not installed")


@pytest.mark.parametrize(
    ("id", "keys", "exact"),
    [
        pytest.param("LunarLander-v3", {}, False, marks=family("box2d")),
        pytest.param("InvertedPendulum-v5", {}, True, marks=family("mujoco")),
        pytest.param("HalfCheetah-v5", {}, True, marks=family("mujoco")),
    ],
)
def test_simulators_keep_the_contract(id: str, keys: dict[str, Any], exact: bool) -> None:
    conformance.check(lambda rows: make_vec(id, spec(**keys), rows))
    assert make_vec(id, spec(**keys), 1).exact is exact


@pytest.mark.long
@family("atari")
@pytest.mark.parametrize(
    "keys",
    [
        {"observation": "objects"},
        {"observation": "ram", "normalize_obs": "static"},
        {"observation": "rgb", "grayscale": True, "resize": (21, 21), "frame_stack": 2, "frame_skip": 4},
    ],
)
def test_consoles_go_on_where_they_were(keys: dict[str, Any]) -> None:
    conformance.goes_on_where_it_was(lambda rows: make_vec("ALE/Pong-v5", spec(**keys), rows))
    env = make_vec("ALE/Pong-v5", spec(**keys), 1)
    assert env.exact
    assert env.actions == Discrete(("noop", "fire", "right", "left", "rightfire", "leftfire"))


@family("atari")
def test_the_ball_of_pong_is_where_its_picture_shows_it() -> None:
    env = make_vec("ALE/Pong-v5", EnvSpec(observation="objects"), 1, render_mode="rgb_array")
    env.reset(0)
    found = []
    for _ in range(80):
        seen = env.step(torch.ones(1, dtype=torch.int64)).obs[0]
        frame = env.frames()[0][34:194]  # the field
        rows, columns = (frame == [236, 236, 236]).all(2).nonzero()
        if len(rows) and float(seen[2]):
            found.append((float(columns.mean()), float(seen[2]) * 255))
    xs, cells = torch.tensor(found).T
    assert len(found) > 20
    assert torch.corrcoef(torch.stack([xs, cells]))[0, 1] > 0.95
    env.close()


@pytest.mark.long
@family("atari")
def test_the_consoles_own_vectorization_keeps_the_contract() -> None:
    keys: dict[str, Any] = {"vectorization": "native", "grayscale": True, "resize": (20, 20), "frame_stack": 2}
    keys |= {"frame_skip": 4, "kwargs": {"max_num_frames_per_episode": 200}, "max_episode_steps": None}
    for promise in (conformance.values_in_range, conformance.ended_rows):
        promise(lambda rows: make_vec("ALE/Breakout-v5", spec(**keys), rows))


@family("minigrid")
def test_grids_keep_the_contract_without_their_words() -> None:
    with pytest.raises(TownletError, match="'mission'"):
        make_vec("MiniGrid-Empty-5x5-v0", spec())
    parts = ({"name": "keys", "keep": ("image", "direction")},)
    conformance.check(lambda rows: make_vec("MiniGrid-Empty-5x5-v0", spec(wrappers=parts), rows))


@family("vizdoom")
def test_a_level_of_doom_can_be_played() -> None:
    parts = ({"name": "keys", "keep": ("screen",)},)
    env = make_vec("VizdoomBasic-v1", spec(wrappers=parts), 1)
    seen = env.reset(0)
    assert env.layout.block("screen").kind == "picture"
    for _, step in conformance.play(env, seen, 5):
        assert 0 < step.obs.mean() < 1
    env.close()
