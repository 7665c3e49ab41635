"""Overrides for runs that train in a second or two, and a Ctrl-C during training."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from townlet.runs import checkpoint
from townlet.runs.folder import Run

REPORT: Final = "metrics.report=true"  # drawing it takes longer than such a run, so few tests do
SHARED: Final = (
    "rows=8", "threads=1", "evaluation.episodes=8", "metrics.tensorboard=false", "metrics.report=false",
)  # fmt: skip
SMALL: Final[dict[str, tuple[str, ...]]] = {
    "town-l0:dqn": (
        *SHARED, "network.hidden=[16]", "budget.env_steps=1600", "evaluation.every=800", "agent.warmup=200",
        "agent.batch_size=32", "agent.update_every=4", "agent.replay=2000",
    ),
    "town:ppo": (
        *SHARED, "network.hidden=[16]", "budget.env_steps=1024", "evaluation.every=512", "agent.n_steps=16",
        "agent.batch_size=64",
    ),
    "town-l2:drqn": (
        *SHARED, "budget.env_steps=800", "evaluation.every=400", "agent.warmup=200", "agent.replay=2000",
        "agent.batch_size=4", "agent.update_every=2", "evaluation.change={max_steps: 400}",
        "network={name: mlp, hidden: [16], recurrent: {kind: gru, size: 8, post_widths: [8]}}",
    ),
}  # fmt: skip
# The same for Gymnasium environments: every kind of action, network and observation once.
GYM: Final = ("threads=1", "evaluation.episodes=5", "metrics.tensorboard=false", "metrics.report=false")
PPO: Final = (*GYM, "rows=4", "network.hidden=[16]", "agent.n_steps=64", "agent.epochs=2", "budget.env_steps=512")
SMALL_GYM: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "ppo": ("CartPole-v1:ppo", (*PPO, "evaluation.every=256")),
    "dqn": (
        "CartPole-v1:dqn",
        (
            *GYM, "network.hidden=[16]", "agent.warmup=100", "agent.batch_size=16", "agent.gradient_steps=2",
            "env_steps=400",
        ),
    ),
    "reinforce": (
        "CartPole-v1:ppo", (*GYM, "network.hidden=[16]", "agent={name: reinforce}", "rows=4", "env_steps=400"),
    ),
    "pqn": (
        "CartPole-v1:ppo",
        (*GYM, "network={hidden: [16], layer_norm: true}", "agent={name: pqn}", "rows=4", "env_steps=512"),
    ),
    "qlearning": ("FrozenLake-v1:qlearning", (*GYM, "env_steps=1000", "gym.max_episode_steps=60")),
    "numbers": ("Pendulum-v1:ppo", (*PPO, "gym.normalize_obs=running", "gym.max_episode_steps=60")),
    "scaled": ("Acrobot-v1:ppo", (*PPO, "gym.max_episode_steps=40")),
}  # fmt: skip


def train_gym(kind: str, root: Path, *words: str) -> Run:
    """Train a run of SMALL_GYM to its end."""
    from townlet.tasks.experiment import load_experiment
    from townlet.train.session import start

    recipe, small = SMALL_GYM[kind]
    return start(load_experiment(recipe, [*small, *words]), root).run


@contextmanager
def ctrl_c_once_training(root: Path) -> Iterator[None]:
    """Press Ctrl-C in this process once a run below `root` has a checkpoint, so that training has begun."""

    def press() -> None:
        for _ in range(1200):
            if any(checkpoint.paths(run.checkpoints) for run in Run.list(root)):
                break
            time.sleep(0.05)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    try:
        yield
    finally:
        thread.join()
