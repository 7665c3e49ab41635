"""Loss of power at random moments: nothing acknowledged is lost, and nothing is left half done.

One process does every workload once under the shim (see traced.py). Its trace is then cut at random moments, and a disk
that keeps only what was fsynced, and of the rest whatever it likes, is rebuilt for each (see powerloss.py). The product
recovers from that folder, and the workload's own check compares it with what had been acknowledged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from crash import traced
from crash.powerloss import Disk, Inode, Mode
from crash.recorded import Recorded, lose_power, record
from crash.run_workloads import Acknowledged, TrainedRun
from crash.shim import missing
from crash.traced import WORKLOADS

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
MODES = [
    pytest.param("reordered", 40, id="reordered"),
    pytest.param("ordered", 20, id="ordered"),
    pytest.param("reordered", 500, id="reordered-500", marks=pytest.mark.long),
    pytest.param("ordered", 500, id="ordered-500", marks=pytest.mark.long),
]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory, traced.__file__)


def test_the_trace_has_every_byte_that_was_written(recorded: Recorded) -> None:
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
def test_a_loss_of_power_loses_nothing_acknowledged(
    name: str, mode: Mode, count: int, recorded: Recorded, tmp_path: Path
) -> None:
    lose_power(recorded, name, WORKLOADS[name], mode, count, tmp_path)


class Resumed:
    """The check of a training: it is resumed, and must end with these bits."""

    def __init__(self, bits: dict[str, Any]) -> None:
        self._bits = bits

    def check(self, folder: Path, acknowledged: Acknowledged) -> None:
        TrainedRun.check(folder, acknowledged, self._bits)


@pytest.mark.parametrize("count", [4, pytest.param(50, marks=pytest.mark.long)])
def test_a_training_resumed_after_a_loss_of_power_ends_with_the_same_bits(
    count: int, recorded: Recorded, tmp_path: Path
) -> None:
    marks = [one.data for one in recorded.operations["training"] if one.kind == "mark"]
    bits = json.loads(marks[-1])["bits"]
    lose_power(recorded, "training", Resumed(bits), "reordered", count, tmp_path)
