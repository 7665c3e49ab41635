"""Fixtures: the command line run in this process, and small finished runs."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cli.program import Program, program
from shared_runs import Runs, export_once, train_once, train_towns
from small import REPORT, SMALL_GYM, train_gym
from townlet.runs.folder import Run


@pytest.fixture
def townlet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """`townlet("world", "list")` runs the command and returns its exit code and output."""
    return program(capsys, monkeypatch)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of each kind of agent, the recurrent one last; read-only."""
    return train_towns(tmp_path_factory)


@pytest.fixture(scope="session")
def gym_runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A finished Gymnasium run of each kind in `small.SMALL_GYM`; read-only."""
    torch.set_num_threads(1)
    return train_once(
        tmp_path_factory,
        "gyms",
        lambda root: {kind: train_gym(kind, root, *([REPORT] if kind == "ppo" else [])) for kind in SMALL_GYM},
    )


@pytest.fixture
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Run], Path]:
    """`exported(run)` is the ONNX file of a shared run, written by `townlet export`; read-only."""
    return lambda run: export_once(tmp_path_factory, run)


@pytest.fixture(autouse=True, scope="session")
def handle_sigint() -> None:
    """Undo that a shell makes background processes, and their children, ignore Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
