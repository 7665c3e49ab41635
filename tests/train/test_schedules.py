"""Every setting that can be scheduled follows its schedule during training, by its recorded metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from townlet.config.schedule import Schedule
from townlet.interfaces.counters import Counters
from townlet.runs.metrics_reader import MetricsReader
from townlet.tasks.experiment import load_experiment
from townlet.train.session import create_session, start

BUDGET, ROWS = 512, 4
SMALL = (
    "threads=1", f"rows={ROWS}", "network.hidden=[16]", "evaluation={episodes: 2, every: 1}", f"env_steps={BUDGET}",
    "metrics.tensorboard=false", "metrics.report=false",
)  # fmt: skip
LONG = "{{start: {0}, end: {1}, from: 0.25, to: 384, shape: {2}, warmup: 0.125}}"
# recipe → (env_steps between updates, other settings, scheduled key → its metric)
AGENTS = {
    "CartPole-v1:ppo": (64, ("agent.n_steps=16", "agent.epochs=1"), {
        "agent.lr": "lr", "agent.clip": "clip", "agent.value_clip": "value_clip", "agent.entropy_coef": "entropy_coef",
        "agent.value_coef": "value_coef"}),
    "CartPole-v1:dqn": (16, (
        "agent.warmup=16", "agent.batch_size=8", "agent.gradient_steps=1", "agent.prioritized={}"), {
        "agent.lr": "lr", "agent.prioritized.beta": "beta", "explore.action_selection.schedule": "epsilon"}),
    "CartPole-v1:reinforce": (4, ("agent={name: reinforce, episodes: 1}",), {
        "agent.lr": "lr", "agent.entropy_coef": "entropy_coef", "agent.value_coef": "value_coef"}),
    "FrozenLake-v1:qlearning": (64, (), {"agent.lr": "lr", "explore.action_selection.schedule": "epsilon"}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("recipe", "form"), [*((recipe, "cosine") for recipe in AGENTS), ("CartPole-v1:ppo", "lin_0.001")]
)
def test_every_schedule_changes_the_run_as_written(recipe: str, form: str, tmp_path: Path) -> None:
    every, own, keys = AGENTS[recipe]
    text = LONG.format(0.4, 0.01, form) if "_" not in form else form
    words = [*SMALL, f"metrics.every={every}", *own, *(f"{key}={text}" for key in keys)]
    loaded = load_experiment(recipe.replace(":reinforce", ":ppo"), words)
    agent: Any = loaded.recipe.agent  # of any class with a learning rate
    way = agent.lr
    assert isinstance(way, Schedule)
    run = start(loaded, tmp_path).run
    with MetricsReader(run.metrics_file) as store:
        for metric in keys.values():
            reported = dict(zip(*store.series(metric), strict=True))
            assert len({*reported.values()}) > 3, metric
            before = ROWS if metric == "epsilon" else 0  # ε of the last action, before the step
            by_hand = {at: way.at(Counters(env_steps=at - before, budget=BUDGET)) for at in reported}
            assert reported == pytest.approx(by_hand), metric


@pytest.mark.parametrize(("share", "size"), [(1.0, 64), (0.25, 16), (0.3, 19), (0.001, 0.001)])
def test_batch_size_as_a_fraction_is_rounded_down_and_resolved(share: float, size: float, tmp_path: Path) -> None:
    """1 is the fraction of all steps, not a single step."""
    alone = ["agent.normalize_advantage=rollout"] if share < 0.01 else []
    loaded = load_experiment("CartPole-v1:ppo", [*SMALL, "agent.n_steps=16", f"agent.batch_size={share}", *alone])
    text = create_session(loaded, tmp_path).run.resolved_file.read_text()
    assert f"  batch_size: {size} " in text
