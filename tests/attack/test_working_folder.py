"""Attacks by Python files in the working folder, such as numpy.py beside runs from elsewhere."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

import warm
from townlet.cli.live import page_server
from townlet.live.training_jobs import TrainingJobs, TrainRequest
from townlet.runs.folder import Run

MODULES = ("encodings", "multiprocessing", "numpy", "selectors", "signal", "socket", "torch", "townlet", "typing")
CODE = "open({mark!r}, 'a').write(__name__ + ' ')\nraise ImportError\n"
TINY = ("threads=1", "rows=2", "evaluation.episodes=1", "metrics.tensorboard=false", "metrics.report=false")
CART_POLE = ("CartPole-v1:ppo", "agent.n_steps=8", "agent.batch_size=8", "network.hidden=[4]", "--steps", "16", *TINY)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with modules that leave a mark."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text(CODE.format(mark=str(tmp_path / "executed")))
    return folder


def executed(folder: Path) -> str:
    mark = folder.parent / "executed"
    return mark.read_text() if mark.exists() else ""


@pytest.mark.parametrize("more", [("gym.vectorization=async",), ("--seeds", "2", "--jobs", "2")], ids=["rows", "jobs"])
def test_processes_of_a_training_import_nothing_from_it(folder: Path, more: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "townlet", "train", *CART_POLE, *more]  # started like the installed program
    done = warm.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert executed(folder) == ""
    assert done.returncode == 0, done.stderr


def test_the_page_of_a_training_imports_nothing_from_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with page_server(Run.open("elder", tmp_path), "127.0.0.1", 0) as (link, server):
        assert link.startswith("http://127.0.0.1:")
        assert server.stdout is not None
        server.stdout.close()
    assert executed(folder) == ""


def test_a_training_started_on_the_page_imports_nothing_from_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    jobs = TrainingJobs(tmp_path / "runs", tmp_path / "worlds")
    try:
        job = jobs.start(TrainRequest(world="town-l0", text=None, variant="dqn", env_steps=1000))
        until = time.monotonic() + 120
        while job.run is None and job.state == "running":
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        jobs.close()
    assert executed(folder) == ""
    assert job.run is not None, job.last_error
