"""Training several seeds in parallel processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import warm
from small import SMALL_GYM
from townlet.errors import EXIT_INTERRUPTED
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.overview import make_overview
from townlet.train.multi_seed import train_seeds
from townlet.train.seed_processes import train_seeds_in_parallel

RECIPE, SMALL = SMALL_GYM["ppo"]
ENDLESS = "budget.env_steps=1e8"


def test_parallel_seeds_give_the_results_of_serial_ones(tmp_path: Path) -> None:
    lines: list[str] = []
    parallel = train_seeds_in_parallel(RECIPE, SMALL, tmp_path / "parallel", 2, 2, lines.append)
    serial = train_seeds(RECIPE, SMALL, tmp_path / "serial", 2)
    assert parallel.scores == serial.scores
    assert [result.seed for result in parallel.results] == [0, 1]
    assert parallel.exit_code == 0
    for seed in (0, 1):
        assert sum(line.startswith(f"seed {seed}: ") and "evaluation: " in line for line in lines) >= 2


def test_dead_process_is_reported_with_its_seed_and_the_others_finish(tmp_path: Path) -> None:
    killed: list[int | None] = []

    def kill_second(line: str) -> None:
        if line.startswith("seed 1: ") and not killed:
            process = max(multiprocessing.active_children(), key=lambda child: child.pid or 0)
            killed.append(process.pid)
            process.kill()

    found = train_seeds_in_parallel(RECIPE, SMALL, tmp_path, 2, 2, kill_second)
    first, second = found.results
    assert first.ended_normally
    assert (second.failure, second.exit_code) == ("its process ended with code -9", 1)
    assert second.run is not None
    assert second.run.meta()["seed"] == 1
    assert found.summary().endswith("failed: seed 1")
    assert found.exit_code == 1


def test_process_stopped_alone_counts_as_failed_and_the_others_finish(tmp_path: Path) -> None:
    stopped: list[int] = []

    def stop_second(line: str) -> None:
        if line.startswith("seed 1: ") and not stopped:
            process = max(multiprocessing.active_children(), key=lambda child: child.pid or 0)
            assert process.pid is not None
            stopped.append(process.pid)
            os.kill(process.pid, signal.SIGTERM)

    found = train_seeds_in_parallel(RECIPE, SMALL, tmp_path, 2, 2, stop_second)
    first, second = found.results
    assert first.ended_normally
    assert (second.failure, second.exit_code) == ("its process was stopped by a signal; its run is saved", 1)
    assert (found.interrupted, found.failed) == ([], [second])


def test_ctrl_c_saves_all_runs_and_starts_no_more(tmp_path: Path) -> None:
    words = [
        "train",
        RECIPE,
        *SMALL,
        ENDLESS,
        "evaluation.every=1e7",
        "metrics.every=64",
        "--seeds",
        "3",
        "--jobs",
        "2",
    ]
    command = [sys.executable, "-m", "townlet", *words]
    with warm.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 120
        while sum(make_overview(run).env_steps > 0 for run in Run.list(tmp_path / "runs")) < 2:  # beyond the checkpoint
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED
    assert "Traceback" not in err
    runs = Run.list(tmp_path / "runs")
    assert [make_overview(run).state for run in runs] == ["interrupted"] * 2
    for run in runs:
        last = checkpoint.latest(run.checkpoints)
        assert last is not None
        assert last.env_steps > 0
        assert f"townlet train --resume {run.name}" in out
    assert "seed 2: not started" in out
