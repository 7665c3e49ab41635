"""Townlet in a program of one's own."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

import townlet
from small import REPORT, SMALL, ctrl_c_once_training
from townlet.errors import TownletError
from townlet.runs.folder import Run

WORDS = [*SMALL["town:ppo"], "budget.env_steps=256"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    torch.set_num_threads(1)
    return townlet.train("town:ppo", seed=3, overrides=[*WORDS, REPORT], root=tmp_path_factory.mktemp("runs"))


def test_every_public_name_is_there() -> None:
    assert all(hasattr(townlet, name) for name in townlet.__all__)


def test_training_gives_the_run(trained: Run) -> None:
    assert isinstance(trained, Run)
    assert trained.meta()["seed"] == 3
    assert trained.report_html.is_file()
    assert trained.score > 0  # type: ignore[attr-defined]
    assert any("This agent survives" in sentence for sentence in trained.summary)  # type: ignore[attr-defined]
    assert len(repr(trained)) < 300


def test_it_can_be_called_again_and_the_room_of_that_name_stays(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`townlet.train` is a function and a package: what has been imported must not decide which of them one gets."""
    import townlet.recipes.load as room

    assert room.load_recipe("town:ppo").recipe.env == "town"
    changes = {"rows": np.int64(4), "network.hidden": (8,), "evaluation.episodes": 2, "metrics.tensorboard": False}
    changes |= {"budget.env_steps": 64, "agent.n_steps": 8, "agent.batch_size": 1.0, "threads": 1}
    again = townlet.train("town:ppo", overrides=changes, root=tmp_path)
    resolved = again.resolved_file.read_text(encoding="utf-8")
    assert "rows: 4 " in resolved
    assert "hidden: [8]" in resolved
    assert capfd.readouterr() == ("", "")  # quiet unless asked


def test_progress_is_shown_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    townlet.train("town:ppo", overrides=WORDS, root=tmp_path, progress=True)
    assert "evaluation: " in capsys.readouterr().err


def test_a_run_is_loaded_by_any_of_its_names(trained: Run) -> None:
    root = trained.path.parent
    obs = np.zeros(88, np.float32)
    ways = [townlet.load(trained), townlet.load(trained.path), townlet.load(str(trained.path))]
    ways += [townlet.load(trained.name, root=root), townlet.load("latest", root=root), trained.load()]  # type: ignore[attr-defined]
    assert len({policy.act(obs) for policy in ways}) == 1
    with pytest.raises(TownletError, match="there is no run 'missing'"):
        townlet.load("missing", root=root)


def test_a_loaded_policy_lives_in_a_gymnasium_town(trained: Run) -> None:
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


def test_a_loaded_policy_lives_in_a_batch(trained: Run) -> None:
    policy, env = townlet.load(trained), townlet.make("town", rows=16)
    seen = env.reset(0)
    policy.reset(16)
    for _ in range(5):
        step = env.step(policy.act(seen.obs, seen.mask))
        seen = step
    assert step.obs.shape == (16, 88)
    env.close()


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(TownletError, match=r"agent\.lrr"):
        townlet.train("town:ppo", overrides={"agent.lrr": 1}, root=tmp_path)
    assert Run.list(tmp_path) == []


def test_ctrl_c_saves_the_run_and_interrupts_the_program(tmp_path: Path) -> None:
    changes = [*SMALL["town:ppo"], "budget.env_steps=100000000"]
    with ctrl_c_once_training(tmp_path), pytest.raises(KeyboardInterrupt):
        townlet.train("town:ppo", overrides=changes, root=tmp_path)
    assert townlet.load("latest", "last", root=tmp_path).env_steps > 0
