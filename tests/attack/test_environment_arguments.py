"""Attacks by the arguments of environments in recipes and runs from elsewhere: paths of files and programs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import townlet
from cli.program import Program, program
from shared_runs import train_once
from small import train_gym
from townlet.config import user_code
from townlet.errors import TownletError
from townlet.gym import arguments
from townlet.gym.make import make_vec
from townlet.gym.settings import GymSettings
from townlet.runs.folder import Run
from townlet.runs.verify import reseal
from townlet.tasks.experiment import load_experiment

PROGRAM = "#!/bin/sh\ntouch {mark}\n"
DOOM = "vizdoom_path = doom.sh\navailable_buttons = { ATTACK }\n"
RECIPE = """
extends: gym
env: VizdoomBasic-v1
gym: {{kwargs: {kwargs}}}
variants:
  a: {{extends: "gym:ppo"}}
"""


@pytest.fixture(autouse=True)
def _code_is_not_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "_permitted", False)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    monkeypatch.chdir(tmp_path)
    return program(capsys, monkeypatch)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that the program of evil.cfg, which is also called 5, creates."""
    mark = tmp_path / "program-ran"
    for name in ("doom.sh", "5"):
        (tmp_path / name).write_text(PROGRAM.format(mark=mark))
        (tmp_path / name).chmod(0o755)
    (tmp_path / "evil.cfg").write_text(DOOM)
    return mark


@pytest.mark.parametrize(
    "kwargs",
    ["{scenario_config_file: CONFIG}", "{vizdoom_path: 5}", '{"mode = PLAYER\\nvizdoom_path": 5}'],
    ids=["scenario", "number", "line"],
)
def test_a_recipe_starts_no_program(command: Program, tmp_path: Path, mark: Path, kwargs: str) -> None:
    pytest.importorskip("vizdoom")
    given = kwargs.replace("CONFIG", str(tmp_path / "evil.cfg"))
    (tmp_path / "r.yaml").write_text(RECIPE.format(kwargs=given))
    done = command("train", "r.yaml:a", "--steps", "64")
    assert (done.code, mark.exists()) == (2, False)
    assert "r.yaml:4:" in done.err
    assert "add --allow-code if you trust it" in done.err


@pytest.fixture
def forged(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose settings name a configuration of VizDoom, sealed again."""
    trained = train_once(tmp_path_factory, "arguments", lambda root: {"ppo": train_gym("ppo", root)})["ppo"]
    run = Run(shutil.copytree(trained.path, tmp_path / "runs" / "forged"))
    text = run.resolved_file.read_text().replace("env: CartPole-v1", "env: VizdoomBasic-v1")
    config = f"  kwargs: {{scenario_config_file: {tmp_path / 'evil.cfg'}}}"
    run.resolved_file.write_text(re.sub(r"(?m)^  kwargs: .*", config, text))
    run.update_meta(recipe_hash=None)  # as in runs of earlier versions
    reseal(run)
    return run


@pytest.mark.parametrize("words", [("eval",), ("play",), ("export",), ("train", "--resume")], ids=" ".join)
def test_a_run_starts_no_program(command: Program, mark: Path, forged: Run, words: tuple[str, ...]) -> None:
    pytest.importorskip("vizdoom")
    done = command(*words, str(forged.path))
    assert (done.code, mark.exists()) == (2, False)
    assert "gym.kwargs.scenario_config_file" in done.err


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("Ant-v5", {"xml_file": "/etc/passwd"}),
    ("Ant-v5", {"xml_file": "distance"}),
    ("Ant-v5", {"default_camera_config": {"/etc/passwd": 1}}),
    ("ALE/Pong-v5", {"game": "/etc/passwd"}),
    ("VizdoomBasic-v1", {"doom_config_path": True}),
    ("VizdoomBasic-v1", {"render_hud": "yes"}),
    ("retro/Airstriker-Genesis-v0", {"scenario": "evil.json"}),
    ("retro/Airstriker-Genesis-v0", {"info": "evil.json"}),
    ("retro/Airstriker-Genesis-v0", {"record": True}),
    ("FrozenLake-v1", {"desc": ["SFFG", "../x"]}),
    ("FrozenLake-v1", {"map_name": "4x4\n"}),
    ("CartPole-v1", {"a\nb": 1}),
    ("Other-v0", {"parts": [1, {"deep": [2.0, "a.bin"]}]}),
]


@pytest.mark.parametrize(("id", "kwargs"), REFUSED)
def test_a_text_that_may_be_a_path_is_refused(id: str, kwargs: dict[str, Any]) -> None:
    with pytest.raises(
        TownletError, match=r"gym\.kwargs\.[^:]*: .* may read this as .*; leave it out; or .*--allow-code"
    ):
        arguments.require_harmless(id, kwargs)
    user_code.permit()
    arguments.require_harmless(id, kwargs)


HARMLESS: list[tuple[str, dict[str, Any]]] = [
    ("ALE/Pong-v5", {"difficulty": 1, "mode": 0, "obs_type": "ram", "sound_obs": False}),
    ("Ant-v5", {"frame_skip": 2, "healthy_z_range": [0.2, 1.0], "default_camera_config": {"distance": 4.0}}),
    ("VizdoomBasic-v1", {"frame_skip": 4, "screen_resolution": "RES_160X120", "living_reward": -1}),
    ("MiniGrid-KeyCorridorS3R1-v0", {"obj_type": "key", "agent_view_size": 5, "max_steps": None}),
    ("retro/Airstriker-Genesis-v0", {"actions": "discrete", "obs_type": "image", "players": 1}),
    ("FrozenLake-v1", {"map_name": "8x8", "is_slippery": False}),
    ("FrozenLake8x8-v1", {"desc": ["SFFG", "HHHH"]}),
    ("Bandit-v0", {"means": [0.0, 1.0]}),
    ("Other-v0", {"parts": [1, [True, None]]}),
]


@pytest.mark.parametrize(("id", "kwargs"), HARMLESS)
def test_numbers_and_known_texts_need_no_permission(id: str, kwargs: dict[str, Any]) -> None:
    arguments.require_harmless(id, kwargs)


def test_naming_an_imported_module_as_the_source_permits_no_path() -> None:
    path = "/etc/hostname"
    settings = GymSettings(source="gymnasium", kwargs={"map_name": path})
    with pytest.raises(TownletError, match="--allow-code"):
        make_vec("FrozenLake-v1", settings)
    with pytest.raises(TownletError, match="--allow-code"):
        load_experiment("FrozenLake-v1:qlearning", ["gym.source=gymnasium", f"gym.kwargs.map_name={path}"])


class Stored(gymnasium.Env[Any, Any]):
    """An environment that takes the path of a file."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, path: str) -> None:
        self.path = path

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 0.0, False, True, {}


def test_arguments_of_a_class_of_the_program_need_no_permission() -> None:
    townlet.make(Stored, kwargs={"path": "data.bin"})
