"""Agents learn in the town: short runs from scratch, on one core, with a fixed seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from townlet.runs.metrics_reader import MetricsReader
from townlet.tasks.experiment import load_experiment
from townlet.train.session import TrainingOutcome, start

SHORT = (
    "threads=1",
    "metrics.tensorboard=false",
    "metrics.report=false",
    "evaluation.every=.05",
    "evaluation.episodes=25",
)


def train(recipe: str, root: Path, *words: str) -> TrainingOutcome:
    outcome = start(load_experiment(recipe, [*SHORT, *words]), root)
    print(
        recipe,
        outcome.ending.why,
        outcome.ending.evaluation.mean_length if outcome.ending.evaluation else None,
        f"{outcome.seconds:.0f} s",
    )
    return outcome


def random_length(outcome: TrainingOutcome) -> float:
    """The mean length of the episodes of a random agent in the same towns."""
    with MetricsReader(outcome.run.metrics_file) as metrics:
        (length,) = metrics.read("evaluations", ["length"], where={"policy": "random"})["length"]
    return float(length)


def test_dqn_learns_to_sleep_in_time(tmp_path: Path) -> None:
    found = train("town-l0:dqn", tmp_path, "budget={env_steps: 2e5, threshold: 250}", "evaluation.every=.03")
    assert found.ending.why == "an evaluation reached the threshold"
    assert random_length(found) < 160  # of 300


def test_ppo_survives_much_longer_than_a_random_agent(tmp_path: Path) -> None:
    """With fewer rows and more epochs than the recipe, and a shaped reward: learns fast, but not as far."""
    words = ("rows=128", "agent.n_steps=32", "agent.batch_size=1024", "agent.epochs=4")
    shaped = "change.rewards=[milestone, {name: potential, weight: 100}]"
    found = train("town:ppo", tmp_path, *words, shaped, "budget={env_steps: 1e6, threshold: 180}")
    assert found.ending.why == "an evaluation reached the threshold"
    assert random_length(found) < 125  # of 500


@pytest.mark.long
def test_rows_advance_to_the_next_stage_by_learning(tmp_path: Path) -> None:
    """The shipped rules with few rows, each of which must do well in ten successive episodes."""
    words = ["rows=4", "agent.batch_size=64", "agent.warmup=1000", "agent.update_every=2"]
    words += ["network.hidden=[64]", "budget={env_steps: 2.8e4}", "evaluation.every=1", "evaluation.episodes=10"]
    found = train("town:dqn-curriculum", tmp_path, *words)
    with MetricsReader(found.run.metrics_file) as metrics:
        changes = metrics.read("stage_changes")
        assert metrics.series("stage")[1][0] == 1
    print(changes["reason"])
    on = [k for k, stage in enumerate(changes["to_stage"]) if stage == 2 and changes["from_stage"][k] == 1]
    assert len({changes["row"][k] for k in on}) >= 2
    assert all(changes["survival"][k] > 0.7 and changes["entropy"][k] < 0.5 for k in on)
    assert all(reason.startswith(("advance to stage", "retreat to stage")) for reason in changes["reason"])
