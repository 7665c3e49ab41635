"""Processes that train one run together, as torchrun starts them, and a comparison of their checkpoints."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch

import warm
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.serialization import flatten

WAIT = 120.0
TOLERANCE = 1e-5
Launch = Callable[..., "Processes"]


class Processes:
    """The processes of one run, as torchrun would start them."""

    def __init__(self, count: int, words: tuple[str, ...], program: tuple[str, ...]) -> None:
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.free_port()), "WORLD_SIZE": str(count)}
        self.all = [
            warm.Popen(
                [sys.executable, *program, "train", *words],
                env=os.environ | shared | {"RANK": str(rank)},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for rank in range(count)
        ]  # fmt: skip

    @staticmethod
    def free_port() -> int:
        """A port that is free at this moment."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return int(free.getsockname()[1])

    def kill(self) -> None:
        """End the processes that still run."""
        for process in self.all:
            process.kill()
            process.communicate()

    def results(self) -> list[tuple[int, str]]:
        """Exit code and output of each process."""
        outputs = [process.communicate(timeout=WAIT)[0] for process in self.all]
        return [(process.returncode, output) for process, output in zip(self.all, outputs, strict=True)]


@pytest.fixture
def launch() -> Iterator[Launch]:
    """`launch(2, …)` starts two processes, which are killed at the end of the test."""
    launched: list[Processes] = []

    def start(count: int, *words: str, program: tuple[str, ...] = ("-m", "townlet")) -> Processes:
        launched.append(Processes(count, words, program))
        return launched[-1]

    yield start
    for processes in launched:
        processes.kill()


def load_latest(run: Run) -> tuple[dict[str, object], dict[str, object]]:
    """State and info of the newest checkpoint."""
    found = checkpoint.latest(run.checkpoints)
    assert found is not None
    state, info = checkpoint.load(found.path)
    return flatten(state), info


def assert_same(one: Run, other: Run, updates: int = 50) -> None:
    """Assert that weights, rows, buffers and counters are equal, up to the order of floating-point sums."""
    (state, info), (found, reported) = load_latest(one), load_latest(other)
    for name in ("env_steps", "updates", "episodes"):
        assert info[name] == reported[name], name
    assert int(str(info["updates"])) >= updates
    for name, value in state.items():
        if not name.startswith("training/"):
            continue
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            torch.testing.assert_close(found[name], value, atol=TOLERANCE, rtol=TOLERANCE, msg=name)
        elif isinstance(value, torch.Tensor):
            assert torch.equal(torch.as_tensor(found[name]), value), name
