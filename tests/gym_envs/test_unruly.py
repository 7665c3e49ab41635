"""Environments that end their process, do not answer, or return what they do not declare."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import townlet
import warm
from gym_envs.unruly import Unruly
from narrow import instance
from townlet.errors import EnvironmentFailed
from townlet.gym import row_processes, vector_env
from townlet.gym.row_processes import RowProcesses
from townlet.gym.vector_env import GymVecEnv
from townlet.interrupt import stop_requested

BOTH = pytest.mark.parametrize("vectorization", ["sync", "async"])
SECOND = torch.tensor([0, 1])  # the second row misbehaves


def make(wrong: str, vectorization: str = "async") -> GymVecEnv:
    env = instance(townlet.make(Unruly, 2, vectorization=vectorization, kwargs={"wrong": wrong}), GymVecEnv)
    env.reset(0)
    return env


@pytest.mark.parametrize(("wrong", "how"), [("exit", "ended with exit code 3"), ("segfault", "was ended by SIGSEGV")])
def test_a_process_that_ends_names_its_row_and_how(wrong: str, how: str) -> None:
    env = make(wrong)
    with pytest.raises(EnvironmentFailed, match=rf"Unruly failed in step\(\): the process of row 1 {how}"):
        env.step(SECOND)
    env.close()


def test_leaving_the_program_is_an_error_of_the_environment() -> None:
    env = make("exit", "sync")
    with pytest.raises(EnvironmentFailed, match=r"Unruly failed in step\(\): SystemExit: 3 \(unruly.py:\d+\)"):
        env.step(SECOND)


def test_an_exception_in_a_process_keeps_its_traceback() -> None:
    env = make("raise")
    with pytest.raises(EnvironmentFailed, match="ZeroDivisionError: nothing to divide by") as raised:
        env.step(SECOND)
    notes = getattr(raised.value.__cause__, "__notes__", [])
    assert re.search(r"(?s)In the process of row 1:.*unruly.py", "".join(notes))
    env.close()


@BOTH
def test_a_reward_that_is_a_text_is_an_error(vectorization: str) -> None:
    env = make("text", vectorization)
    with pytest.raises(EnvironmentFailed, match=r"the reward is '1.5', not a number"):
        env.step(SECOND)
    env.close()


@BOTH
def test_an_observation_outside_of_its_space_is_reported_once(
    vectorization: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_env, "_outside_warned", set())
    env = make("outside", vectorization)
    for _ in range(2 * vector_env.CHECK_EVERY):
        env.step(SECOND)
    env.close()
    (said,) = caplog.messages
    expected = "Unruly: value 0 of the observation of row 1 is 1e+06, outside of the bounds -1 and 1"
    assert said.startswith(expected)


def test_a_row_that_does_not_answer_is_named(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_processes, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(row_processes, "SILENT_SECONDS", 0.1)
    env = make("slow")
    caplog.set_level(logging.WARNING)
    env.step(SECOND)
    env.close()
    assert caplog.messages
    assert all(re.fullmatch(r"row 1 of Unruly has not answered for \d+ s\.", text) for text in caplog.messages)


def test_a_stop_names_the_rows_it_waits_for(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_processes, "POLL_SECONDS", 0.02)
    env = make("slow")
    stop_requested.set()
    try:
        env.step(torch.tensor([1, 1]))
    finally:
        stop_requested.clear()
    env.close()
    (said,) = caplog.messages
    assert re.fullmatch(r"Stopping, but rows 0, 1 of Unruly have not answered for 0 s; Ctrl-C again .*", said)


def test_closing_ends_processes_that_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_processes, "CLOSE_SECONDS", 0.1)
    env = make("exit")
    rows = instance(env.vec, RowProcesses)
    os.kill(rows.processes[0].pid or 0, signal.SIGSTOP)
    env.close()
    assert [process.is_alive() for process in rows.processes] == [False, False]


HANGS = """
import os, pathlib, time
from gym_envs.unruly import Unruly

class Hangs(Unruly):
    def __init__(self):
        super().__init__("")
        self.steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 60:
            pathlib.Path(f"hangs-{os.getpid()}").touch()
            time.sleep(600)
        obs, reward, *_, info = super().step(0)
        return obs, reward, False, self.steps % 10 == 0, info
"""
TRAIN = (
    "train", "hangs.py:Hangs:ppo", "--allow-code", "gym.vectorization=async", "rows=2", "agent.n_steps=16", "threads=1",
    "evaluation.episodes=1", "metrics.report=false", "metrics.tensorboard=false",
)  # fmt: skip


def test_a_second_interrupt_ends_rows_that_hang(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    command = [sys.executable, "-m", "townlet", *TRAIN]
    process = warm.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    rows: list[int] = []
    try:
        until = time.monotonic() + 120
        while len(rows) < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
            rows = [int(path.name.removeprefix("hangs-")) for path in tmp_path.glob("hangs-*")]
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.stderr is not None
        assert any("Stopping, but rows 0, 1 of Hangs" in line for line in process.stderr)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(10) == 130
        assert [pid for pid in rows if _is_running(pid)] == []
    finally:
        for pid in (process.pid, *rows):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def _is_running(pid: int) -> bool:
    """Whether a process exists that has not ended; a killed one may remain until its parent has waited for it."""
    with suppress(OSError):
        state: Any = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in ("Z", "X")
    return False
