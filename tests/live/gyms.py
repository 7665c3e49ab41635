"""Small Gymnasium runs, one for each kind of action and observation, and a town; loaded as a pytest plugin."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from live.conftest import LiveServer
from live.episodes import start_episode
from shared_runs import Runs, train_once
from townlet.tasks.experiment import load_experiment
from townlet.train.session import start
from train.tiny import tiny

SMALL: Final = (
    "threads=1", "rows=4", "evaluation.episodes=2", "evaluation.every=200", "metrics.every=64",
    "metrics.tensorboard=false", "metrics.report=false",
)  # fmt: skip
PPO: Final = (*SMALL, "agent.n_steps=16", "agent.epochs=1", "env_steps=384")
LIMIT: Final = "gym.max_episode_steps=14"
RECIPES: Final = {
    "cart": ("CartPole-v1:ppo", *PPO, "network.hidden=[16]"),
    "lake": ("FrozenLake-v1:qlearning", *SMALL, "env_steps=384", LIMIT),
    "pendulum": ("Pendulum-v1:ppo", *PPO, "network.hidden=[16]", LIMIT),
    "bandit": ("Bandit-v0:ppo", *PPO, "network.hidden=[16]", "gym.kwargs={length: 14}"),
    "stacked": ("CartPole-v1:ppo", *PPO, "network.hidden=[16]", LIMIT, "gym.frame_stack=3"),
    "pixels": (
        "CartPole-v1:ppo", *SMALL, "agent.n_steps=16", "agent.epochs=1", "env_steps=64", "network=nature", LIMIT,
        "gym.observation=rgb", "gym.grayscale=true", "gym.resize=[42,42]", "gym.frame_stack=2",
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def gyms(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A run of each recipe, all in one folder."""

    def train(root: Path) -> Runs:
        found = {name: start(load_experiment(recipe, words), root).run for name, (recipe, *words) in RECIPES.items()}
        return {**found, "town": start(tiny("town:dqn"), root).run}

    return train_once(tmp_path_factory, "live-gyms", train)


@pytest.fixture(scope="session")
def shared_gym_server(gyms: Runs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """One server over all of them for all tests of a process."""
    server = LiveServer(gyms["cart"].path.parent, gyms["cart"].name, tmp_path_factory.mktemp("gyms") / "worlds")
    server.wait()
    yield server
    server.stop()


@pytest.fixture
def gym_server(shared_gym_server: LiveServer, gyms: Runs) -> Iterator[LiveServer]:
    """The shared server; afterwards no rollout is pending."""
    yield shared_gym_server
    for _ in range(300):
        if start_episode(shared_gym_server, gyms["cart"].name)[0] != 429:
            return
        time.sleep(0.1)
