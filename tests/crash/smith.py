"""Orders to the forge, and what a run has left on disk as names and values that can be compared."""

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

from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader
from townlet.runs.serialization import flatten

HASHING = "2"  # the order of sets in the forge
COMMAND = "from crash.forge import main; main()"
# Small towns with short lives, so that a second holds many episodes, updates, marks, evaluations and checkpoints.
TINY = (
    "rows=4", "threads=1", "network.hidden=[16]", "change.max_steps=40", "evaluation.episodes=2",
    "evaluation.every=400", "metrics.every=100", "metrics.tensorboard=false", "metrics.report=false",
    "checkpoints.every_episodes=6", "budget={env_steps: 1600}",
)  # fmt: skip
DQN = (*TINY, "agent.replay=400", "agent.warmup=100", "agent.batch_size=8")


@dataclass
class Child:
    """One training in a process of its own."""

    pid: int
    said: Path
    forge: Forge

    def wait(self) -> int:
        """Its exit code, or the negative number of the signal that ended it."""
        return self.forge.waited(self.pid)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> int:
        """`kill -9`, whatever it is doing; nothing happens when it has ended."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def words(self) -> str:
        """What it has said so far."""
        return self.said.read_text() if self.said.exists() else ""

    def works(self, seconds: float) -> None:
        """Wait until it has calculated for so long, however little of the machine it gets, or has ended."""
        deadline, ticks = time.monotonic() + 60, os.sysconf("SC_CLK_TCK")
        while True:
            told = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            if told[0] == "Z" or (int(told[11]) + int(told[12])) / ticks >= seconds:
                return
            assert time.monotonic() < deadline, self.words()
            time.sleep(0.02)

    def wait_for(self, text: str, seconds: float = 30.0) -> None:
        """Until it has said this."""
        deadline = time.monotonic() + seconds
        while text not in self.words():
            assert time.monotonic() < deadline, self.words()
            time.sleep(0.005)


class Forge:
    """A warm process that trains on demand; see forge.py."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(Path(__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": HASHING, "PYTHONPATH": path}
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._folder = tempfile.TemporaryDirectory()
        self._orders, self._living = 0, set[int]()
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, order: dict[str, Any]) -> str:
        assert self._process.stdin is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return self._line()

    def begin(self, recipe: str, words: tuple[str, ...], root: Path, **more: Any) -> Child:
        """Train a recipe in a new run below `root`; `more` is pause_at, die, stall, killed_after or fresh."""
        return self._order({"recipe": recipe, "words": list(words), "root": str(root), "pause_at": None, **more})

    def resume(self, run: Path, words: tuple[str, ...] = (), **more: Any) -> Child:
        """Go on with a run."""
        return self._order({"run": str(run), "words": list(words), "pause_at": None, **more})

    def _order(self, order: dict[str, Any]) -> Child:
        self._orders += 1
        said = Path(self._folder.name) / str(self._orders)
        pid = int(self.ask({**order, "said": str(said)}))
        self._living.add(pid)
        return Child(pid, said, self)

    def waited(self, pid: int) -> int:
        """The end of a child."""
        code = int(self.ask({"wait": pid}))
        self._living.discard(pid)
        return code

    def train(self, recipe: str, words: tuple[str, ...], root: Path, **more: Any) -> Path:
        """Train without a disturbance; the run's folder."""
        child = self.begin(recipe, words, root, **more)
        assert child.wait() == 0, child.words()
        return only_run(root)

    def go_on(self, run: Path, words: tuple[str, ...] = (), **more: Any) -> Child:
        """Resume without a disturbance."""
        child = self.resume(run, words, **more)
        assert child.wait() == 0, child.words()
        return child

    def close(self) -> None:
        for pid in self._living:  # of tests that failed; those that were waited for are gone
            os.kill(pid, signal.SIGKILL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(30)
        self._folder.cleanup()


def only_run(root: Path) -> Path:
    """The folder of the one run below `root`."""
    (run,) = Run.list(root)
    return run.path


def kept(run: Path) -> dict[str, Any]:
    """Every leaf of the last checkpoint's state."""
    last = checkpoint.latest(run / "checkpoints")
    assert last is not None
    return flatten(checkpoint.load(last.path)[0])


def digest(run: Path) -> str:
    """All metrics that do not depend on the clock, as one number."""
    with MetricsReader(run / "metrics.db") as metrics:
        return metrics.content_digest()


def odd_leaves(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Names of the leaves that are not the same to the bit, or in one of them only."""
    odd = a.keys() ^ b.keys()
    return sorted(odd | {name for name in a.keys() & b.keys() if not _alike(a[name], b[name])})


def _alike(x: Any, y: Any) -> bool:
    """Bits are compared, not numbers: NaN is like itself, and 0 is unlike −0."""
    if not isinstance(x, torch.Tensor):
        return bool(x == y)
    return x.dtype == y.dtype and x.shape == y.shape and x.numpy().tobytes() == y.numpy().tobytes()


def differences(one: Path, other: Path) -> list[str]:
    """What is not the same to the bit in two runs: names of leaves, and "metrics"."""
    return odd_leaves(kept(one), kept(other)) + (["metrics"] if digest(one) != digest(other) else [])
