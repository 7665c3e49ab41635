"""Runs that train within a second, and a sink that stores everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from townlet.interfaces.counters import Counters, MetricsInterval, Sink
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.experiment import LoadedExperiment, load_experiment
from townlet.train.logger import MetricsLogger
from townlet.train.training import Training, build_training

TINY = (
    "rows=4", "threads=1", "network.hidden=[16]", "change.max_steps=40", "evaluation.episodes=3",
    "evaluation.every=400", "metrics.every=100", "metrics.tensorboard=false", "metrics.report=false",
    "budget={env_steps: 1200}",
)  # fmt: skip
DQN = (*TINY, "agent.replay=400", "agent.warmup=100", "agent.batch_size=8", "agent.update_every=5")
PPO = (*TINY, "agent.n_steps=16", "agent.batch_size=.5")
STAGES = "curriculum={name: adaptive, episodes: 2, steps: 40, entropy: 1.0}"


def tiny(recipe: str = "town:dqn", *words: str) -> LoadedExperiment:
    """A small version of a recipe, with further overrides."""
    return load_experiment(recipe, [*(PPO if recipe.endswith("ppo") else DQN), *words])


def build_with_logger(loaded: LoadedExperiment, store: MetricsStore, *sinks: Sink) -> tuple[Training, MetricsLogger]:
    """A training before its first step, and its metrics logger."""
    t, metrics = build_training(loaded), loaded.recipe.metrics
    return t, MetricsLogger(t, loaded.recipe.to_env_steps(metrics.every), metrics.whole_episodes, store, sinks)


class RecordingSink(Sink):
    """A sink that stores everything it receives."""

    def __init__(self) -> None:
        self.intervals: list[MetricsInterval] = []
        self.evaluations: list[Mapping[str, Any]] = []
        self.messages: list[str] = []
        self.rollouts = 0
        self.closed = False

    def on_rollout(self, counters: Counters) -> None:
        self.rollouts += 1

    def on_interval(self, interval: MetricsInterval) -> None:
        self.intervals.append(interval)

    def on_evaluation(self, counters: Counters, columns: Mapping[str, Any]) -> None:
        self.evaluations.append({"env_steps": counters.env_steps, **columns})

    def message(self, text: str) -> None:
        self.messages.append(text)

    def close(self) -> None:
        self.closed = True
