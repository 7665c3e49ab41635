"""SIGKILL at any time: the resumed run is bit-identical, and its metrics have no gap and no duplicate."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from pathlib import Path

import pytest

from crash.training_process import DQN, ForkServer, differences, only_run
from townlet.runs.checkpoint import COMMIT_POINTS, paths
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader

WORDS = (*DQN, "curriculum={name: adaptive, episodes: 2, steps: 20, entropy: 1.0}", "agent.prioritized={}")
# Training saves each step once and so never replaces a checkpoint; tests/runs covers crashes of that.
POINTS = [point for point in COMMIT_POINTS if "replaced" not in point]
SNAPSHOT_POINTS = ["snapshot begun", "snapshot renamed", "snapshot committed"]  # of step 0, before the first checkpoint


def assert_no_gap_and_no_duplicate(run: Path) -> None:
    """Metrics at every fortieth step, each with the episodes since the one before."""
    with MetricsReader(run / "metrics.db") as metrics:
        spans = metrics.read("episode_intervals", ["start", "env_steps"])
        marks = metrics.series("meter_energy")[0]
    assert marks == sorted(set(marks))
    assert [after - before for before, after in pairwise(marks)] == [40] * (len(marks) - 1)
    assert set(zip(spans["start"], spans["env_steps"], strict=True)) <= set(zip([0, *marks], marks, strict=False))


def test_kill_at_every_commit_point_is_recovered(server: ForkServer, tmp_path: Path) -> None:
    """Each process dies at the next point of its first commit, and the next one resumes from what is left."""
    first, *points = [*SNAPSHOT_POINTS, *POINTS]
    whole = server.train("town:dqn", WORDS, tmp_path / "whole", pause_at=720)
    root = tmp_path / "killed"
    process = server.start("town:dqn", WORDS, root, die=[first, 1])
    assert process.wait() == -9
    run = only_run(root)
    assert paths(run / "checkpoints") == []  # no checkpoint: the resumed run starts from the beginning
    for point in points:
        assert server.resume(run, die=[point, 1]).wait() == -9, point
    server.resume_to_end(run, pause_at=720)
    assert differences(whole, run) == []
    assert_no_gap_and_no_duplicate(run)
    for folder in ("checkpoints", "snapshots"):
        assert not [path for path in (run / folder).iterdir() if path.name.startswith(".")]


SHORT = (*WORDS, "budget={env_steps: 320}")


@pytest.fixture(scope="module")
def whole(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """An uninterrupted run, and its number of checkpoints."""
    root = tmp_path_factory.mktemp("whole")
    process = server.start("town:dqn", SHORT, root)
    assert process.wait() == 0, process.output()
    return only_run(root), int(process.output().split()[1])


@pytest.mark.parametrize("point", ["begun", "renamed"])
def test_kill_during_the_last_checkpoint_is_recovered(
    point: str, whole: tuple[Path, int], server: ForkServer, tmp_path: Path
) -> None:
    """The summary is written once, whether the last checkpoint was committed or not."""
    uninterrupted, commits = whole
    assert server.start("town:dqn", SHORT, tmp_path, die=[point, commits]).wait() == -9
    run = only_run(tmp_path)
    assert not Run(run).meta().get("finished")
    server.resume_to_end(run)
    assert differences(uninterrupted, run) == []
    assert_no_gap_and_no_duplicate(run)
    assert Run(run).meta()["summary"] == Run(uninterrupted).meta()["summary"]


def kill_at_random(server: ForkServer, folder: Path, times: int) -> None:
    began = time.perf_counter()
    whole = server.train("town:dqn", WORDS, folder / "whole", pause_at=520)
    took = time.perf_counter() - began  # on this machine, under its current load
    chance, killed, root = random.Random(7), 0, folder / "0"
    process = server.start("town:dqn", WORDS, root, pause_at=520)
    while killed < times:
        time.sleep(chance.uniform(0.0, 0.7 * took))
        ended = process.kill()
        assert ended in (0, -9), process.output()
        killed += ended == -9
        runs = Run.list(root)
        if ended == 0:
            assert differences(whole, runs[0].path) == []
            root = folder / str(killed)
            runs = Run.list(root)
        # A process killed before it created the run is started again; otherwise whatever is left can be resumed.
        process = (
            server.resume(runs[0].path, pause_at=520) if runs else server.start("town:dqn", WORDS, root, pause_at=520)
        )
    assert process.wait() == 0, process.output()
    assert differences(whole, only_run(root)) == []
    assert_no_gap_and_no_duplicate(only_run(root))


def test_kill_at_random_times(server: ForkServer, tmp_path: Path) -> None:
    kill_at_random(server, tmp_path, 5)


@pytest.mark.long(minutes=7)
def test_kill_at_many_random_times(server: ForkServer, tmp_path: Path) -> None:
    kill_at_random(server, tmp_path, 200)
