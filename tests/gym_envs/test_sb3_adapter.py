"""The town as a `VecEnv` of Stable-Baselines3."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

from townlet.errors import TownletError
from townlet.sb3 import make_vec

START = ["map.start=[0, 0]", "max_steps=120"]
RIGHT, WAIT = 3, 5


def test_it_equals_the_environments_that_stable_baselines_makes() -> None:
    ours = make_vec("Townlet/Town-v0", 3, overrides=START)
    theirs = make_vec_env("Townlet/Town-v0", 3, env_kwargs={"overrides": START})
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    assert np.array_equal(np.asarray(ours.reset()), np.asarray(theirs.reset()))
    ends = 0
    for age in range(130):
        actions = np.array([RIGHT, WAIT, RIGHT if age > 40 else WAIT])
        got, expected = ours.step(actions), theirs.step(actions)
        for a, b in zip(got[:3], expected[:3], strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype
            assert np.array_equal(np.asarray(a), np.asarray(b))
        for row in range(3):
            mine, other = got[3][row], expected[3][row]
            if not got[2][row]:
                assert mine == {}
                continue
            ends += 1
            assert mine["TimeLimit.truncated"] == other["TimeLimit.truncated"]
            assert (mine["terminal_observation"] == other["terminal_observation"]).all()
            assert {key: mine["episode"][key] for key in "rl"} == pytest.approx(
                {key: other["episode"][key] for key in "rl"}, abs=1e-4
            )
            assert mine["cause"] == other["cause"]
    assert ends == 3


def test_masks_are_those_of_the_rows() -> None:
    envs = make_vec("Townlet/Town-v0", 16, seed=3)
    envs.reset()
    masks = np.stack(envs.env_method("action_masks"))  # as MaskablePPO does
    assert masks.shape == (16, 6)
    assert masks.dtype == np.bool_
    assert (masks == envs.envs.action_masks()).all()
    assert not masks.all()
    assert envs.has_attr("action_masks")
    assert not envs.has_attr("action_mask_of_nobody")
    assert (envs.env_method("action_masks", indices=[2])[0] == masks[2]).all()


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_algorithms_learn_on_it(algorithm: Any) -> None:
    envs = make_vec("Townlet/Town-v0", 4, overrides=["max_steps=20"])
    settings: dict[str, Any] = {"n_steps": 16, "batch_size": 32} if algorithm is PPO else {"learning_starts": 20}
    model = algorithm("MlpPolicy", envs, seed=0, **settings).learn(160)
    assert model.ep_info_buffer is not None
    assert {episode["l"] for episode in model.ep_info_buffer} == {20}
    assert np.isfinite(evaluate_policy(model, envs, n_eval_episodes=2)[0])


def test_a_seed_fixes_the_episodes_and_options_their_start() -> None:
    envs = make_vec("Townlet/Town-v0", 4, seed=3)
    first = np.asarray(envs.reset())
    assert (np.asarray(envs.reset()) != first).any()
    envs.seed(3)
    assert (np.asarray(envs.reset()) == first).all()
    envs.set_options({"meters": {"energy": 0.25}})
    layout = envs.envs.world.layout
    energy = envs.envs.world.meters.index("energy")
    assert layout.view(np.asarray(envs.reset()), "meters")[:, energy] == pytest.approx([0.25] * 4)
    assert (layout.view(np.asarray(envs.reset()), "meters")[:, energy] == 1).all()


def test_wrappers_of_stable_baselines_work() -> None:
    envs = VecNormalize(VecFrameStack(make_vec("Townlet/Town-v0", 2), 2))
    envs.reset()
    assert np.asarray(envs.step(np.array([WAIT, WAIT]))[0]).shape == (2, 176)
    assert make_vec("Townlet/Town-v0", 2).env_is_wrapped(Monitor) == [True, True]
    images = make_vec("Townlet/Town-L0-v0", 2, render_mode="rgb_array")
    images.reset()
    assert [np.asarray(image).shape for image in images.get_images()] == [(640, 960, 3)] * 2


def test_misuse_is_explained() -> None:
    with pytest.raises(TownletError, match="not a town"):
        make_vec("CartPole-v1", 2)
    with pytest.raises(TownletError, match="make_vec"):
        make_vec("Townlet/Town-v0", 2).set_attr("render_mode", "ansi")


def test_without_stable_baselines_the_message_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['stable_baselines3'] = None\n"
        "from townlet.errors import TownletError\n"
        "try: import townlet.sb3\n"
        "except TownletError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install stable-baselines3" in done.stdout
