"""Stable-Baselines3 learns in the town."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from townlet.town.gymnasium import TownEnv


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small networks train faster on one thread, and identically on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.long
@pytest.mark.usefixtures("one_thread")
def test_ppo_learns_to_sleep_in_time() -> None:
    """A random agent survives about 137 of 300 steps, a waiting one 191; more requires the Bed."""
    towns = VecNormalize(make_vec_env("Townlet/Town-L0-v0", n_envs=32, seed=0), norm_obs=False, gamma=0.995)
    settings: dict[str, Any] = {"n_steps": 128, "batch_size": 512, "n_epochs": 8, "learning_rate": 1e-3}
    model = PPO("MlpPolicy", towns, gamma=0.995, gae_lambda=0.98, ent_coef=0.01, seed=0, **settings)
    model.learn(49_152)
    env, ages = TownEnv("town-l0"), []
    for episode in range(20):
        obs, _ = env.reset(seed=1000 + episode)
        age, over = 0, False
        while not over:
            action, _ = model.predict(obs)
            obs, _, terminated, truncated, _ = env.step(action)
            age, over = age + 1, terminated or truncated
        ages.append(age)
    assert np.mean(ages) > 205
