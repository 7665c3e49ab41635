"""Agents learn in Gymnasium environments: in seconds, and with the shipped recipes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from townlet.tasks.experiment import load_experiment
from townlet.train.session import TrainingOutcome, start

LEARNED = "an evaluation reached the threshold"


@dataclass(frozen=True)
class Goal:
    """The mean return that a recipe must reach, and the number of episodes it is measured in."""

    mean: float
    episodes: int = 100


GOALS = {
    "CartPole-v1:ppo": Goal(475),
    "CartPole-v1:dqn": Goal(475),
    "CartPole-v1:reinforce": Goal(475),
    "Acrobot-v1:ppo": Goal(-100),
    "MountainCar-v0:ppo": Goal(-110),
    "LunarLander-v3:ppo": Goal(200),
    "FrozenLake-v1:qlearning": Goal(0.70, 1000),
    "Taxi-v4:qlearning": Goal(7.5, 1000),
    "Bandit-v0:ppo": Goal(95),
    "Bandit-v0:reinforce": Goal(95),
    "Pendulum-v1:ppo": Goal(-200),
}
# Overrides for runs of seconds. Random agents reach 26 in CartPole, 0.02 in FrozenLake and 50 in Bandit. Each budget is
# several times what its seed needs.
SHORT = {
    "CartPole-v1:ppo": ("env_steps=6e4", "budget.threshold=150", "evaluation.every=.02", "evaluation.episodes=10"),
    "CartPole-v1:dqn": ("env_steps=4e4", "budget.threshold=150", "evaluation.every=.02", "evaluation.episodes=10"),
    "CartPole-v1:reinforce": (
        "env_steps=1e5",
        "budget.threshold=150",
        "evaluation.every=.02",
        "evaluation.episodes=10",
    ),
    "FrozenLake-v1:qlearning": (
        "env_steps=2e5",
        "budget.threshold=.4",
        "evaluation.every=.05",
        "evaluation.episodes=100",
    ),
    "Taxi-v4:qlearning": ("env_steps=3e5", "budget.threshold=4", "evaluation.every=.3", "evaluation.episodes=100"),
    "Bandit-v0:ppo": ("budget.threshold=95",),
    "Bandit-v0:reinforce": ("budget.threshold=95",),
}

# The same agents learn CartPole and FrozenLake.
SLOW = ("Bandit-v0:ppo", "Bandit-v0:reinforce", "Taxi-v4:qlearning")


def trained(recipe: str, root: Path, *words: str) -> TrainingOutcome:
    """Train a recipe on one thread and print its score (pytest -s)."""
    outcome = start(
        load_experiment(recipe, (*words, "threads=1", "metrics.tensorboard=false", "metrics.report=false")), root
    )
    assert outcome.ending.evaluation is not None
    score, seconds = outcome.ending.evaluation.score("return"), outcome.seconds
    print(f"\n{recipe} {' '.join(words)}: {score:.2f} in {seconds:.0f} s; {outcome.ending.why}")
    return outcome


@pytest.mark.parametrize("recipe", [pytest.param(r, marks=pytest.mark.long if r in SLOW else ()) for r in SHORT])
def test_agent_learns_in_seconds(recipe: str, tmp_path: Path) -> None:
    assert trained(recipe, tmp_path, *SHORT[recipe]).ending.why == LEARNED


@pytest.mark.long
@pytest.mark.parametrize("recipe", GOALS)
def test_shipped_recipe_reaches_its_goal(recipe: str, tmp_path: Path) -> None:
    if recipe.startswith("LunarLander") and find_spec("Box2D") is None:
        pytest.skip("Box2D is not installed: pip install 'townlet[box2d]'")
    last = trained(recipe, tmp_path).ending.evaluation
    assert last is not None
    assert len(last.returns) == GOALS[recipe].episodes
    assert last.score("return") >= GOALS[recipe].mean
