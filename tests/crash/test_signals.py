"""Ctrl-C, SIGTERM and a second writer."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from crash.smith import DQN, Child, Forge, differences, only_run
from townlet.runs.folder import Run

LONG = (*DQN, "budget={env_steps: 1e7}")


def wait_for_run(root: Path, child: Child) -> Path:
    """The folder of the run that the child has begun, once it trains."""
    deadline = time.monotonic() + 30
    while not (runs := Run.list(root)) or "steps" not in (
        runs[0].log_file.read_text() if runs[0].log_file.exists() else ""
    ):
        assert time.monotonic() < deadline, child.words()
        time.sleep(0.01)
    return runs[0].path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_it_saves_leaves_and_can_go_on(number: int, forge: Forge, tmp_path: Path) -> None:
    child = forge.begin("town:dqn", LONG, tmp_path / "stopped")
    run = wait_for_run(tmp_path / "stopped", child)
    time.sleep(0.2)
    began = time.monotonic()
    child.signal(number)
    assert child.wait() == 130
    assert time.monotonic() - began < 5
    meta = Run(run).meta()
    assert (meta["ended"], meta["finished"]) == ("interrupted", False)
    moment = int(sorted((run / "checkpoints").iterdir())[-1].name.removeprefix("step-"))
    assert moment > 0
    forge.go_on(run, pause_at=moment + 400)
    whole = forge.train("town:dqn", LONG, tmp_path / "whole", pause_at=moment + 400)
    assert differences(whole, run) == []


def test_a_second_signal_leaves_at_once(forge: Forge, tmp_path: Path) -> None:
    child = forge.begin("town:dqn", LONG, tmp_path, stall=["begun", 2])
    child.wait_for("stalled")  # a disk that takes two minutes to write the checkpoint
    child.signal(signal.SIGTERM)
    time.sleep(0.1)
    began = time.monotonic()
    child.signal(signal.SIGTERM)
    assert child.wait() == 130
    assert time.monotonic() - began < 1
    forge.go_on(only_run(tmp_path), pause_at=200)


def test_a_run_that_is_written_refuses_a_second_writer(forge: Forge, tmp_path: Path) -> None:
    writer = forge.begin("town:dqn", LONG, tmp_path, stall=["begun", 2])
    writer.wait_for("stalled")
    run = only_run(tmp_path)
    before = sorted(path.name for path in (run / "checkpoints").iterdir())
    second = forge.resume(run)
    assert second.wait() == 2
    assert f"another process writes this run: process {writer.pid}" in second.words()
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == before
    assert writer.kill() == -9
    forge.go_on(run, pause_at=200)  # the dead hold nothing
