"""Ctrl-C, SIGTERM and a second writer."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from crash.training_process import DQN, TINY, ForkServer, TrainingProcess, differences, only_run
from time_limit import within
from townlet.runs.checkpoint import paths, step_and_serial
from townlet.runs.folder import Run

LONG = (*DQN, "budget={env_steps: 1e7}")
# Rollouts of about half a second, most of it learning, and an evaluation after each.
PPO = (
    *TINY, "rows=16", "agent.n_steps=128", "agent.batch_size=64", "evaluation.every=2048", "evaluation.episodes=40",
    "curriculum={name: adaptive, episodes: 2, steps: 20, entropy: 1.0}", "change.rewards=[milestone, potential]",
    "budget={env_steps: 1e6}",
)  # fmt: skip
# The collection of one rollout takes seconds, and the update of the other takes minutes.
LONG_COLLECTION = (*TINY, "rows=16", "agent.n_steps=2048", "agent.batch_size=32", "agent.epochs=100")
LONG_UPDATE = (*TINY, "rows=16", "agent.n_steps=64", "agent.batch_size=8", "agent.epochs=10000")


def wait_for_run(root: Path, process: TrainingProcess) -> Path:
    """The folder of the run of this process, once it trains."""
    deadline = time.monotonic() + 120
    while not (runs := Run.list(root)) or "steps" not in (
        runs[0].log_file.read_text() if runs[0].log_file.exists() else ""
    ):
        assert time.monotonic() < deadline, process.output()
        time.sleep(0.01)
    return runs[0].path


def test_signal_saves_stops_and_allows_resuming(server: ForkServer, tmp_path: Path) -> None:
    process = server.start("town:dqn", LONG, tmp_path / "stopped")
    run = wait_for_run(tmp_path / "stopped", process)
    stopped_at = 0
    for number in (signal.SIGTERM, signal.SIGINT):
        wait_for_checkpoint_after(stopped_at, run, process)
        with within(5, time.monotonic):
            process.signal(number)
            assert process.wait() == 130
        meta = Run(run).meta()
        assert (meta["ended"], meta["finished"]) == ("interrupted", False)
        before, stopped_at = stopped_at, step_and_serial(paths(run / "checkpoints")[-1])[0]
        assert stopped_at > before
        process = server.resume(run, pause_at=stopped_at + 200 if number == signal.SIGINT else None)
    assert process.wait() == 0, process.output()
    whole = server.train("town:dqn", LONG, tmp_path / "whole", pause_at=stopped_at + 200)
    assert differences(whole, run) == []


def wait_for_checkpoint_after(env_steps: int, run: Path, process: TrainingProcess) -> None:
    """Wait until the run has a checkpoint of a later step."""
    deadline = time.monotonic() + 120
    while not any(step_and_serial(path)[0] > env_steps for path in paths(run / "checkpoints")):
        assert time.monotonic() < deadline, process.output()
        time.sleep(0.005)


@pytest.mark.parametrize("phase", ["collecting", "learning"])
def test_long_update_is_abandoned_on_signal(phase: str, server: ForkServer, tmp_path: Path) -> None:
    process = server.start("town:ppo", LONG_COLLECTION if phase == "collecting" else LONG_UPDATE, tmp_path)
    wait_for_checkpoint(tmp_path, process)
    process.wait_for_cpu(0.05 if phase == "collecting" else 1.0)
    with within(5, time.monotonic):
        process.signal(signal.SIGTERM)
        assert process.wait() == 130, process.output()
    run = only_run(tmp_path)
    assert Run(run).meta()["ended"] == "interrupted"
    assert [path.name for path in paths(run / "checkpoints")] == ["step-000000000000"]


def wait_for_checkpoint(root: Path, process: TrainingProcess) -> None:
    deadline = time.monotonic() + 120
    while not (runs := Run.list(root)) or not paths(runs[0].path / "checkpoints"):
        assert time.monotonic() < deadline, process.output()
        time.sleep(0.01)


def test_repeatedly_interrupted_run_is_bit_identical(server: ForkServer, tmp_path: Path) -> None:
    """Interrupted while it collects, learns or evaluates."""
    began = time.monotonic()
    whole = server.train("town:ppo", PPO, tmp_path / "whole", pause_at=2 * 2048)
    took = time.monotonic() - began  # on this machine, under its current load
    root, chance, stopped = tmp_path / "stopped", random.Random(5), 0
    process = server.start("town:ppo", PPO, root, pause_at=2 * 2048)
    wait_for_checkpoint(root, process)
    for _ in range(4):
        time.sleep(chance.uniform(0.0, 0.3 * took))
        process.signal(signal.SIGTERM)
        if (code := process.wait()) == 0:
            break
        assert code in (130, -signal.SIGTERM), process.output()  # before its handler is installed, the signal ends it
        stopped += code == 130
        process = server.resume(only_run(root), pause_at=2 * 2048)
    else:
        assert process.wait() == 0, process.output()
    assert stopped
    assert differences(whole, only_run(root)) == []


def test_long_evaluation_is_abandoned_and_repeated_after_resuming(server: ForkServer, tmp_path: Path) -> None:
    whole = server.train("town:dqn", DQN, tmp_path / "whole", pause_at=440)
    run = server.train("town:dqn", DQN, tmp_path / "stopped", pause_at=300)
    process = server.resume(run, ("evaluation.episodes=100000",))
    process.wait_for_cpu(1)  # the next evaluation is due after another 100 steps, and takes minutes
    with within(5, time.monotonic):
        process.signal(signal.SIGTERM)
        assert process.wait() == 130, process.output()
    assert paths(run / "checkpoints")[-1].name == "step-000000000400"
    server.resume_to_end(run, ("evaluation.episodes=2",), pause_at=440)
    assert differences(whole, run) == []


def test_second_signal_exits_immediately(server: ForkServer, tmp_path: Path) -> None:
    process = server.start("town:dqn", LONG, tmp_path, stall=["begun", 2])
    process.wait_for("stalled")  # as on a disk that takes two minutes to write the checkpoint
    process.signal(signal.SIGTERM)
    time.sleep(0.1)
    with within(5, time.monotonic):  # not 120
        process.signal(signal.SIGTERM)
        assert process.wait() == 130
    server.resume_to_end(only_run(tmp_path), pause_at=200)


def test_second_writer_is_rejected(server: ForkServer, tmp_path: Path) -> None:
    writer = server.start("town:dqn", LONG, tmp_path, stall=["begun", 2])
    writer.wait_for("stalled")
    run = only_run(tmp_path)
    before = sorted(path.name for path in (run / "checkpoints").iterdir())
    second = server.resume(run)
    assert second.wait() == 2
    assert f"another process is writing to this folder: process {writer.pid}" in second.output()
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == before
    assert writer.kill() == -9
    server.resume_to_end(run, pause_at=200)  # the lock of a dead process is free
