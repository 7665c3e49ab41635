"""Training in Gymnasium environments: episode counts, evaluations and exact resume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from crash.training_process import differences
from narrow import instance
from townlet.agents.ppo import PpoSettings
from townlet.errors import ConfigError, TownletError
from townlet.gym.make import make_vec
from townlet.gym.settings import GymSettings
from townlet.gym.vector_env import GymVecEnv
from townlet.rng import Streams
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader
from townlet.tasks.evaluation import RandomPolicy
from townlet.tasks.experiment import LoadedExperiment, load_experiment
from townlet.tasks.gym import GymTask
from townlet.train.policies import load_policy
from townlet.train.session import resume, start
from townlet.train.training import build_training

SMALL = (
    "threads=1", "rows=4", "network.hidden=[16]", "evaluation.episodes=6", "evaluation.every=500", "metrics.every=200",
    "metrics.tensorboard=false", "metrics.report=false", "metrics.whole_episodes=1000",
)  # fmt: skip
AGENTS = {
    "CartPole-v1:ppo": ("agent.n_steps=32", "agent.epochs=2"),
    "CartPole-v1:dqn": ("agent.warmup=100", "agent.batch_size=16", "agent.gradient_steps=1"),
    "CartPole-v1:reinforce": ("agent={name: reinforce, episodes: 4}",),
    "FrozenLake-v1:qlearning": (),
}


def small(recipe: str, *words: str) -> LoadedExperiment:
    """A small version of a recipe; agents without one use that of ppo."""
    name = recipe.replace(":reinforce", ":ppo")
    return load_experiment(name, [*SMALL, "env_steps=1024", *AGENTS.get(recipe, AGENTS["CartPole-v1:ppo"]), *words])


def columns(run: Run, table: str, *names: str) -> dict[str, list[float]]:
    with MetricsReader(run.metrics_file) as store:
        return store.read(table, names)


@pytest.mark.parametrize("vectorization", ["native", "sync"])
def test_cartpole_returns_equal_episode_lengths(vectorization: str, tmp_path: Path) -> None:
    """Every step pays 1: a reset step would make an episode longer than its return."""
    run = start(small("CartPole-v1:ppo", f"gym.vectorization={vectorization}"), tmp_path, pause_at=900).run
    ended = columns(run, "episodes", "length", "return")
    assert len(ended["length"]) > 10
    assert ended["length"] == ended["return"]
    measured = columns(run, "evaluations", "length", "return", "episodes")
    assert measured["length"] == measured["return"]
    assert set(measured["episodes"]) == {6}


# The state of an environment does not depend on the agent: every agent, and each vectorization with one agent.
@pytest.mark.parametrize(
    ("vectorization", "recipe"),
    [
        *(("native", recipe) for recipe in AGENTS),
        ("sync", "CartPole-v1:ppo"),
        ("sync", "FrozenLake-v1:qlearning"),
        pytest.param("sync", "CartPole-v1:dqn", marks=pytest.mark.long),
        pytest.param("sync", "CartPole-v1:reinforce", marks=pytest.mark.long),
    ],
)
def test_resumed_run_equals_an_uninterrupted_one(recipe: str, vectorization: str, tmp_path: Path) -> None:
    if recipe.startswith("FrozenLake"):  # has no native vectorization, and state indices are not normalized
        loaded = small(recipe, "gym.vectorization=sync", f"agent.double={str(vectorization == 'native').lower()}")
    else:
        loaded = small(recipe, f"gym.vectorization={vectorization}", "gym.normalize_obs=running")
    whole = start(loaded, tmp_path / "whole", pause_at=700).run
    part = start(loaded, tmp_path / "part", pause_at=400).run
    resume(part, pause_at=700)
    assert len(columns(whole, "episodes", "row")["row"]) > 10
    assert differences(whole.path, part.path) == []


def test_settings_for_towns_are_refused_with_their_location() -> None:
    with pytest.raises(ConfigError) as caught:
        small("CartPole-v1:ppo", "change.max_steps=3", "potential=1", "engine=numba")
    said = str(caught.value)
    assert said.count("applies to towns only, and this is a Gymnasium environment") == 3
    assert "command line: potential=1" in said


def test_unknown_environment_or_variant_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'CartPole-v1'"):
        load_experiment("CartPol-v1:ppo")
    with pytest.raises(TownletError, match="did you mean 'CartPole-v1:ppo'"):
        load_experiment("CartPole-v1:pp")


def test_generic_gym_recipe_needs_an_environment() -> None:
    with pytest.raises(ConfigError, match="settings for any Gymnasium environment; name one: townlet train ID:ppo"):
        load_experiment("gym:ppo")


@pytest.mark.parametrize(
    ("wrong", "beside"),
    [
        ("gym.kwargs.foo=3", "gym.frame_stack=2"),
        ("gym.wrappers=[{name: custom, wrapper: missing}]", "gym.vectorization=sync"),
        ("gym.observation=ram", "gym.frame_stack=2"),
    ],
)
def test_impossible_environment_is_reported_at_its_override(wrong: str, beside: str) -> None:
    with pytest.raises(ConfigError) as caught:
        small("CartPole-v1:ppo", wrong, beside)
    assert str(caught.value).startswith(f"command line: {wrong}: ")


def test_recurrent_network_gets_rows_without_reset_steps(tmp_path: Path) -> None:
    memory = "network.recurrent={size: 8}"
    run = start(small("CartPole-v1:ppo", memory, "env_steps=512"), tmp_path).run
    assert run.meta()["finished"]
    with pytest.raises(TownletError, match=r"set gym\.vectorization: sync"):
        build_training(small("CartPole-v1:ppo", memory, "gym.vectorization=native"))
    with pytest.raises(ConfigError, match="did you mean 'CartPole-v1'"):
        load_experiment("CartPol-v1:ppo", [memory])


def test_interrupted_evaluation_closes_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    task = instance(small("CartPole-v1:ppo").task, GymTask)
    closed: list[GymVecEnv] = []
    monkeypatch.setattr(GymVecEnv, "close", lambda env: closed.append(env))

    def check_interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        task.run_evaluation(RandomPolicy(task.actions, torch.Generator()), 2, 0, check_interrupt=check_interrupt)
    assert len(closed) == 1


def test_environment_without_a_recipe_takes_the_generic_one(tmp_path: Path) -> None:
    run = start(small("Pendulum-v1:ppo", "env_steps=512", "evaluation.every=2e3", "agent.n_steps=16"), tmp_path).run
    (last,) = columns(run, "evaluations", "return")["return"][-1:]
    assert -2500 < last < 0


def test_threshold_true_is_that_of_the_environment() -> None:
    assert small("CartPole-v1:ppo", "budget.threshold=true").recipe.budget.threshold == 475
    assert small("CartPole-v1:ppo", "budget.threshold=true", "reward_threshold=50").recipe.budget.threshold == 50
    with pytest.raises(ConfigError, match="has no threshold"):
        small("CliffWalking-v1:ppo", "budget.threshold=true")


def test_evaluations_normalize_observations_as_training_does(tmp_path: Path) -> None:
    """An agent trained on normalized observations is also evaluated on normalized ones."""
    words = ["threads=1", "gym.normalize_obs=running", "env_steps=6e3", "evaluation={every: 1, episodes: 20}"]
    quiet = ["metrics={whole_episodes: 1000, tensorboard: false, report: false}"]
    run = start(load_experiment("CartPole-v1:ppo", [*words, *quiet]), tmp_path).run
    lengths = columns(run, "episodes", "length")["length"]
    measured = columns(run, "evaluations", "length", "policy")
    assert measured["length"][-1] > 0.7 * float(np.mean(lengths[-30:])) > 50


def test_impossible_environment_is_reported_before_a_run_starts(tmp_path: Path) -> None:
    for title, word in (
        ("Pendulum-v1:ppo", "gym.kwargs.g=abc"),
        ("FrozenLake-v1:qlearning", "gym.kwargs.map_name=9x9"),
        ("CartPole-v1:ppo", "gym.kwargs.render_mode=human"),
        ("GymV26Environment-v0:ppo", "gym.kwargs.env_id=evil:Env-v0"),
    ):
        with pytest.raises(TownletError):
            start(load_experiment(title, [word]), tmp_path)
    assert not list(tmp_path.iterdir())


def test_episode_limit_counts_agent_steps() -> None:
    whole, cut = (small("Pendulum-v1:ppo", "gym.frame_skip=4", *more) for more in ((), ("gym.max_episode_steps=20",)))
    assert (whole.task.limit, cut.task.limit) == (50, 20)
    assert isinstance(cut.task, GymTask)
    env = cut.task.make_eval_env()
    env.reset(0)
    steps = [bool(env.step(torch.zeros(1, 1)).truncated[0]) for _ in range(20)]
    assert steps == [False] * 19 + [True]


def test_batch_size_one_is_a_fraction_and_a_minibatch_of_one_step_is_rejected() -> None:
    recipe = small("CartPole-v1:ppo", "agent.batch_size=1").recipe
    assert instance(recipe.agent, PpoSettings).batch_steps(64) == 64
    with pytest.raises(ConfigError, match="minibatches of one step"):
        small("CartPole-v1:ppo", "agent.batch_size=.001")


def test_policy_accepts_raw_observations(tmp_path: Path) -> None:
    run = start(small("CartPole-v1:ppo", "gym.normalize_obs=running"), tmp_path, pause_at=512).run
    trained = load_policy(run, "last")
    assert isinstance(trained.loaded.task, GymTask)
    env = trained.loaded.task.make_eval_env(8)
    env.reset(0)
    plain = make_vec("CartPole-v1", GymSettings(), 8)
    raw = plain.reset(Streams(0).key("env")).obs.clone()
    shown = env.reset(Streams(0).key("env"))
    assert torch.equal(trained.act(raw), trained.policy().act(shown.obs))
    assert not torch.allclose(raw, shown.obs)
