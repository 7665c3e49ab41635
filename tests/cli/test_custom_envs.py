"""Failing, unusual and custom environments, and settings without effect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from cli.program import Program
from narrow import instance
from townlet.gym.make import make_vec
from townlet.gym.settings import GymSettings
from townlet.interfaces.vec_env import Continuous
from townlet.rng import Streams
from townlet.tasks.evaluation import RandomPolicy


@pytest.fixture(autouse=True)
def _permit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some arguments of the environments below are texts."""
    monkeypatch.setattr("townlet.config.user_code._permitted", True)


ENDLESS = float(np.finfo(np.float32).max)
SHORT = ["--steps", "200", "evaluation.episodes=2", "metrics.report=false", "metrics.tensorboard=false"]
QUICK = ["rows=2", "agent.n_steps=16", *SHORT]


class FaultyEnv(gym.Env[Any, Any]):
    """Short episodes with a requested failure after some steps."""

    def __init__(self, wrong: str = "", seen: str = "endless", done: str = "choice") -> None:
        boxes: dict[str, spaces.Space[Any]] = {
            "endless": spaces.Box(-ENDLESS, ENDLESS, (3,)),
            "stack": spaces.Box(0, 255, (20, 18, 12), np.uint8),
        }
        self.observation_space = boxes[seen]
        whole = spaces.Box(-1, 1, (1,), np.int64)
        self.action_space = spaces.Discrete(2) if done == "choice" else whole
        self._wrong, self._steps = wrong, 0
        self.taken: list[int] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        self.taken.append(int(np.asarray(action).reshape(-1)[0]))
        late = self._steps > 40
        if late and self._wrong == "link":
            raise ConnectionResetError("the simulator hung up")
        if late and self._wrong == "bug":
            raise ZeroDivisionError("nothing to divide by")
        seen = self._seen() * np.nan if late and self._wrong == "blind" else self._seen()
        return seen, np.nan if late and self._wrong == "pay" else 1.0, self._steps % 7 == 0, False, {}

    def _seen(self) -> Any:
        return np.full(self.observation_space.shape or (), 3, self.observation_space.dtype)


ENTRY_POINT: Callable[..., gym.Env[Any, Any]] = FaultyEnv
gym.register("FaultyEnv-v0", ENTRY_POINT)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("link", "FaultyEnv-v0 failed in step(): ConnectionResetError: the simulator hung up"),
        ("bug", "FaultyEnv-v0 failed in step(): ZeroDivisionError: nothing to divide by"),
        ("blind", "FaultyEnv-v0 failed in step(): ValueError: value 0 of the observation of row 0 is nan"),
    ],
)
def test_failing_environment_is_named_and_run_is_resumable(
    townlet: Program, tmp_path: Path, wrong: str, message: str
) -> None:
    done = townlet("train", "FaultyEnv-v0:ppo", f"gym.kwargs.wrong={wrong}", *QUICK, "--root", str(tmp_path))
    assert done.code == 2
    last = done.err[done.err.rindex(message) :]
    (run,) = [path for path in tmp_path.iterdir() if path.is_dir() and not path.is_symlink()]
    assert f"townlet train --resume {run}" in last
    assert "Traceback" not in done.err
    if wrong == "bug":
        assert 'raise ZeroDivisionError("nothing to divide by")' in (run / "log.txt").read_text()


def test_nan_reward_is_attributed_to_the_environment(townlet: Program, tmp_path: Path) -> None:
    done = townlet("train", "FaultyEnv-v0:ppo", "gym.kwargs.wrong=pay", *QUICK, "--root", str(tmp_path))
    assert done.code == 3
    assert "it comes from the environment" in done.err
    assert "agent.lr" not in done.err


def test_integer_actions_are_reached_uniformly() -> None:
    env = make_vec("FaultyEnv-v0", GymSettings(kwargs={"done": "whole"}), 1)
    assert isinstance(env.actions, Continuous)
    chance = RandomPolicy(env.actions, Streams(0).torch("whole"))
    seen = env.reset(0)
    for _ in range(600):
        env.step(chance.act(seen.obs, seen.mask))
    taken = instance(instance(env.vec, SyncVectorEnv).envs[0].unwrapped, FaultyEnv).taken
    counts = {value: taken.count(value) for value in sorted(set(taken))}
    assert set(counts) == {-1, 0, 1}
    assert min(counts.values()) > 150
    beyond = env.step(torch.tensor([[7.0]]))
    assert taken[-1] == 1
    assert bool(beyond.reward.isfinite().all())


def test_infinite_bounds_are_not_used_for_scaling() -> None:
    env = make_vec("FaultyEnv-v0", GymSettings(normalize_obs="static"), 1)
    assert env.reset(0).obs.tolist() == [[3.0, 3.0, 3.0]]


def test_color_stacks_have_channels_last() -> None:
    (block,) = make_vec("FaultyEnv-v0", GymSettings(kwargs={"seen": "stack"}), 1).layout
    assert block.shape == (12, 20, 18)


OWN = """
import gymnasium as gym
from townlet.config.user_code import wrapper
gym.register("OfMyOwn-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=50)
wrapper("as-it-is")(lambda env: env)
"""
RECIPE = """
env: OfMyOwn-v0
gym: {wrappers: [{name: custom, wrapper: as-it-is, file: mine.py}]}
variants:
  ppo: {extends: "gym:ppo", env: OfMyOwn-v0}
"""


def test_allowed_file_may_register_an_environment(
    townlet: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("townlet.config.user_code._permitted", False)
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "mine.yaml").write_text(RECIPE)
    refused = townlet("train", "mine.yaml:ppo", *QUICK)
    assert refused.code == 2
    assert "--allow-code" in refused.err
    assert townlet("train", "mine.yaml:ppo", *QUICK, "--allow-code").code == 0
    unknown = townlet("train", "Qqxz-v0:ppo")
    assert "other environments are registered by their package, or by the file of a `custom` wrapper" in unknown.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["CartPole-v1:ppo", "explore.action_selection.end=.05", *QUICK],
            "ppo does not use explore.action_selection",
        ),
        (["FrozenLake-v1:qlearning", "network.hidden=[3]", *SHORT], "qlearning does not use network"),
        (["CartPole-v1:ppo", "agent.carry=false", *QUICK], "agent.carry=false changes nothing"),
    ],
)
def test_ineffective_settings_are_reported(townlet: Program, tmp_path: Path, words: list[str], message: str) -> None:
    done = townlet("train", *words, "--root", str(tmp_path))
    assert done.code == 0
    assert message in done.out + done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["MountainCar-v0:ppo", "evaluation.metric=length", "budget.threshold=true"],
            "`true` means the goal of the recipe",
        ),
        (["CartPole-v1:dqn", "evaluation.deterministic=false"], "dqn learns values and has no probabilities"),
        (["CartPole-v1:ppo", "n_envs=4"], "did you mean 'rows'?"),
        (["CartPole-v1:ppo", "normalize_obs=running"], "did you mean gym.normalize_obs=running?"),
        (["CartPole-v1:ppo", "gym.wrappers=[{name: action_mask, valid: [5]}]"], "command line: gym.wrappers="),
    ],
)
def test_contradictory_settings_are_rejected(townlet: Program, words: list[str], message: str) -> None:
    done = townlet("train", *words)
    assert done.code == 2
    assert message in done.err


def test_custom_agent_is_published_with_its_code(
    townlet: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("townlet.config.user_code._permitted", False)  # restored after the test
    (tmp_path / "half.py").write_text(OWN.replace("as-it-is", "half").replace("OfMyOwn-v0", "Elsewhere-v7"))
    recipe = RECIPE.replace("as-it-is", "half").replace("mine.py", "half.py").replace("OfMyOwn-v0", "Elsewhere-v7")
    (tmp_path / "half.yaml").write_text(recipe)
    assert townlet("train", "half.yaml:ppo", *QUICK, "--allow-code").code == 0
    published = townlet("publish", "latest", "--to", "given", "--episodes", "2", "--allow-code")
    assert published.code == 0, published.err
    assert "Play it: townlet play given --allow-code" in published.out
    assert "townlet play . --allow-code" in (tmp_path / "given" / "README.md").read_text()
    (tmp_path / "half.py").unlink()
    del gym.registry["Elsewhere-v7"]  # as in another process
    assert str(tmp_path) not in (tmp_path / "given" / "resolved.yaml").read_text()
    assert townlet("eval", "given", "--episodes", "2", "--allow-code").code == 0
