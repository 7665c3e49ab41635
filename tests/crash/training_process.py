"""Client of the fork server, and comparisons of runs on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import warm
from metrics_digest import content_digest
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader
from townlet.runs.serialization import flatten

COMMAND = "from crash.fork_server import main; main()"
# Small towns with short episodes: a second contains many episodes, updates, metrics, evaluations and checkpoints.
TINY = (
    "rows=4", "threads=1", "network.hidden=[16]", "change.max_steps=20", "evaluation.episodes=2",
    "evaluation.every=200", "metrics.every=40", "metrics.tensorboard=false", "metrics.report=false",
    "checkpoints.every_episodes=6", "budget={env_steps: 1600}",
)  # fmt: skip
DQN = (*TINY, "agent.replay=200", "agent.warmup=60", "agent.batch_size=8")


@dataclass
class TrainingProcess:
    """`townlet train` in a separate process."""

    pid: int
    output_file: Path
    server: ForkServer

    def wait(self) -> int:
        """Exit code, or the negative number of the signal that ended it."""
        return self.server.exit_code(self.pid)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> int:
        """SIGKILL; without effect if it has ended."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def output(self) -> str:
        """Standard output and error so far."""
        return self.output_file.read_text() if self.output_file.exists() else ""

    def wait_for_cpu(self, seconds: float) -> None:
        """Wait until it has used this much CPU time or has ended."""
        deadline, ticks = time.monotonic() + 200, os.sysconf("SC_CLK_TCK")
        while True:
            stat = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            if stat[0] == "Z" or (int(stat[11]) + int(stat[12])) / ticks >= seconds:
                return
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.02)

    def wait_for(self, text: str, seconds: float = 120.0) -> None:
        """Wait until its output contains this text."""
        deadline = time.monotonic() + seconds
        while text not in self.output():
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.005)


class ForkServer:
    """A process that forks one run per request; see fork_server.py."""

    def __init__(self) -> None:
        self._process = warm.Popen(
            [sys.executable, "-c", COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._folder = tempfile.TemporaryDirectory()
        self._requests, self._running = 0, set[int]()
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self._process.stdout is not None
        line: str = self._process.stdout.readline()
        return line.strip()

    def request(self, message: dict[str, Any]) -> str:
        assert self._process.stdin is not None
        print(json.dumps(message), file=self._process.stdin, flush=True)
        return self._line()

    def start(self, recipe: str, words: tuple[str, ...], root: Path, **more: Any) -> TrainingProcess:
        """Train a recipe in a new run below `root`; `more`: pause_at, die, stall, killed_after or flush_seconds."""
        return self._fork({"recipe": recipe, "words": list(words), "root": str(root), "pause_at": None, **more})

    def resume(self, run: Path, words: tuple[str, ...] = (), **more: Any) -> TrainingProcess:
        """Resume a run."""
        return self._fork({"run": str(run), "words": list(words), "pause_at": None, **more})

    def _fork(self, message: dict[str, Any]) -> TrainingProcess:
        self._requests += 1
        output = Path(self._folder.name) / str(self._requests)
        pid = int(self.request({**message, "output": str(output)}))
        self._running.add(pid)
        return TrainingProcess(pid, output, self)

    def exit_code(self, pid: int) -> int:
        """Wait for a process and return its exit code."""
        code = int(self.request({"wait": pid}))
        self._running.discard(pid)
        return code

    def train(self, recipe: str, words: tuple[str, ...], root: Path, **more: Any) -> Path:
        """Train without interruption and return the run folder."""
        process = self.start(recipe, words, root, **more)
        assert process.wait() == 0, process.output()
        return only_run(root)

    def resume_to_end(self, run: Path, words: tuple[str, ...] = (), **more: Any) -> TrainingProcess:
        """Resume without interruption."""
        process = self.resume(run, words, **more)
        assert process.wait() == 0, process.output()
        return process

    def close(self) -> None:
        for pid in self._running:  # those of failed tests
            os.kill(pid, signal.SIGKILL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(30)
        self._folder.cleanup()


def only_run(root: Path) -> Path:
    """The folder of the only run below `root`."""
    (run,) = Run.list(root)
    return run.path


def checkpoint_leaves(run: Path) -> dict[str, Any]:
    """Every leaf of the state in the latest checkpoint."""
    last = checkpoint.latest(run / "checkpoints")
    assert last is not None
    return flatten(checkpoint.load(last.path)[0])


def metrics_digest(run: Path) -> str:
    """Digest of all metrics that do not depend on the clock."""
    with MetricsReader(run / "metrics.db") as metrics:
        return content_digest(metrics)


def differing_leaves(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Names of the leaves that are not bit-identical or exist on one side only."""
    unpaired = a.keys() ^ b.keys()
    return sorted(unpaired | {name for name in a.keys() & b.keys() if not _identical(a[name], b[name])})


def _identical(x: Any, y: Any) -> bool:
    """Compare bits, not values: NaN equals itself, and 0 differs from −0."""
    if not isinstance(x, torch.Tensor):
        return bool(x == y)
    return bool(x.dtype == y.dtype and x.shape == y.shape and x.numpy().tobytes() == y.numpy().tobytes())


def snapshot_leaves(run: Path) -> dict[str, Any]:
    """Every leaf of every policy snapshot."""
    return {
        f"{path.name}/{name}": leaf
        for path in checkpoint.paths(run / "snapshots")
        for name, leaf in flatten(checkpoint.load(path)[0]).items()
    }


def differences(one: Path, other: Path) -> list[str]:
    """Names of the leaves of checkpoints and snapshots that differ between two runs, and "metrics" if those differ."""
    return [
        *differing_leaves(checkpoint_leaves(one), checkpoint_leaves(other)),
        *differing_leaves(snapshot_leaves(one), snapshot_leaves(other)),
        *(["metrics"] if metrics_digest(one) != metrics_digest(other) else []),
    ]
