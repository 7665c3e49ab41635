"""An error at every operation of every commit: a clear message or success, the older state whole, the next one works.

faults.py does it in one process and leaves a trace, so that power can be lost at any moment between the errors, too:
what was written before a failed fsync may be gone, unless it was written again ("fsyncgate", see powerloss.py).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crash import faults
from crash.recorded import Recorded, lose_power, record
from crash.shim import missing
from crash.traced import WORKLOADS

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
# SQLite does not say why a file cannot be opened, and tries to open it for reading then.
UNTOLD = ("the metrics cannot be opened", "the metrics cannot be written")
REASONS = {"EIO": ("the disk reports an error", *UNTOLD), "ENOSPC": ("the disk is full", "look at the space", *UNTOLD)}


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory, faults.__file__)


def found(recorded: Recorded, name: str) -> list[dict[str, Any]]:
    injected: list[dict[str, Any]] = json.loads(recorded.output.splitlines()[-1])[name]
    print(name, dict(Counter(one["kind"] for one in injected)))
    return injected


@pytest.mark.parametrize("name", WORKLOADS)
def test_an_error_at_any_operation_of_a_commit_is_reported_and_leaves_the_older_state(
    name: str, recorded: Recorded
) -> None:
    injected = found(recorded, name)
    assert {"open", "write", "sync", "close"} <= {one["kind"] for one in injected}
    for one in injected:
        assert not one["trouble"], f"{one['what']}, {one['error']} at {one['kind']} {one['at']}: {one['trouble']}"
        if one["said"]:
            assert f"{recorded.root}/{name}" in one["said"]
            assert any(reason in one["said"] for reason in REASONS[one["error"]]), one["said"]


@pytest.mark.parametrize("count", [25, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_failed_fsync_is_never_taken_for_a_later_success(
    name: str, count: int, recorded: Recorded, tmp_path: Path
) -> None:
    failed = [one for one in found(recorded, name) if one["kind"] == "sync"]
    assert failed
    assert all(one["said"] for one in failed if one["what"].endswith("tried again")), "a second fsync was believed"
    lose_power(recorded, name, WORKLOADS[name], "reordered", count, tmp_path)
