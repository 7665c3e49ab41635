"""Power loss at random times: nothing acknowledged is lost, and nothing is left half done.

One process runs every workload once under the shim (see traced_workloads.py). Its trace is then cut at random times.
For each of them a disk is rebuilt that has everything that was fsynced and an arbitrary part of the rest (see
powerloss.py). Townlet recovers from that folder, and the workload's check compares it with what was acknowledged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from crash import traced_workloads
from crash.powerloss import Disk, Inode, Mode
from crash.run_workloads import Acknowledged, TrainedRun
from crash.shim import missing
from crash.trace_recording import RecordedTrace, lose_power, record
from crash.traced_workloads import WORKLOADS

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
MODES = [
    pytest.param("reordered", 40, id="reordered"),
    pytest.param("ordered", 20, id="ordered"),
    pytest.param("reordered", 500, id="reordered-500", marks=pytest.mark.long),
    pytest.param("ordered", 500, id="ordered-500", marks=pytest.mark.long),
]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedTrace:
    return record(tmp_path_factory, traced_workloads.__file__)


def test_trace_contains_every_written_byte(recorded: RecordedTrace) -> None:
    disk = Disk(recorded.inode)
    for operations in recorded.operations.values():
        for operation in operations:
            disk.apply(operation)

    def files(folder: Inode, path: str) -> Iterator[tuple[str, str]]:
        for name, inode in folder.names.items():
            if inode.kind == "folder":
                yield from files(inode, f"{path}{name}/")
            elif inode.kind == "file":
                yield f"{path}{name}", sha256(inode.seen).hexdigest()

    assert dict(files(disk.root, "")) == recorded.files


@pytest.mark.parametrize(("mode", "count"), MODES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_power_loss_loses_nothing_acknowledged(
    name: str, mode: Mode, count: int, recorded: RecordedTrace, tmp_path: Path
) -> None:
    if name == "snapshot" and count < 100:
        count //= 4  # its check takes longest
    lose_power(recorded, name, WORKLOADS[name], mode, count, tmp_path)


class Resumed:
    """Check of a training: it is resumed, and must end bit-identically."""

    def __init__(self, bits: dict[str, Any]) -> None:
        self._bits = bits

    def check(self, folder: Path, acknowledged: Acknowledged) -> None:
        TrainedRun.check(folder, acknowledged, self._bits)


@pytest.mark.parametrize("count", [2, pytest.param(50, marks=pytest.mark.long)])
def test_training_resumed_after_power_loss_is_bit_identical(
    count: int, recorded: RecordedTrace, tmp_path: Path
) -> None:
    marks = [one.data for one in recorded.operations["training"] if one.kind == "mark"]
    bits = json.loads(marks[-1])["bits"]
    lose_power(recorded, "training", Resumed(bits), "reordered", count, tmp_path)
