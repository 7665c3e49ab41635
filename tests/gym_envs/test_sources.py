"""Environments in Python files and modules, named on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import warm
from townlet.config import user_code
from townlet.errors import TownletError

CODE = """
import gymnasium as gym
import numpy as np


class Corridor(gym.Env):
    observation_space = gym.spaces.Box(0, 1, (5,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = self.steps = 0
        return np.eye(5, dtype=np.float32)[0], {}

    def step(self, action):
        self.cell, self.steps = max(0, self.cell + (1 if action else -1)), self.steps + 1
        done = self.cell == 4
        return np.eye(5, dtype=np.float32)[self.cell], float(done), done, not done and self.steps == 30, {}


def make_corridor():
    return Corridor()


gym.register("Corridor-v3", entry_point=Corridor)
"""
QUICK = ["rows=2", "agent.n_steps=16", "evaluation.episodes=2", "metrics.report=false", "metrics.tensorboard=false"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "corridors.py").write_text(CODE)
    return tmp_path


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "townlet", *words]  # which finds modules in the folder
    done = warm.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_file_may_import_others_beside_it(folder: Path) -> None:
    (folder / "my_walls.py").write_text("LENGTH = 5\n")
    (folder / "corridors.py").write_text("import my_walls\n" + CODE)
    code, _, err = run(
        folder / "..", "train", f"{folder}/corridors.py:Corridor:ppo", "--steps", "64", *QUICK, "--allow-code"
    )
    assert code == 0, err


def test_missing_file_is_reported_before_permission(folder: Path) -> None:
    code, _, err = run(folder, "train", "nofile.py:Corridor:ppo")
    assert code == 2
    assert "there is no Python file" in err


@pytest.mark.parametrize("name", ["Corridor", "make_corridor", "Corridor-v3"])
def test_environment_in_a_file_trains_and_is_evaluated_in_another_process(folder: Path, name: str) -> None:
    code, out, err = run(folder, "train", f"corridors.py:{name}:ppo", "--steps", "200", *QUICK, "--allow-code")
    assert code == 0, err
    refused, _, err = run(folder, "eval", "latest", "--episodes", "2")
    assert refused == 2
    assert "corridors.py, which can do anything" in err
    code, out, err = run(folder, "eval", "latest", "--episodes", "2", "--allow-code")
    assert code == 0, err
    assert f"{name}: 2 episodes each" in out


def test_published_run_contains_the_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert run(folder, "train", "corridors.py:Corridor:ppo", "--steps", "200", *QUICK, "--allow-code")[0] == 0
    given = tmp_path_factory.mktemp("published") / "given"
    code, _, err = run(
        folder, "publish", "corridors.py:Corridor:ppo", "--to", str(given), "--episodes", "2", "--allow-code"
    )
    assert code == 0, err
    (folder / "corridors.py").unlink()
    code, _, err = run(given.parent, "eval", "given", "--episodes", "2", "--allow-code")
    assert code == 0, err
    assert "--allow-code" in (given / "README.md").read_text()


def test_rows_in_separate_processes_find_the_file(folder: Path) -> None:
    words = ["--steps", "200", *QUICK, "gym.vectorization=async", "--allow-code"]
    code, _, err = run(folder, "train", "corridors.py:Corridor:ppo", *words)
    assert code == 0, err


def test_module_is_imported_as_by_gymnasium(folder: Path) -> None:
    code, _, err = run(folder, "train", "corridors:Corridor-v3:ppo", "--steps", "200", *QUICK, "--allow-code")
    assert code == 0, err


def test_file_is_suggested_where_the_module_is_not_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(TownletError, match=r"cannot be imported: .*; name the file instead: corridors\.py"):
        user_code.load_source("corridors")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["corridors.py:Corridor:ppo"], "corridors.py, which can do anything\n    fix: read it, and add --allow-code"),
        (["os:system:ppo"], "the recipe imports the Python module os"),
        (
            ["corridors.py:Coridor:ppo", "--allow-code"],
            "defines no environment 'Coridor'\n    fix: did you mean 'Corridor'?",
        ),
        (["corridors.py:np.eye:ppo", "--allow-code"], "corridors.py defines no environment 'np.eye'"),
        (["corridors.py:Else-v0:ppo", "--allow-code"], "corridors.py registers no environment 'Else-v0'"),
        (["corridors.py:Corridor", "--allow-code"], "corridors.py:Corridor has 2 variants"),
        (["corridors.py"], "name the environment in it: corridors.py:CLASS:ppo"),
        (["missing.py:Corridor:ppo", "--allow-code"], "missing.py'"),
    ],
)
def test_mistakes_say_where_what_and_how_to_fix_it(folder: Path, words: list[str], message: str) -> None:
    code, _, err = run(folder, "train", *words)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert not (folder / "runs").exists()
