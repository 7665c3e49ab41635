"""Recipes for optional families of environments: each trains briefly, evaluates and resumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from townlet.runs.metrics_reader import MetricsReader
from townlet.tasks.experiment import load_experiment
from townlet.train.session import resume, start

SMALL = (
    "threads=1", "rows=2", "gym.max_episode_steps=12", "agent.n_steps=16", "agent.batch_size=0.5", "agent.epochs=1",
    "env_steps=192", "evaluation={every: 64, episodes: 2}", "metrics={every: 32, tensorboard: false, report: false}",
)  # fmt: skip
RECIPES = (
    "ALE/Pong-v5:ram", "ALE/Pong-v5:objects", "ALE/Breakout-v5:rgb", "ALE/Breakout-v5:objects", "HalfCheetah-v5:ppo",
    "VizdoomBasic-v1:ppo", "MiniGrid-DoorKey-5x5-v0:ppo",
)  # fmt: skip

# Slow to start, or like another recipe of the same console; tests/gym_envs covers their environments.
SLOW = (
    "ALE/Pong-v5:ram", "ALE/Pong-v5:objects", "ALE/Breakout-v5:rgb", "ALE/Breakout-v5:objects", "VizdoomBasic-v1:ppo",
)  # fmt: skip


@pytest.mark.parametrize("title", [pytest.param(t, marks=pytest.mark.long if t in SLOW else ()) for t in RECIPES])
def test_recipe_trains_evaluates_and_resumes(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # Doom leaves a file where it is started
    part = start(load_experiment(title, SMALL), tmp_path, pause_at=64).run
    with MetricsReader(resume(part, pause_at=128).run.metrics_file) as store:
        measured = store.read("evaluations", ("env_steps", "length"))
    assert measured["env_steps"] == [0, 64, 128]
    assert set(measured["length"][1:]) <= {float(n) for n in range(1, 13)}
