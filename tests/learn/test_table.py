"""The shipped recipes reach their goals: one seed, last evaluation of 100 episodes. Scores are printed (pytest -s)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from townlet.runs.metrics_reader import MetricsReader
from townlet.tasks.experiment import load_experiment
from townlet.tasks.town_evaluation import TownEvaluation
from townlet.train.session import TrainingOutcome, start


@dataclass(frozen=True)
class Goal:
    """What a recipe must reach within `minutes` of CPU time: a mean length of episodes of at most `limit` steps."""

    mean: float
    limit: int
    minutes: float
    survived: float = 0.0
    earns_money: float = 0.0


GOALS = {
    "town-l0:dqn": Goal(285, 300, 1, survived=0.95),
    "town-l0-dual:dqn": Goal(480, 500, 3),
    "town:dqn": Goal(480, 500, 10),
    "town:ppo": Goal(480, 500, 4),
    "town:pqn": Goal(480, 500, 4),
    "town:life": Goal(1900, 2000, 10, earns_money=1.0),
    "town-l2:drqn": Goal(450, 500, 20),
    "town-l2:ppo": Goal(450, 500, 20),
    "town-l3:ppo": Goal(1500, 2000, 30, earns_money=0.95),
    "town-shuffled:ppo": Goal(300, 500, 30),
    "town-foggy:drqn": Goal(1000, 2000, 30, earns_money=0.8),
    "town-dark:ppo": Goal(180, 300, 10),
}


def trained(recipe: str, root: Path, *overrides: str) -> tuple[TrainingOutcome, TownEvaluation, float]:
    """Train a whole recipe on one thread; its outcome, last evaluation and CPU seconds."""
    begin = time.process_time()
    outcome = start(load_experiment(recipe, ("threads=1", "budget.minutes=120", *overrides)), root)
    seconds = time.process_time() - begin
    last = outcome.ending.evaluation
    assert outcome.ending.finished
    assert isinstance(last, TownEvaluation)
    print(f"\n{recipe}: {last.mean_length:.1f} of {last.world.spec.max_steps}, {last.survived:.0%} reach it, ", end="")
    print(f"{last.earns_money or 0:.0%} work, {len(last.length)} episodes, {seconds:.0f} s; {outcome.ending.why}")
    return outcome, last, seconds


@pytest.mark.parametrize(
    "recipe", [pytest.param(r, marks=pytest.mark.long(minutes=g.minutes)) for r, g in GOALS.items()]
)
def test_shipped_recipe_reaches_its_goal_in_time(recipe: str, tmp_path: Path) -> None:
    goal = GOALS[recipe]
    _, last, seconds = trained(recipe, tmp_path)
    assert (last.world.spec.max_steps, len(last.length)) == (goal.limit, 100)
    assert last.mean_length >= goal.mean
    assert last.survived >= goal.survived
    assert (last.earns_money or 0.0) >= goal.earns_money
    assert seconds <= 60 * goal.minutes


@pytest.mark.long(minutes=6)
def test_without_memory_town_dark_is_deadly(tmp_path: Path) -> None:
    _, last, _ = trained("town-dark:ppo", tmp_path, "agent.carry=false")
    assert last.mean_length < GOALS["town-dark:ppo"].mean / 2


@pytest.mark.long(minutes=10)
def test_reference_experiment_brings_every_row_to_the_last_stage(tmp_path: Path) -> None:
    outcome, last, _ = trained("town:dqn-reference", tmp_path)
    with MetricsReader(outcome.run.metrics_file) as metrics:
        changes = metrics.read("stage_changes", ["row", "to_stage", "reason"])
    reached = {row for row, stage in zip(changes["row"], changes["to_stage"], strict=True) if stage == 5}
    print(f"{len(reached)} rows reached stage 5")
    assert len(reached) == load_experiment("town:dqn-reference").recipe.row_count
    assert all(changes["reason"])
    assert last.mean_length >= 400


@pytest.mark.long(minutes=7)
def test_intrinsic_weight_fades_as_episodes_get_long_and_similar(tmp_path: Path) -> None:
    outcome, last, _ = trained("town:dqn-rnd", tmp_path)
    with MetricsReader(outcome.run.metrics_file) as metrics:
        weight = metrics.series("intrinsic_weight")[1]
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(weight))  # means of intervals are rounded
    assert weight[-1] < 0.1 * weight[0]
    assert last.mean_length > 250
