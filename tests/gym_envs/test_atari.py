"""Atari: images, limits and rewards are the same with separate rows and native vectorization."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv

from narrow import instance
from townlet.errors import TownletError
from townlet.gym.make import make_vec
from townlet.gym.settings import GymSettings
from townlet.gym.vector_env import GymVecEnv
from townlet.interfaces import conformance

SMALL: dict[str, Any] = {"grayscale": True, "resize": (36, 36), "frame_stack": 2, "frame_skip": 4}


def console(game: str, rows: int = 2, render_mode: str | None = None, **keys: Any) -> GymVecEnv:
    return make_vec(f"ALE/{game}-v5", GymSettings.model_validate(keys), rows, render_mode=render_mode)


@cache
def shared(vectorization: str, color: bool) -> GymVecEnv:
    """One row of Pong, made once: loading a game takes longer than most tests. Reset it before use."""
    keys = {"grayscale": False, "resize": None} if color else {}
    return console("Pong", 1, **{**SMALL, **keys, "vectorization": vectorization})


def native(game: str, rows: int = 2, **keys: Any) -> GymVecEnv:
    return console(game, rows, **{"vectorization": "native", **SMALL, **keys})


@pytest.mark.parametrize(("color", "shape"), [(False, (2, 36, 36)), (True, (6, 210, 160))])
def test_native_and_row_observations_have_the_same_shape(color: bool, shape: tuple[int, ...]) -> None:
    for way in ("native", "sync"):
        env = shared(way, color)
        (block,) = env.layout
        assert (block.shape, block.kind, block.low, block.high, block.levels) == (shape, "picture", 0, 1, 255)
        seen = env.reset(0).obs * 255
        assert torch.allclose(seen, seen.round(), atol=1e-4)
        assert 0.1 < float(seen.mean() / 255) < 0.9


def test_color_frames_are_stacked_along_channels() -> None:
    """The field of Pong is brown, more red than blue; the newest frame is the last."""
    picture = shared("native", True).reset(0).obs.view(2, 3, 210, 160)
    middle = picture[:, :, 50:180, 30:130].mean((2, 3)) * 255
    assert torch.allclose(middle[1], torch.tensor([144.0, 72.0, 17.0]), atol=3)


@pytest.mark.parametrize(
    "check", [conformance.final_observations, pytest.param(conformance.values_in_range, marks=pytest.mark.long)]
)
def test_native_vectorization_conforms(check: Callable[[conformance.MakeEnv], None]) -> None:
    check(lambda rows: native("Breakout", rows, resize=(20, 20), max_episode_steps=9))


def test_max_episode_steps_counts_agent_steps() -> None:
    for way in ("native", "sync"):
        env = console("Pong", 1, max_episode_steps=7, **SMALL, vectorization=way)
        env.reset(0)
        ends = [bool(env.step(torch.zeros(1, dtype=torch.int64)).truncated.all()) for _ in range(7)]
        assert ends == [False] * 6 + [True]


def rewards(env: GymVecEnv, steps: int) -> set[float]:
    """Rewards of random actions."""
    return {paid for step in conformance.random_steps(env, env.reset(1), steps) for paid in step.reward.tolist()}


@pytest.mark.parametrize("way", ["native", pytest.param("sync", marks=pytest.mark.long)])
def test_rewards_are_clipped_in_training_only(way: str) -> None:
    """In Ms. Pacman unclipped rewards are at least 10."""
    spec = GymSettings.model_validate({**SMALL, "vectorization": way, "wrappers": ({"name": "clip_reward"},)})
    assert rewards(make_vec("ALE/MsPacman-v5", spec, 1), 120) == {0, 1}
    assert max(rewards(make_vec("ALE/MsPacman-v5", spec.unshaped(), 1), 120)) >= 10


def test_rendering_uses_rows_with_the_same_shape() -> None:
    env = console("Pong", 1, "rgb_array", **{"vectorization": "native", **SMALL})
    env.reset(0)
    assert env.layout == shared("native", False).layout
    assert env.frames()[0].shape == (210, 160, 3)
    env.close()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"observation": "ram"}, "no observation 'ram'"),
        ({"wrappers": ({"name": "remap_actions", "use": (0, 2)},)}, "not support the wrapper 'remap_actions'"),
        ({"wrappers": ({"name": "clip_reward", "limit": 2.0},)}, "'clip_reward' with limit 2"),
        ({"kwargs": {"wheels": 3}}, "cannot be made.*wheels"),
    ],
)
def test_unsupported_native_settings_are_rejected(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(TownletError, match=says):
        native("Pong", **keys)


def places(frame: np.ndarray[Any, Any], color: tuple[int, int, int]) -> tuple[float, float] | None:
    """The center [row, column] of each object of one color."""
    rows, columns = np.nonzero((frame == color).all(2))
    return (float(rows.mean()), float(columns.mean())) if len(rows) else None


def follow(game: str, steps: int, found: Any) -> dict[str, list[tuple[float, float]]]:
    """Pairs of an observed feature and its position in the rendered frame, over random actions."""
    env = console(game, 1, "rgb_array", observation="objects")
    names = instance(env.vec, SyncVectorEnv).envs[0].get_wrapper_attr("names")
    pairs: dict[str, list[tuple[float, float]]] = {}
    for step in conformance.random_steps(env, env.reset(3), steps):
        read = dict(zip(names, step.obs[0].tolist(), strict=True))
        for name, place in found(env.frames()[0]).items():
            if place is not None and read[name]:
                pairs.setdefault(name, []).append((read[name] * 255, place))
    env.close()
    return pairs


def of_pong(frame: np.ndarray[Any, Any]) -> dict[str, float | None]:
    field = frame[34:194]
    ball, ours, theirs = (places(field, c) for c in ((236, 236, 236), (92, 186, 92), (213, 130, 74)))
    return {
        "ball_x": ball and ball[1],
        "ball_y": ball and ball[0],
        "player_y": ours and ours[0],
        "enemy_y": theirs and theirs[0],
    }


def of_breakout(frame: np.ndarray[Any, Any]) -> dict[str, float | None]:
    red = (200, 72, 72)
    paddle, ball = places(frame[189:193, 8:152], red), places(frame[93:188, 8:152], red)
    return {"player_x": paddle and paddle[1], "ball_x": ball and ball[1], "ball_y": ball and ball[0]}


@pytest.mark.parametrize(("game", "found", "steps"), [("Pong", of_pong, 250), ("Breakout", of_breakout, 250)])
def test_objects_match_the_rendered_picture(game: str, found: Any, steps: int) -> None:
    pairs = follow(game, steps, found)
    assert set(pairs) == set(found(np.zeros((210, 160, 3))))
    for name, seen in pairs.items():
        read, shown = np.array(seen).T
        assert len(read) > 30, name
        assert np.corrcoef(read, shown)[0, 1] > 0.97, name
        assert np.polyfit(shown, read, 1)[0] == pytest.approx(1, abs=0.15), f"{name} is measured in pixels"
