"""Training runs shared by tests: the first worker that needs them trains them, and the others wait for it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

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
