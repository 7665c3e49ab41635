"""Transforms of all rows at once: normalization and frame stacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_envs.counting import Counting
from townlet.gym.make import make_vec
from townlet.gym.settings import GymSettings
from townlet.gym.spaces import ObservationEncoder
from townlet.gym.vector_env import GymVecEnv
from townlet.gym.wrappers.transforms import FrameStack, RunningNormalize
from townlet.interfaces import conformance

NEXT = AutoresetMode.NEXT_STEP
MODES = pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)


def spec(**keys: Any) -> GymSettings:
    return GymSettings.model_validate({"vectorization": "sync", **keys})


@MODES
def test_frame_stack_never_mixes_episodes(mode: AutoresetMode) -> None:
    vec = Counting(2, mode)
    env = GymVecEnv(vec, "Counting", transforms=[FrameStack(3)])
    first = int(env.reset(0).obs[0, 0])
    assert env.layout.block("obs").shape == (3, 2)
    actions = torch.zeros(2, dtype=torch.int64)
    ends = 0
    for _ in range(40):
        step = env.step(actions)
        frames = env.layout.view(step.obs, "obs")
        assert (frames[:, :, 0] == frames[:, :1, 0]).all()  # one episode
        ages = frames[..., 1]
        assert (ages.diff(dim=1) >= 0).all()
        assert (ages[step.episode_starts] == 0).all()
        last = env.final_obs()
        if len(last.rows):
            past = env.layout.view(last.obs, "obs")
            assert (past[:, :, 0] == past[:, :1, 0]).all()
            assert past[:, :, 1].tolist() == [[row, row + 1, row + 2] for row in last.rows.tolist()]
            ends += 1
    assert ends > 5
    assert first >= 0


def test_each_block_is_stacked_separately() -> None:
    env = make_vec("Blackjack-v1", spec(frame_stack=2), 12)
    assert [(b.name, b.start, b.shape, b.kind) for b in env.layout] == [
        ("0", 0, (2, 1), "index"),
        ("1", 2, (2, 1), "index"),
        ("2", 4, (2, 1), "index"),
    ]
    plain = make_vec("Blackjack-v1", spec(), 12)
    hit = torch.ones(12, dtype=torch.int64)
    before = plain.reset(1).obs.clone()
    env.reset(1)
    after, seen = plain.step(hit), env.step(hit)
    alive = ~after.episode_starts
    assert alive.any()
    for n in range(3):
        pair = env.layout.view(seen.obs, str(n))[:, :, 0]
        assert torch.equal(pair[alive], torch.stack([before[:, n], after.obs[:, n]], 1)[alive])


def test_static_normalization_maps_bounds_to_unit_range() -> None:
    env, plain = (make_vec("MountainCar-v0", spec(normalize_obs=way), 2) for way in ("static", "none"))
    assert [(b.low, b.high) for b in env.layout] == [(-1, 1)]
    low, high = torch.tensor([-1.2, -0.07]), torch.tensor([0.6, 0.07])
    assert torch.allclose(env.reset(0).obs, 2 * (plain.reset(0).obs - low) / (high - low) - 1, atol=1e-6)


def test_unbounded_values_are_not_scaled() -> None:
    env, plain = (make_vec("CartPole-v1", spec(normalize_obs=way), 2) for way in ("static", "none"))
    a, b = env.reset(0).obs, plain.reset(0).obs
    assert torch.equal(a[:, [1, 3]], b[:, [1, 3]])
    assert torch.allclose(a[:, 0], b[:, 0] / 4.8)
    assert [(x.low, x.high) for x in env.layout] == [(-np.inf, np.inf)]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    scale=st.floats(0.01, 1000),
    shift=st.floats(-1000, 1000),
    seed=st.integers(0, 999),
)
def test_running_statistics_equal_batch_statistics(sizes: list[int], scale: float, shift: float, seed: int) -> None:
    import gymnasium as gym

    encoder = ObservationEncoder(gym.spaces.Box(-np.inf, np.inf, (3,)))
    running = RunningNormalize()
    running.allocate(encoder.layout, 1, encoder)
    chance = np.random.default_rng(seed)
    batches = [(shift + scale * chance.standard_normal((n, 3))).astype(np.float32) for n in sizes]
    for batch in batches:
        running._update(batch)
    seen = np.concatenate(batches).astype(np.float64)
    state = running.state()
    assert state["count"] == len(seen)
    assert np.allclose(state["mean"], seen.mean(0), rtol=1e-5, atol=1e-5)
    assert np.allclose(state["squares"] / len(seen), seen.var(0), rtol=1e-4, atol=1e-4 * scale**2)


def test_running_normalization_conforms_except_row_independence() -> None:
    shared = (conformance.rows_are_independent,)
    conformance.check(lambda rows: make_vec("Pendulum-v1", spec(normalize_obs="running"), rows), exclude=shared)


def test_running_normalization_centers_and_scales() -> None:
    env = make_vec("Pendulum-v1", spec(normalize_obs="running", max_episode_steps=50), 8)
    seen = torch.stack([step.obs for step in conformance.random_steps(env, env.reset(0), 300)][150:]).reshape(-1, 3)
    assert seen.mean(0).abs().max() < 0.5
    assert ((seen.std(0) > 0.5) & (seen.std(0) < 1.5)).all()


def test_evaluation_uses_frozen_training_statistics() -> None:
    train, judge = (make_vec("Pendulum-v1", spec(normalize_obs="running"), 4) for _ in range(2))
    list(conformance.random_steps(train, train.reset(0), 100))
    known = train.state()["transforms"]["0"]
    judge.copy_transforms(train)
    list(conformance.random_steps(judge, judge.reset(1), 50))
    after = judge.state()["transforms"]["0"]
    assert after["count"] == known["count"] == 404
    assert (after["mean"] == known["mean"]).all()
    plain = make_vec("Pendulum-v1", spec(), 4).reset(2).obs.numpy()
    by_hand = (plain - known["mean"]) / np.sqrt(known["squares"] / 404 + 1e-8)
    assert np.allclose(judge.reset(2).obs.numpy(), by_hand, atol=1e-5)


def test_statistics_survive_an_inexact_restore() -> None:
    env, other = (make_vec("Pendulum-v1", spec(normalize_obs="running"), 2) for _ in range(2))
    for one in (env, other):
        one.exact = False  # as if the simulator could not be saved
    list(conformance.random_steps(env, env.reset(0), 40))
    other.restore(env.state())
    assert other.state()["transforms"]["0"]["count"] == env.state()["transforms"]["0"]["count"] + 2
