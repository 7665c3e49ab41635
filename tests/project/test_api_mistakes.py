"""Mistakes in scripts and notebooks: one line that says where, what and how to fix it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import townlet
from project.test_api import Corridor
from small import PPO
from townlet.errors import TownletError
from townlet.runs.folder import Run
from townlet.tasks import evaluation


class FailsToStart(Corridor):
    def __init__(self) -> None:
        raise ValueError("no\nlicense.")


class FailsInReset(Corridor):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        raise ValueError("no cell")


class FailsInStep(Corridor):
    def step(self, action: np.int64) -> Any:
        if self._steps == 12:  # not in the first steps, which check the environment
            raise ValueError("no\nstep")
        return super().step(action)


class FourResults(Corridor):
    def step(self, action: np.int64) -> Any:
        return super().step(action)[:4]


class NanReward(Corridor):
    def step(self, action: np.int64) -> Any:
        obs, _, *rest = super().step(action)
        return obs, float("nan"), *rest


class LateNan(Corridor):
    def step(self, action: np.int64) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, float("nan") if self._steps == 12 else reward, *rest


class NoSpace(Corridor):
    observation_space = None  # type: ignore[assignment]


class OldReset(Corridor):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed)[0]


class WrongShape(Corridor):
    def _obs(self) -> Any:
        return super()._obs()[:4]


class Endless(Corridor):
    def step(self, action: np.int64) -> Any:
        obs, reward, *_ = super().step(np.int64(0))
        return obs, reward, False, False, {}


class Pair(Corridor):
    action_space = gym.spaces.Tuple((gym.spaces.Discrete(2),) * 2)  # type: ignore[assignment]


SHARED = Corridor()


def shared_env() -> Corridor:
    return SHARED


def train(env: Any, algorithm: str | None = None, **settings: Any) -> Callable[[Path], Any]:
    return lambda root: townlet.train(env, algorithm, overrides=[*PPO], root=root, **settings)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (train(lambda: Corridor(), "sac"), "^lambda has no variant 'sac'; known: ppo, dqn"),
        (train(Pair), "Pair has Tuple actions, which no agent supports"),
        (train(FailsToStart), r"FailsToStart cannot be made: ValueError: no license \(test_api_mistakes\.py:\d+\); "),
        (train(FailsInReset), r"FailsInReset cannot be made: ValueError: no cell \(test_api_mistakes\.py:\d+\); "),
        (
            train(lambda: FailsInStep()),
            r"failed in step\(\): ValueError: no step \(test_api_mistakes\.py:\d+\); .* train again",
        ),
        (
            train(FourResults),
            r"FourResults\.step\(\) returns 4 values \(test_api_mistakes\.py:\d+\); return obs, reward",
        ),
        (train(lambda: None), "lambda cannot be made: .*must inherit from the gymnasium.Env class"),
        (train(NanReward), r"the reward of NanReward\.step\(\) is nan \(test_api_mistakes\.py:\d+\); return a finite"),
        (train(LateNan), "LateNan returned a reward that is NaN or infinite; return finite rewards"),
        (
            train(NoSpace),
            r"NoSpace has no observation_space \(test_api_mistakes\.py:\d+\); set self\.observation_space",
        ),
        (train(OldReset), r"OldReset\.reset\(\) returns an array of shape \(5,\) \(.*\); return obs, info"),
        (train(WrongShape), r"observation of WrongShape\.reset\(\) has shape \(4,\), its space \(5,\)"),
        (train(Endless), "Endless has not ended after 60 steps, and nothing limits it; set gym.max_episode_steps"),
        (train(Corridor, device="cuda:99"), "device: cuda:99: torch finds .* CUDA device.*; write device=cpu"),
        (train(Corridor, callbacks=print), "`callbacks` is a builtin_function_or_method; give a list of functions"),
        (train(Corridor, callbacks=[3]), "a callback of type int cannot be called"),
        (train(Corridor, seeds=[1, 2]), r"seeds=\[1, 2\] is not a whole number of at least 1"),
        (train(Corridor, seeds=2, jobs=0), "jobs=0 is not a whole number of at least 1"),
        (lambda _: townlet.make("town", rows=2, thread=3), "a town has no setting 'thread'; did you mean 'threads'"),
        (lambda _: townlet.open_run("elder").evaluate(0), "episodes=0 is not a whole number of at least 1"),
        (lambda _: townlet.open_run("elder").resume(-5), "steps=-5 is not a whole number of at least 1"),
        (lambda _: townlet.open_run("elder").resume(float("nan")), "steps=nan is not a whole number of at least 1"),
        (lambda _: townlet.open_run("elder").evaluate(3, seed=-1), "seed=-1 is not a whole number of at least 0"),
        (lambda _: townlet.open_run("elder").evaluate(True), "episodes=True is not a whole number"),
        (lambda _: townlet.open_run("elder").load(0.5), "a run has no checkpoint '0.5'; use best or last, or a number"),
        (lambda _: townlet.plot({}), "there are no runs to plot"),
        (train(Corridor, step=1000), r"train\(\) has no argument 'step'; did you mean 'steps'"),
        (lambda _: townlet.make("town", 0), "rows=0 is not a whole number of at least 1"),
        (lambda _: townlet.open_run("elder").load(-4), "a run has no step -4"),
        (train(shared_env), "shared_env returns the same environment each time, but every row needs a separate one"),
        (
            lambda _: townlet.load("elder").act(([0.0], {})),
            r"tuple with parts of different shapes.*env\.reset\(\)\[0\]",
        ),
    ],
)
def test_mistakes_are_one_line(
    attempt: Callable[[Path], Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "LONG_EPISODE", 60)
    with pytest.raises(TownletError, match=message) as caught:
        attempt(tmp_path)
    assert "\n" not in str(caught.value)
    assert "<local" not in str(caught.value)
    assert caught.value._render_traceback_()[-1] == str(caught.value)  # what a notebook shows


@pytest.mark.parametrize("seeds", [None, 2])
@pytest.mark.parametrize("error", [ConnectionError, ValueError])
def test_error_of_a_callback_reaches_the_program_as_it_was_raised(
    error: type[Exception], seeds: int | None, tmp_path: Path
) -> None:
    def fail(progress: Any) -> None:
        raise error("the dashboard is offline")

    with pytest.raises(error, match=r"^the dashboard is offline$") as caught:
        townlet.train(Corridor, overrides=[*PPO], root=tmp_path, callbacks=[fail], seeds=seeds)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__  # a traceback shows only the callback's error
    (run,) = Run.list(tmp_path)
    townlet.open_run(run.path).resume()  # from the last checkpoint


def test_notebook_shows_a_mistake_without_the_code_of_townlet() -> None:
    with pytest.raises(TownletError) as caught:
        townlet.make("CartPol-v1")
    assert caught.value._render_traceback_() == ["there is no environment 'CartPol-v1'; did you mean 'CartPole-v1'?"]


def test_environment_without_time_limit_trains_if_its_episodes_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "LONG_EPISODE", 32)  # episodes take at most 30
    townlet.train(Corridor, overrides=[*PPO, "env_steps=256"], root=tmp_path)
    townlet.train(Endless, overrides=[*PPO, "env_steps=256"], gym={"max_episode_steps": 70}, root=tmp_path)
    assert len(Run.list(tmp_path)) == 2


def test_a_training_that_fails_at_its_start_is_not_the_latest_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "LONG_EPISODE", 60)
    with pytest.raises(TownletError, match="nothing limits it"):
        train(Endless)(tmp_path)
    with pytest.raises(TownletError, match=r"no run in .* has a trained agent yet; train one first"):
        townlet.load("latest", root=tmp_path)
    good = townlet.train(Corridor, overrides=[*PPO, "env_steps=256"], root=tmp_path).path
    with pytest.raises(TownletError, match="nothing limits it"):
        train(Endless)(tmp_path)
    assert len(Run.list(tmp_path)) == 3
    assert townlet.load("latest", root=tmp_path).run.name == good.name
    assert townlet.open_run("latest", tmp_path).path.name == good.name
