"""Traces of scripts that ran under the shim, and power losses at random times of these traces."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import warm
from crash.powerloss import Mode, crashes
from crash.run_workloads import marked
from crash.shim import Operation, Shim, read_trace

MEMORY = Path("/dev/shm")  # recovery calls fsync often, which is free there


class RecordedTrace(NamedTuple):
    """Trace, output and remaining files of a script."""

    operations: dict[str, list[Operation]]  # by workload
    root: str  # the folder, removed since
    inode: int  # of the root
    files: dict[str, str]  # sha256 by path
    output: str


def record(factory: pytest.TempPathFactory, script: str, *arguments: str) -> RecordedTrace:
    """Run a script under the shim, once for all workers of the session."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "-".join((Path(script).stem, *arguments))
    folder.mkdir(exist_ok=True)
    known = folder / "recorded.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not known.exists():
            with scratch(folder) as disk:
                known.write_text(json.dumps(_run([script, *arguments], disk, folder)))
    facts = json.loads(known.read_text())
    return RecordedTrace(split(list(read_trace(folder / "shim.trace", Path(facts["root"])))), **facts)


def _run(command: list[str], disk: Path, work: Path) -> dict[str, Any]:
    environment = {**Shim(disk, work, traced=True).env(), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = warm.run([sys.executable, *command], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    files = [path for path in disk.rglob("*") if path.is_file() and not path.is_symlink()]
    digests = {str(path.relative_to(disk)): sha256(path.read_bytes()).hexdigest() for path in files}
    return {"root": str(disk), "inode": disk.stat().st_ino, "files": digests, "output": done.stdout}


@contextmanager
def scratch(otherwise: Path) -> Iterator[Path]:
    """A temporary folder, in memory where possible."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else otherwise) as folder:
        yield Path(folder).resolve()


def split(operations: list[Operation]) -> dict[str, list[Operation]]:
    """The operations of each workload."""
    parts: dict[str, list[Operation]] = {}
    for one in operations:
        if one.kind == "mark" and one.data.startswith(b"workload "):
            part = parts[one.data.decode().removeprefix("workload ")] = []
        elif parts:
            part.append(one)
    return parts


def lose_power(recorded: RecordedTrace, name: str, workload: Any, mode: Mode, count: int, place: Path) -> None:
    """Restore what random power losses leave of a workload, and run the workload's check on it."""
    operations = recorded.operations[name]
    assert sum(one.kind == "mark" for one in operations) > 5
    for number, crash in enumerate(crashes(operations, recorded.inode, count, 1, mode)):
        with scratch(place) as folder:
            crash.restore(folder / "left")
            acknowledged = marked(crash.acknowledged)
            try:
                workload.check(folder / "left" / name, acknowledged)
            except Exception as error:
                error.add_note(f"power lost before operation {crash.place} of {name}, {mode}, {number} of {count}")
                error.add_note(
                    f"acknowledged last: {acknowledged[-1:]}; done last: {operations[crash.place - 1]!r:.300}"
                )
                raise
