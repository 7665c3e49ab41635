"""`kill -9` at any instant: the run that is resumed ends with the same bits, its metrics without gap or duplicate."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from pathlib import Path

import pytest

from crash.smith import DQN, Forge, differences, only_run
from townlet.runs.checkpoint import COMMIT_POINTS, paths
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader

WORDS = (*DQN, "curriculum={name: adversarial, episodes: 2, steps: 40, entropy: 1.0}", "agent.prioritized={}")
# A moment is saved once, so that training never replaces a checkpoint; tests/runs does, and crashes there too.
PASSED = [point for point in COMMIT_POINTS if "replaced" not in point]


def assert_no_gap_and_no_duplicate(run: Path) -> None:
    """Marks at every hundred steps, each with the episodes since the one before."""
    with MetricsReader(run / "metrics.db") as metrics:
        spans = metrics.read("episode_intervals", ["start", "env_steps"])
        marks = metrics.series("meter_energy")[0]
    assert marks == sorted(set(marks))
    assert [after - before for before, after in pairwise(marks)] == [100] * (len(marks) - 1)
    assert set(zip(spans["start"], spans["env_steps"], strict=True)) <= set(zip([0, *marks], marks, strict=False))


def test_killed_at_every_point_of_a_commit(forge: Forge, tmp_path: Path) -> None:
    """Each process dies at the next point of its first commit, and the next one goes on from what it finds."""
    whole = forge.train("town:dqn", WORDS, tmp_path / "whole", pause_at=1500)
    root = tmp_path / "killed"
    child = forge.begin("town:dqn", WORDS, root, die=[PASSED[0], 1])
    assert child.wait() == -9
    run = only_run(root)
    assert paths(run / "checkpoints") == []  # not one checkpoint: it begins anew
    for point in PASSED[1:]:
        assert forge.resume(run, die=[point, 1]).wait() == -9, point
    forge.go_on(run, pause_at=1500)
    assert differences(whole, run) == []
    assert_no_gap_and_no_duplicate(run)
    assert not [path for path in (run / "checkpoints").iterdir() if path.name.startswith(".")]


SHORT = (*WORDS, "budget={env_steps: 600}")


@pytest.fixture(scope="module")
def whole(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A run that nothing disturbed, and how many checkpoints it wrote."""
    root = tmp_path_factory.mktemp("whole")
    child = forge.begin("town:dqn", SHORT, root)
    assert child.wait() == 0, child.words()
    return only_run(root), int(child.words().split()[1])


@pytest.mark.parametrize("point", ["begun", "renamed"])
def test_killed_while_the_end_is_saved(point: str, whole: tuple[Path, int], forge: Forge, tmp_path: Path) -> None:
    """What is said at the very end is said once, whether the last checkpoint was just written or not."""
    undisturbed, commits = whole
    assert forge.begin("town:dqn", SHORT, tmp_path, die=[point, commits]).wait() == -9
    run = only_run(tmp_path)
    assert not Run(run).meta().get("finished")
    forge.go_on(run)
    assert differences(undisturbed, run) == []
    assert_no_gap_and_no_duplicate(run)
    assert Run(run).meta()["summary"] == Run(undisturbed).meta()["summary"]


def kill_at_random(forge: Forge, folder: Path, times: int) -> None:
    began = time.perf_counter()
    whole = forge.train("town:dqn", WORDS, folder / "whole", pause_at=1200)
    took = time.perf_counter() - began  # whatever the machine is doing beside us
    chance, killed, root = random.Random(7), 0, folder / "0"
    child = forge.begin("town:dqn", WORDS, root, pause_at=1200)
    while killed < times:
        time.sleep(chance.uniform(0.0, 0.7 * took))
        ended = child.kill()
        assert ended in (0, -9), child.words()
        killed += ended == -9
        runs = Run.list(root)
        if ended == 0:
            assert differences(whole, runs[0].path) == []
            root = folder / str(killed)
            runs = Run.list(root)
        # Killed before there was a run at all, it must be begun; else whatever was left is good enough to go on.
        child = (
            forge.resume(runs[0].path, pause_at=1200) if runs else forge.begin("town:dqn", WORDS, root, pause_at=1200)
        )
    assert child.wait() == 0, child.words()
    assert differences(whole, only_run(root)) == []
    assert_no_gap_and_no_duplicate(only_run(root))


def test_killed_at_random_instants(forge: Forge, tmp_path: Path) -> None:
    kill_at_random(forge, tmp_path, 12)


@pytest.mark.long(minutes=7)
def test_killed_at_many_random_instants(forge: Forge, tmp_path: Path) -> None:
    kill_at_random(forge, tmp_path, 200)
