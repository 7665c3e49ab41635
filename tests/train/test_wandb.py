"""Weights & Biases offline: logged data, and overrides from a sweep agent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import warm
from narrow import instance
from townlet.agents.ppo import PpoSettings
from townlet.errors import TownletError
from townlet.nets.spec import MlpSpec
from townlet.runs.folder import Run
from townlet.tasks.experiment import load_experiment
from townlet.train import wandb

KEY = "0123456789abcdef0123456789abcdef01234567"
SWEEP_RUN = """\
wandb_version: 1

agent.lr:
  desc: null
  value: 0.004
rows:
  desc: null
  value: 4
network:
  desc: null
  value: {hidden: [8]}
"""


@pytest.mark.long
def test_sweep_agent_takes_its_settings_from_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "asked.yaml").write_text(SWEEP_RUN)
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    home.mkdir()
    words = ["budget.env_steps=256", "agent.n_steps=16", "evaluation.episodes=2", "threads=1"]
    command = [sys.executable, "-m", "townlet", "train", "Bandit-v0:ppo", *words, "--root", str(tmp_path / "runs")]
    environment = {
        **os.environ, "WANDB_MODE": "offline", "WANDB_API_KEY": KEY, "HOME": str(home), "WANDB_SWEEP_ID": "s1",
        "WANDB_SWEEP_PARAM_PATH": str(tmp_path / "asked.yaml"), "WANDB_RUN_ID": "r1",
    }  # fmt: skip
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (run,) = Run.list(tmp_path / "runs")
    recipe = load_experiment(str(run.resolved_file)).recipe
    agent, network = instance(recipe.agent, PpoSettings), instance(recipe.network, MlpSpec)
    assert (agent.lr, recipe.rows, network.hidden) == (0.004, 4, (8,))
    logs = list(run.path.glob("wandb/offline-run-*/*.wandb"))
    assert len(logs) == 1
    assert b"evaluation/score" in logs[0].read_bytes()
    assert list(here.iterdir()) == []
    written = [path for path in run.path.rglob("*") if path.is_file()]
    assert [path for path in written if KEY.encode() in path.read_bytes()] == []


def test_missing_login_is_reported_before_writing(tmp_path: Path) -> None:
    words = ["metrics.wandb=true", "threads=1", "--root", str(tmp_path / "runs")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environment |= {"HOME": str(tmp_path), "NETRC": str(tmp_path / "netrc")}
    command = [sys.executable, "-m", "townlet", "train", "Bandit-v0:ppo", *words]
    done = warm.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 2, done.stderr
    assert "wandb login" in done.stderr
    assert "Traceback" not in done.stderr
    assert Run.list(tmp_path / "runs") == []


def test_settings_of_a_sweep_are_validated_like_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asked.yaml").write_text("wandb_version: 1\nagent.lrr: {desc: null, value: 0.1}\n")
    monkeypatch.setenv(wandb.SWEEP_FILE, str(tmp_path / "asked.yaml"))
    with pytest.raises(TownletError, match="did you mean 'lr'"):
        load_experiment("Bandit-v0:ppo", wandb.sweep_overrides())


def test_missing_extra_is_a_recipe_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.recipes.validate.find_spec", lambda _: None)  # as if it were not installed
    with pytest.raises(TownletError, match=r"pip install 'townlet\[wandb\]'"):
        load_experiment("Bandit-v0:ppo", ["metrics.wandb=true"])
