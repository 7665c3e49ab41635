"""Weights & Biases offline: logged data, and overrides from a sweep agent."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
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


@dataclass
class Trained:
    """A run that was trained with Weights & Biases in offline mode, by a program of its own."""

    run: Run
    stderr: str
    log: Path
    here: Path  # the working directory


def train_offline(tmp_path: Path, *words: str, **environment: str) -> Trained:
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    home.mkdir()
    small = ["budget.env_steps=256", "agent.n_steps=16", "evaluation.episodes=2", "threads=1", *words]
    command = [sys.executable, "-m", "townlet", "train", "CartPole-v1:ppo", *small, "--root", str(tmp_path / "runs")]
    variables = {**os.environ, "WANDB_MODE": "offline", "WANDB_API_KEY": KEY, "HOME": str(home), **environment}
    done = subprocess.run(command, cwd=here, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (run,) = Run.list(tmp_path / "runs")
    (log,) = run.path.glob("wandb/offline-run-*/*.wandb")
    return Trained(run, done.stderr, log, here)


@pytest.mark.long
def test_sweep_agent_takes_its_settings_from_the_sweep(tmp_path: Path) -> None:
    parameters = tmp_path / "asked.yaml"
    parameters.write_text(SWEEP_RUN)
    trained = train_offline(tmp_path, WANDB_SWEEP_ID="s1", WANDB_SWEEP_PARAM_PATH=str(parameters), WANDB_RUN_ID="r1")
    recipe = load_experiment(str(trained.run.resolved_file)).recipe
    agent, network = instance(recipe.agent, PpoSettings), instance(recipe.network, MlpSpec)
    assert (agent.lr, recipe.rows, network.hidden) == (0.004, 4, (8,))
    assert b"evaluation/score" in trained.log.read_bytes()


@pytest.mark.long
def test_run_is_logged_with_videos_and_histograms_but_without_secrets(tmp_path: Path) -> None:
    trained = train_offline(tmp_path, "metrics.wandb=true", "video.episodes=1", "network.hidden=[8]")
    run, logged = trained.run, trained.log.read_bytes()
    names = (b"evaluation/score", b"gradients/actor.head.weight", b"weights/actor.head.weight", b"videos/")
    assert [name for name in names if name not in logged] == []
    assert wandb.project_name("CartPole-v1").encode() in logged
    assert list(run.path.glob("wandb/offline-run-*/files/media/videos/evaluation/*.mp4"))
    upload = f"wandb sync {trained.log.parent}"
    assert f"Weights & Biases: {upload}" in trained.stderr
    assert run.meta()["wandb"] == upload
    assert list(trained.here.iterdir()) == []
    written = [path for path in run.path.rglob("*") if path.is_file()]
    assert [path for path in written if KEY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("env", "project"), [("ALE/Pong-v5", "townlet-ALE-Pong-v5"), ("worlds/my town.yaml", "townlet-my-town")]
)
def test_every_environment_has_its_own_project(env: str, project: str) -> None:
    assert wandb.project_name(env) == project


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


def test_the_working_folder_does_not_choose_the_server_that_receives_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(wandb.SERVER, raising=False)
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nbase_url = http://127.0.0.1:9\n")
    recipe = load_experiment("Bandit-v0:ppo", ["metrics.wandb=true"]).recipe
    with pytest.raises(TownletError, match="names the server to which your key"):
        wandb.require_login(recipe)


def test_settings_of_a_sweep_are_validated_like_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asked.yaml").write_text("wandb_version: 1\nagent.lrr: {desc: null, value: 0.1}\n")
    monkeypatch.setenv(wandb.SWEEP_FILE, str(tmp_path / "asked.yaml"))
    with pytest.raises(TownletError, match="did you mean 'lr'"):
        load_experiment("Bandit-v0:ppo", wandb.sweep_overrides())


def test_missing_extra_is_a_recipe_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.recipes.validate.find_spec", lambda _: None)  # as if it were not installed
    with pytest.raises(TownletError, match=r"pip install 'townlet\[wandb\]'"):
        load_experiment("Bandit-v0:ppo", ["metrics.wandb=true"])
