"""Ctrl-C, SIGTERM and a second writer."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from crash.smith import DQN, TINY, Child, Forge, differences, only_run
from pace import within
from townlet.runs.checkpoint import paths
from townlet.runs.folder import Run

LONG = (*DQN, "budget={env_steps: 1e7}")
# Rounds of a second or so, of which learning takes the larger part, and an evaluation after each.
PPO = (
    *TINY, "rows=16", "agent.n_steps=256", "agent.batch_size=64", "evaluation.every=4096", "evaluation.episodes=40",
    "curriculum={name: adversarial, episodes: 2, steps: 40, entropy: 1.0}", "change.rewards=[milestone, potential]",
    "budget={env_steps: 1e6}",
)  # fmt: skip
# One update of this takes many minutes.
ENDLESS = (*TINY, "rows=16", "agent.n_steps=2048", "agent.batch_size=32", "agent.epochs=100")


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
    with within(5, time.monotonic):
        child.signal(number)
        assert child.wait() == 130
    meta = Run(run).meta()
    assert (meta["ended"], meta["finished"]) == ("interrupted", False)
    moment = int(sorted((run / "checkpoints").iterdir())[-1].name.removeprefix("step-"))
    assert moment > 0
    forge.go_on(run, pause_at=moment + 400)
    whole = forge.train("town:dqn", LONG, tmp_path / "whole", pause_at=moment + 400)
    assert differences(whole, run) == []


@pytest.mark.parametrize("seconds", [0.2, 4.0], ids=["acting", "learning"])
def test_a_long_round_is_given_up(seconds: float, forge: Forge, tmp_path: Path) -> None:
    child = forge.begin("town:ppo", ENDLESS, tmp_path)
    wait_for_checkpoint(tmp_path, child)
    time.sleep(seconds)
    with within(5, time.monotonic):
        child.signal(signal.SIGTERM)
        assert child.wait() == 130, child.words()
    run = only_run(tmp_path)
    assert Run(run).meta()["ended"] == "interrupted"
    assert [path.name for path in paths(run / "checkpoints")] == ["step-000000000000"]


def wait_for_checkpoint(root: Path, child: Child) -> None:
    deadline = time.monotonic() + 30
    while not (runs := Run.list(root)) or not paths(runs[0].path / "checkpoints"):
        assert time.monotonic() < deadline, child.words()
        time.sleep(0.01)


def test_asked_to_stop_again_and_again_it_ends_with_the_same_bits(forge: Forge, tmp_path: Path) -> None:
    """In the midst of acting, learning and evaluating, wherever it is found."""
    began = time.monotonic()
    whole = forge.train("town:ppo", PPO, tmp_path / "whole", pause_at=2 * 4096)
    took = time.monotonic() - began  # whatever the machine is doing beside us
    root, chance, stopped = tmp_path / "stopped", random.Random(5), 0
    child = forge.begin("town:ppo", PPO, root, pause_at=2 * 4096)
    wait_for_checkpoint(root, child)
    for _ in range(6):
        time.sleep(chance.uniform(0.0, 0.3 * took))
        child.signal(signal.SIGTERM)
        if (code := child.wait()) == 0:
            break
        assert code in (130, -signal.SIGTERM), child.words()  # before it listens, a signal is a signal
        stopped += code == 130
        child = forge.resume(only_run(root), pause_at=2 * 4096)
    else:
        assert child.wait() == 0, child.words()
    assert stopped
    assert differences(whole, only_run(root)) == []


def test_a_long_evaluation_is_given_up_and_made_when_the_run_goes_on(forge: Forge, tmp_path: Path) -> None:
    whole = forge.train("town:dqn", DQN, tmp_path / "whole", pause_at=800)
    run = forge.train("town:dqn", DQN, tmp_path / "stopped", pause_at=200)
    child = forge.resume(run, ("evaluation.episodes=100000",))
    child.works(3)  # the first evaluation is due after another 200 steps, and takes minutes
    with within(5, time.monotonic):
        child.signal(signal.SIGTERM)
        assert child.wait() == 130, child.words()
    assert paths(run / "checkpoints")[-1].name == "step-000000000400"
    forge.go_on(run, ("evaluation.episodes=2",), pause_at=800)
    assert differences(whole, run) == []


def test_a_second_signal_leaves_at_once(forge: Forge, tmp_path: Path) -> None:
    child = forge.begin("town:dqn", LONG, tmp_path, stall=["begun", 2])
    child.wait_for("stalled")  # a disk that takes two minutes to write the checkpoint
    child.signal(signal.SIGTERM)
    time.sleep(0.1)
    with within(5, time.monotonic):  # and not 120
        child.signal(signal.SIGTERM)
        assert child.wait() == 130
    forge.go_on(only_run(tmp_path), pause_at=200)


def test_a_run_that_is_written_refuses_a_second_writer(forge: Forge, tmp_path: Path) -> None:
    writer = forge.begin("town:dqn", LONG, tmp_path, stall=["begun", 2])
    writer.wait_for("stalled")
    run = only_run(tmp_path)
    before = sorted(path.name for path in (run / "checkpoints").iterdir())
    second = forge.resume(run)
    assert second.wait() == 2
    assert f"another process writes in this folder: process {writer.pid}" in second.words()
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == before
    assert writer.kill() == -9
    forge.go_on(run, pause_at=200)  # the dead hold nothing
