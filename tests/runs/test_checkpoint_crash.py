"""SIGKILL during a commit leaves an intact checkpoint, the old one or the new one."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from townlet.runs import checkpoint
from townlet.runs.checkpoint import COMMIT_POINTS, best, folder_name, latest, load, prune, save, verify


def state_of(env_steps: int) -> dict[str, object]:
    return {"x": torch.full((50_000,), float(env_steps)), "env_steps": env_steps}


def put(folder: Path, env_steps: int) -> None:
    score = {"score": 5.0} if env_steps == 100 else {}
    save(folder, folder_name(env_steps), state_of(env_steps), {"env_steps": env_steps, **score})


def in_child(work: Callable[[], None]) -> int:
    """Run in a child process; returns its process id at once."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    finally:
        os._exit(0)


def killed(work: Callable[[], None]) -> bool:
    """Whether the child was killed before it finished."""
    _, status = os.waitpid(in_child(work), 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def assert_whole(folder: Path, allowed: set[int]) -> int:
    """The latest checkpoint is intact and allowed, and the best one still exists."""
    found, champion = latest(folder), best(folder)
    assert found is not None
    assert champion is not None
    assert verify(champion.path).env_steps == 100
    state, _ = load(found.path)
    assert found.env_steps in allowed
    assert torch.equal(state["x"], torch.full((50_000,), float(found.env_steps)))
    return found.env_steps


@pytest.mark.parametrize("point", COMMIT_POINTS)
def test_kill_at_each_commit_point_leaves_an_intact_checkpoint(point: str, tmp_path: Path) -> None:
    last = point
    for moment in (100, 150, 200):
        put(tmp_path, moment)

    def commit() -> None:
        def crash(point: str) -> None:
            if point == last:
                os.kill(os.getpid(), signal.SIGKILL)

        checkpoint.on_point = crash
        put(tmp_path, 200)
        put(tmp_path, 300)
        prune(tmp_path)

    assert killed(commit)  # every point is passed
    reached = assert_whole(tmp_path, {200, 300})
    after = COMMIT_POINTS.index(point) >= COMMIT_POINTS.index("pruning begun")
    assert reached == (300 if after else 200)
    put(tmp_path, reached)
    put(tmp_path, 300)
    prune(tmp_path)
    assert assert_whole(tmp_path, {300}) == 300
    assert len(list(tmp_path.iterdir())) == 2  # best and last: the crash left nothing else


def test_commit_points_are_passed_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, 100)
    put(tmp_path, 150)
    put(tmp_path, 200)
    passed: list[str] = []
    monkeypatch.setattr(checkpoint, "on_point", passed.append)
    put(tmp_path, 200)
    prune(tmp_path)
    assert tuple(passed) == COMMIT_POINTS


def kill_at_random(folder: Path, times: int) -> None:
    """Kill after some checkpoints and a part of the next one; counted, so independent of load."""
    chance = random.Random(7)
    put(folder, 100)
    moment = 100
    for _ in range(times):
        count, done = os.pipe()

        def train(first: int = moment + 1, done: int = done) -> None:
            for step in range(first, first + 10_000):
                os.write(done, b"!")
                put(folder, step)
                prune(folder)

        child = in_child(train)
        begin = time.perf_counter()
        begun = chance.randint(1, 4)
        for _ in range(begun):
            os.read(count, 1)
        time.sleep(chance.random() * (time.perf_counter() - begin) / begun)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(count)
        os.close(done)
        reached = assert_whole(folder, set(range(moment, moment + 10_000)))
        assert reached >= moment + begun - 1  # everything committed before the kill
        moment = reached
    assert moment > 100


def test_kill_at_random_times(tmp_path: Path) -> None:
    kill_at_random(tmp_path, 8)


@pytest.mark.long
def test_kill_at_many_random_times(tmp_path: Path) -> None:
    kill_at_random(tmp_path, 400)
