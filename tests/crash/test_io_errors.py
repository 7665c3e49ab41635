"""An error at every operation of a commit: a message or success, the previous state intact, and the next commit works.

fault_injection.py injects the errors in one process and leaves a trace, in which power can then be lost at any time:
data written before a failed fsync may be gone, unless it was written again ("fsyncgate", see powerloss.py).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crash import fault_injection
from crash.shim import missing
from crash.trace_recording import RecordedTrace, lose_power, record
from crash.traced_workloads import WORKLOADS

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
# Power losses of the quick form: the snapshot of a service takes longest to check.
QUICK = {name: 4 if name == "snapshot" else 20 for name in WORKLOADS}
# SQLite does not report why a file cannot be opened; it opens the file for reading instead.
WITHOUT_REASON = ("the metrics cannot be opened", "the metrics cannot be written")
REASONS = {
    "EIO": ("the disk reports an error", *WITHOUT_REASON),
    "ENOSPC": ("the disk is full", "check the space", *WITHOUT_REASON),
}


@pytest.fixture(scope="session", params=["sampled", pytest.param("exhaustive", marks=pytest.mark.long(minutes=2))])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RecordedTrace:
    return record(tmp_path_factory, fault_injection.__file__, request.param)


def injected_faults(recorded: RecordedTrace, name: str) -> list[dict[str, Any]]:
    faults: list[dict[str, Any]] = json.loads(recorded.output.splitlines()[-1])[name]
    print(name, dict(Counter(fault["kind"] for fault in faults)))
    return faults


@pytest.mark.parametrize("name", WORKLOADS)
def test_error_at_any_operation_of_a_commit_is_reported_and_keeps_the_previous_state(
    name: str, recorded: RecordedTrace
) -> None:
    injected = injected_faults(recorded, name)
    assert {"open", "write", "sync", "close"} <= {one["kind"] for one in injected}
    for one in injected:
        assert not one["exception"], f"{one['what']}, {one['error']} at {one['kind']} {one['at']}: {one['exception']}"
        if one["message"]:
            assert f"{recorded.root}/{name}" in one["message"]
            assert any(reason in one["message"] for reason in REASONS[one["error"]]), one["message"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_failed_fsync_is_not_masked_by_a_later_success(
    name: str, recorded: RecordedTrace, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    failed = [one for one in injected_faults(recorded, name) if one["kind"] == "sync"]
    assert failed
    assert all(one["message"] for one in failed if one["what"].endswith("tried again")), "a second fsync was believed"
    losses = 500 if "exhaustive" in request.node.name else QUICK[name]
    lose_power(recorded, name, WORKLOADS[name], "reordered", losses, tmp_path)
