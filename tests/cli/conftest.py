"""Fixtures: the command line run in this process, and small finished runs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

from cli.program import Program, program
from shared_runs import Runs, train_once
from small import REPORT, SMALL, SMALL_GYM, train_gym


@pytest.fixture
def townlet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """`townlet("world", "list")` runs the command and returns its exit code and output."""
    return program(capsys, monkeypatch)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of each kind of agent, the recurrent one last; read-only."""
    from townlet.tasks.experiment import load_experiment
    from townlet.train.session import start

    torch.set_num_threads(1)
    kinds = ("town-l0:dqn", "town:ppo", "town-l2:drqn")
    found = train_once(
        tmp_path_factory,
        "towns",
        lambda root: {
            kind: start(load_experiment(kind, [*SMALL[kind], *([REPORT] if kind == "town:ppo" else [])]), root).run
            for kind in kinds
        },
    )
    return found[kinds[0]].path.parent


@pytest.fixture(scope="session")
def gym_runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A finished Gymnasium run of each kind in `small.SMALL_GYM`; read-only."""
    torch.set_num_threads(1)
    return train_once(
        tmp_path_factory,
        "gyms",
        lambda root: {kind: train_gym(kind, root, *([REPORT] if kind == "ppo" else [])) for kind in SMALL_GYM},
    )


@pytest.fixture(autouse=True, scope="session")
def handle_sigint() -> None:
    """Undo that a shell makes background processes, and their children, ignore Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
