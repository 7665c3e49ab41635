"""`townlet export` of Gymnasium runs: exported files act like the run, on raw observations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from pydantic import TypeAdapter
from safetensors import safe_open

from narrow import instance
from townlet.agents.networks import POLICY_GAIN, Branch
from townlet.gym.settings import GymSettings
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Binary, Continuous
from townlet.nets.spec import NetworkSpec
from townlet.rng import Streams
from townlet.runs.folder import Run
from townlet.sharing.export import export
from townlet.tasks.gym import GymTask
from townlet.tasks.gym_playback import Rollout
from townlet.train.policies import TrainedPolicy, load_policy


def episode(trained: TrainedPolicy) -> tuple[list[Any], int]:
    """Actions of the run in one episode, and the seed of the environment."""
    task = trained.loaded.task
    assert isinstance(task, GymTask)
    task.settings = task.settings.model_copy(update={"vectorization": "sync"})  # seeded like `gymnasium.make` below
    env = task.make_eval_env()
    played = Rollout(env, 3, trained.policy()).play()
    env.close()
    seed = int(Streams(Streams(3).key("env")).numpy("environments").integers(2**31, size=1)[0])
    acted = [moment.transition.action for moment in played if moment.transition]
    bounds = trained.actions
    return [np.clip(a, bounds.low, bounds.high) for a in acted] if isinstance(bounds, Continuous) else acted, seed


# Between them, these three have every kind of output and of observation scaling.
@pytest.mark.parametrize(
    "kind", ["qlearning", "numbers", "scaled", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("ppo", "dqn"))]
)
def test_onnx_reproduces_an_episode(gym_runs: dict[str, Run], exported: Callable[[Run], Path], kind: str) -> None:
    """With Gymnasium and ONNX Runtime only, and raw observations."""
    trained = load_policy(gym_runs[kind])
    wanted, seed = episode(trained)
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(exported(gym_runs[kind]))
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["actions"]) == list(trained.actions.names)
    assert about["env"] == trained.loaded.recipe.env
    spec = instance(trained.loaded.recipe.gym, GymSettings)
    env = gymnasium.make(trained.loaded.recipe.env, max_episode_steps=spec.max_episode_steps)
    obs, _ = env.reset(seed=seed)
    mask = {"mask": np.ones((1, choices), bool)} if (choices := trained.actions.choices) else {}
    acted, over = [], False
    while not over:
        inputs = {"obs": np.atleast_1d(np.asarray(obs, np.float32))[None], **mask}
        action = session.run(["action"], inputs)[0][0]
        acted.append(action)
        obs, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    env.close()
    assert len(acted) == len(wanted)
    np.testing.assert_allclose(np.asarray(acted), np.asarray(wanted), atol=1e-4 if kind == "numbers" else 0)


def test_continuous_actions_stay_within_exported_bounds(
    gym_runs: dict[str, Run], exported: Callable[[Run], Path]
) -> None:
    model = onnx.load(exported(gym_runs["numbers"]))
    (bias,) = (weights for weights in model.graph.initializer if weights.name.endswith("head.means.bias"))
    bias.CopyFrom(onnx.numpy_helper.from_array(np.full(1, 50, np.float32), bias.name))  # far beyond the bounds
    session = onnxruntime.InferenceSession(model.SerializeToString())
    bounds = json.loads(session.get_modelmeta().custom_metadata_map["bounds"])
    assert bounds == {"low": [-2.0], "high": [2.0]}
    action, means, deviations = session.run(None, {"obs": np.zeros((3, 3), np.float32)})
    assert action.tolist() == [[2.0]] * 3
    assert means.min() > 2
    assert deviations.shape == (3, 1)


def test_safetensors_metadata_describes_observation_scaling(gym_runs: dict[str, Run], tmp_path: Path) -> None:
    trained = load_policy(gym_runs["scaled"])
    path = export(trained, "safetensors", tmp_path / "policy.safetensors")
    with safe_open(path, "pt") as file:
        about, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    blocks = json.loads(about["observation"])
    layout = ObservationLayout.of(*((b["name"], tuple(b["shape"]), b["low"], b["high"], b["kind"]) for b in blocks))
    network = Branch(TypeAdapter(NetworkSpec).validate_json(about["network"]), layout, 3, POLICY_GAIN)
    network.load_state_dict(tensors)
    center, scale, limit = (np.array(json.loads(about[name]), np.float32) for name in ("center", "scale", "limit"))
    env = gymnasium.make("Acrobot-v1", max_episode_steps=40)
    wanted, seed = episode(trained)
    obs, _ = env.reset(seed=seed)
    for action in wanted:
        seen = np.clip((obs.astype(np.float32) - center) / scale, -limit, limit)
        outputs, _ = network(torch.from_numpy(seen)[None], network.initial_hidden(1))
        assert int(outputs.argmax()) == action
        obs, *_ = env.step(action)
    env.close()
    assert np.abs(center).max() > 0.01
    assert "subtract `center`" in about["readme"]


def test_binary_actions_are_1_where_their_logits_are_positive(gym_runs: dict[str, Run], tmp_path: Path) -> None:
    trained = load_policy(gym_runs["ppo"])
    trained.kind, trained.actions = "binary", Binary(("left", "right"))
    session = onnxruntime.InferenceSession(export(trained, "onnx", tmp_path / "x.onnx"))
    obs = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    action, logits = session.run(None, {"obs": obs})
    assert [entry.name for entry in session.get_inputs()] == ["obs"]
    assert (action == (logits > 0)).all()
    assert action.any()
    assert not action.all()
