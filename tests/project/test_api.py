"""The Python API: train, load, make."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import townlet
from small import SMALL, ctrl_c_once_training
from townlet.errors import TownletError
from townlet.interfaces.vec_env import MaskedObs
from townlet.runs.folder import Run
from townlet.train.api import TrainedRun

WORDS = [*SMALL["town:ppo"], "budget.env_steps=256"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    return townlet.train("town:ppo", seed=3, overrides=WORDS, root=tmp_path_factory.mktemp("runs"))


def test_every_public_name_exists() -> None:
    assert all(hasattr(townlet, name) for name in townlet.__all__)


def test_train_returns_the_run(trained: TrainedRun) -> None:
    assert isinstance(trained, Run)
    assert trained.meta()["seed"] == 3
    assert trained.score is not None
    assert trained.score > 0
    assert any("This agent survives" in sentence for sentence in trained.summary)
    assert len(repr(trained)) < 300


def test_train_is_callable_after_its_submodules_were_imported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`townlet.train` is a package that can be called, whatever was imported before."""
    import townlet.recipes.load as recipes

    assert recipes.load_recipe("town:ppo").recipe.env == "town"
    changes = {"rows": np.int64(4), "network.hidden": (8,), "evaluation.episodes": 2, "metrics.tensorboard": False}
    changes |= {"budget.env_steps": 64, "agent.n_steps": 8, "agent.batch_size": 1.0, "threads": 1}
    again = townlet.train("town:ppo", overrides=changes, root=tmp_path)
    resolved = again.resolved_file.read_text(encoding="utf-8")
    assert "rows: 4 " in resolved
    assert "hidden: [8]" in resolved
    assert again.report_html.is_file()  # by default
    assert capfd.readouterr() == ("", "")  # quiet by default


def test_progress_is_shown_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    townlet.train("town:ppo", overrides=WORDS, root=tmp_path, progress=True)
    assert "evaluation: " in capsys.readouterr().err


def test_run_is_loaded_by_object_path_name_or_latest(trained: TrainedRun) -> None:
    root = trained.path.parent
    obs = np.zeros(88, np.float32)
    policies = [townlet.load(trained), townlet.load(trained.path), townlet.load(str(trained.path))]
    policies += [townlet.load(trained.name, root=root), townlet.load("latest", root=root), trained.load()]
    assert len({policy.act(obs) for policy in policies}) == 1
    with pytest.raises(TownletError, match="there is no run 'missing'"):
        townlet.load("missing", root=root)


def test_loaded_policy_acts_in_a_gymnasium_town(trained: Run) -> None:
    policy, env = townlet.load(trained), gym.make("Townlet/Town-v0")
    obs, info = env.reset(seed=0)
    policy.reset()
    for _ in range(20):
        action = policy.act(obs, info["action_mask"])
        assert info["action_mask"][action]
        obs, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    env.close()


def test_loaded_policy_acts_in_a_vector_environment(trained: Run) -> None:
    policy, env = townlet.load(trained), townlet.make("town", rows=16)
    seen = env.reset(0)
    policy.reset(16)
    for _ in range(5):
        step = env.step(policy.act(seen.obs, seen.mask))
        seen = MaskedObs(step.obs, step.mask)
    assert seen.obs.shape == (16, 88)
    env.close()


def test_unknown_override_is_named_and_creates_no_run(tmp_path: Path) -> None:
    with pytest.raises(TownletError, match=r"agent\.lrr"):
        townlet.train("town:ppo", overrides={"agent.lrr": 1}, root=tmp_path)
    assert Run.list(tmp_path) == []


def test_ctrl_c_saves_the_run_and_interrupts_the_program(tmp_path: Path) -> None:
    changes = [*SMALL["town:ppo"], "budget.env_steps=100000000"]
    with ctrl_c_once_training(tmp_path), pytest.raises(KeyboardInterrupt):
        townlet.train("town:ppo", overrides=changes, root=tmp_path)
    assert townlet.load("latest", "last", root=tmp_path).env_steps > 0
