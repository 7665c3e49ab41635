"""Runs and exported policies shared by tests: the first worker that needs them makes them, and the others wait."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from small import REPORT, SMALL
from townlet.runs.folder import Run

Runs = dict[str, Run]  # by the names that tests use


def shared_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder that all workers of this session share."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"shared-{name}"
    folder.mkdir(exist_ok=True)
    return folder


def train_once(factory: pytest.TempPathFactory, name: str, train: Callable[[Path], Runs]) -> Runs:
    """The runs that `train` creates in a folder, trained once for all workers of this session; read-only."""
    folder = shared_folder(factory, name)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        names = folder / "runs.json"
        if not names.exists():
            trained = train(folder / "runs")
            names.write_text(json.dumps({key: run.name for key, run in trained.items()}))
    return {key: Run(folder / "runs" / name) for key, name in json.loads(names.read_text()).items()}


def train_towns(factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of each kind of agent, the recurrent one last; read-only."""
    from townlet.tasks.experiment import load_experiment
    from townlet.train.session import start

    kinds = ("town-l0:dqn", "town:ppo", "town-l2:drqn")
    found = train_once(
        factory,
        "towns",
        lambda root: {
            kind: start(load_experiment(kind, [*SMALL[kind], *([REPORT] if kind == "town:ppo" else [])]), root).run
            for kind in kinds
        },
    )
    return found[kinds[0]].path.parent


def export_once(factory: pytest.TempPathFactory, run: Run) -> Path:
    """The ONNX file that `townlet export` writes, silently, for a shared run; read-only."""
    from townlet.cli.app import main

    folder = shared_folder(factory, "exports")
    path = folder / f"{run.path.parent.parent.name}-{run.name}.onnx"
    with (folder / f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            words = ["export", run.name, "--format", "onnx", "--to", str(path), "--root", str(run.path.parent)]
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as errors, pytest.raises(SystemExit) as end:
                main(words)
            assert (end.value.code or 0, errors.getvalue()) == (0, "")
    return path
