"""`townlet export`: exported files act like the run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from pydantic import TypeAdapter
from safetensors import safe_open

import townlet as package
from cli.program import Program
from small import SMALL
from townlet.agents.networks import POLICY_GAIN, Branch, QNetwork
from townlet.interfaces.layout import ObservationLayout
from townlet.nets.spec import NetworkSpec
from townlet.runs.folder import Run
from townlet.tasks.experiment import load_experiment
from townlet.train.session import start


def rows_of(trained: Any, rows: int, seed: int = 0) -> tuple[Any, Any]:
    """Random observations and masks in which at least one action is valid."""
    chance = np.random.default_rng(seed)
    mask = chance.random((rows, trained.actions.n)) < 0.5
    mask[np.arange(rows), chance.integers(0, mask.shape[1], rows)] = True
    return chance.random((rows, trained.layout.size), np.float32), mask


@pytest.mark.parametrize("name", ["town-l0-dqn", "town-ppo", "town-l2-drqn"])
def test_safetensors_metadata_suffices_to_rebuild_the_network(
    townlet: Program, runs: Path, tmp_path: Path, name: str
) -> None:
    to = tmp_path / "policy.safetensors"
    assert townlet("export", name, "--to", str(to), "--root", str(runs)).code == 0
    trained = package.load(name, root=runs)
    with safe_open(to, "pt") as file:
        about, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    blocks = json.loads(about["observation"])
    layout = ObservationLayout.of(*((b["name"], tuple(b["shape"]), b["low"], b["high"], b["kind"]) for b in blocks))
    spec = TypeAdapter(NetworkSpec).validate_json(about["network"])
    actions, agent = json.loads(about["actions"]), json.loads(about["agent"])
    network = (
        Branch(spec, layout, len(actions), POLICY_GAIN)
        if about["outputs"] == "logits"
        else QNetwork(spec, layout, len(actions), agent["dueling"])
    )
    network.load_state_dict(tensors)
    obs, mask = rows_of(trained, 50)
    outputs, _ = network(torch.from_numpy(obs), network.initial_hidden(50))
    best = outputs.masked_fill(~torch.from_numpy(mask), -torch.inf).argmax(1)
    assert best.tolist() == trained.act(obs, mask).tolist()
    assert about["interface"] == trained.world.interface_hash
    assert actions == list(trained.world.actions)
    assert "readme" in about


@pytest.fixture(scope="module")
def map_memory_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run whose network is a `map_memory`."""
    root, notebook = tmp_path_factory.mktemp("map_memory_runs"), "network={name: map_memory, hidden: [8]}"
    return start(
        load_experiment("town-foggy:drqn", [*SMALL["town-l2:drqn"][:-1], notebook]), root, pause_at=1
    ).run.path.parent


@pytest.mark.parametrize("name", ["town-ppo", "town-l2-drqn", pytest.param("town-foggy-drqn", marks=pytest.mark.long)])
def test_onnx_matches_the_policy(
    runs: Path, exported: Callable[[Run], Path], name: str, request: pytest.FixtureRequest
) -> None:
    runs = request.getfixturevalue("map_memory_runs") if name == "town-foggy-drqn" else runs
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(exported(Run.open(name, runs)))
    trained = package.load(name, root=runs)
    for rows in (1, 7):
        trained.reset(rows)
        memory = {"hidden": np.zeros((rows, trained.hidden_size), np.float32)} if trained.hidden_size else {}
        for step in range(5):  # the hidden state is passed on from step to step
            obs, mask = rows_of(trained, rows, seed=step)
            wanted = trained.outputs(obs, mask)["values" if trained.kind == "values" else "logits"]
            allowed = {"mask": mask if step % 2 else np.ones_like(mask)}
            action, outputs, *rest = session.run(None, {"obs": obs, **allowed, **memory})
            np.testing.assert_allclose(outputs, wanted, atol=1e-5)
            assert action.tolist() == trained.act(obs, mask if step % 2 else None).tolist()
            memory = {"hidden": rest[0]} if rest else {}
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["actions"]) == list(trained.world.actions)
    assert about["interface"] == trained.world.interface_hash


def test_default_output_is_in_the_run_folder(townlet: Program, runs: Path, tmp_path: Path) -> None:
    run = Run.open("town-ppo", runs)
    shutil.copytree(run.path, tmp_path / run.name)
    done = townlet("export", "town:ppo", "--which", "last", "--root", str(tmp_path))
    path = tmp_path / run.name / "policy.safetensors"
    assert path.is_file()
    assert str(path) in done.out


def test_missing_exporter_names_the_extra(
    townlet: Program, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("townlet.sharing.export.find_spec", lambda name: None)
    done = townlet("export", "town-ppo", "--format", "onnx", "--to", str(tmp_path / "x.onnx"), "--root", str(runs))
    assert done.code == 2
    assert "pip install 'townlet[onnx]'" in done.err
    assert not (tmp_path / "x.onnx").exists()


def test_missing_folder_is_rejected(townlet: Program, runs: Path, tmp_path: Path) -> None:
    done = townlet("export", "town-ppo", "--to", str(tmp_path / "no" / "x.safetensors"), "--root", str(runs))
    assert done.code == 2
    assert "there is no folder" in done.err
