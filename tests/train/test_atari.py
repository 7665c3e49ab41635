"""Pong from images with Atari's native vectorization: training, saving and resuming."""

from __future__ import annotations

from pathlib import Path

import torch

from townlet.agents.ppo import Ppo
from townlet.runs.metrics_reader import MetricsReader
from townlet.tasks.experiment import LoadedExperiment, load_experiment
from townlet.train.collect import collect
from townlet.train.episodes import NullListener
from townlet.train.session import resume, start
from townlet.train.training import build_training

LIMIT = 20
SMALL = (
    "threads=1", "rows=2", "gym.kwargs={noop_max: 0}", "gym.resize=[36, 36]", f"gym.max_episode_steps={LIMIT}",
    "agent.n_steps=32", "agent.batch_size=0.5", "agent.epochs=1", "network.channels=[4, 8, 8]", "network.features=32",
    "evaluation={every: 160, episodes: 1}",
    "metrics={every: 64, whole_episodes: 1000, tensorboard: false, report: false}",
)  # fmt: skip


def pong(*words: str) -> LoadedExperiment:
    return load_experiment("ALE/Pong-v5:rgb", [*SMALL, *words])


def test_run_trains_and_resumes_with_new_episodes(tmp_path: Path) -> None:
    part = start(pong("rows=1", "env_steps=160"), tmp_path, pause_at=96).run
    outcome = resume(part)
    assert "New episodes start" in part.log_file.read_text(encoding="utf-8")
    with MetricsReader(outcome.run.metrics_file) as store:
        lengths = store.read("episodes", ("length",))["length"]
        measured = store.read("evaluations", ("env_steps", "length"))
    assert len(lengths) > 5
    assert set(lengths) == {LIMIT}, "autoreset steps and interrupted episodes do not count"
    assert measured["env_steps"][-1] == 160
    assert set(measured["length"]) == {LIMIT}


def test_autoreset_steps_are_not_learned_from() -> None:
    t = build_training(pong("env_steps=512"))
    assert isinstance(t.agent, Ppo)
    collect(t, 32, NullListener())
    autoreset = t.agent.rollout._storage.columns["autoreset"].flatten()
    learned = torch.cat([part.indices for part in t.agent.rollout.shards(16, torch.Generator())])
    assert int(autoreset.sum()) == 2  # both rows ended once
    assert torch.equal(learned.sort().values, (~autoreset).nonzero().squeeze(1))
    assert t.agent.rollout._storage.columns["obs_bytes"].dtype == torch.uint8
    assert t.agent.learn() is not None
