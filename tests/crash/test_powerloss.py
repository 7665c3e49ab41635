"""Loss of power at random moments: nothing acknowledged is lost, and nothing is left half done.

One process does every workload once under the shim (see traced.py). Its trace is then cut at random moments, and a disk
that keeps only what was fsynced, and of the rest whatever it likes, is rebuilt for each (see powerloss.py). The product
recovers from that folder, and the workload's own check compares it with what had been acknowledged.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from crash import traced
from crash.powerloss import Disk, Inode, Mode, crashes
from crash.run_workloads import marked
from crash.shim import Operation, Shim, missing
from crash.traced import WORKLOADS

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
MEMORY = Path("/dev/shm")  # recovery calls fsync often, which costs nothing there
KEPT = ("checkpoint", "publication")  # what the product keeps today
MODES = [
    pytest.param("reordered", 40, id="reordered"),
    pytest.param("ordered", 20, id="ordered"),
    pytest.param("reordered", 500, id="reordered-500", marks=pytest.mark.long),
    pytest.param("ordered", 500, id="ordered-500", marks=pytest.mark.long),
]


class Traced(NamedTuple):
    """A finished trace and the folder that it is of."""

    shim: Shim
    operations: dict[str, list[Operation]]  # by workload


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """Made once for all processes of the session."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "powerloss"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "disk").mkdir(exist_ok=True)
        shim = Shim(folder / "disk", folder / "work", traced=True)
        if not (folder / "done").exists():
            environment = {**shim.env(), "PYTHONPATH": os.pathsep.join(sys.path)}
            subprocess.run([sys.executable, traced.__file__], env=environment, check=True)
            (folder / "done").touch()
    return Traced(shim, split(list(shim.trace())))


def split(operations: list[Operation]) -> dict[str, list[Operation]]:
    """The operations of each workload."""
    parts: dict[str, list[Operation]] = {}
    for one in operations:
        if one.kind == "mark" and one.data.startswith(b"workload "):
            part = parts[one.data.decode().removeprefix("workload ")] = []
        elif parts:
            part.append(one)
    return parts


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


def test_the_trace_has_every_byte_that_was_written(trace: Traced) -> None:
    root = trace.shim.root
    disk = Disk(root.stat().st_ino)
    for operation in trace.shim.trace():
        disk.apply(operation)

    def files(folder: Inode, path: Path) -> Iterator[tuple[Path, bytes]]:
        for name, inode in folder.names.items():
            if inode.kind == "folder":
                yield from files(inode, path / name)
            elif inode.kind == "file":
                yield path / name, bytes(inode.seen)

    replayed = dict(files(disk.root, root))
    real = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and not path.is_symlink()}
    assert replayed.keys() == real.keys()
    assert [path for path, data in real.items() if replayed[path] != data] == []


@pytest.mark.parametrize(("mode", "count"), MODES)
@pytest.mark.parametrize("name", [n if n in KEPT else pytest.param(n, marks=pytest.mark.xfail) for n in WORKLOADS])
def test_a_loss_of_power_loses_nothing_acknowledged(
    name: str, mode: Mode, count: int, trace: Traced, scratch: Path
) -> None:
    operations, inode = trace.operations[name], trace.shim.root.stat().st_ino
    assert sum(one.kind == "mark" for one in operations) > 10
    for number, crash in enumerate(crashes(operations, inode, count, 1, mode)):
        crash.restore(scratch / str(number))
        acknowledged, left = marked(crash.acknowledged), scratch / str(number) / name
        try:
            WORKLOADS[name].check(left, acknowledged)
        except Exception as error:
            error.add_note(f"power lost before operation {crash.place} of {name}, {mode}, crash {number} of {count}")
            error.add_note(f"acknowledged last: {acknowledged[-1:]}; done last: {operations[crash.place - 1]!r:.300}")
            raise
