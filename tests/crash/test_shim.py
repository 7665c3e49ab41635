"""The shim itself: it records what Python, SQLite and safetensors do, injects errors, and moves the clock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crash.shim import Shim, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
FAULTS = """
import errno, json, os, time
from pathlib import Path
from crash.shim import Shim
shim, here = Shim.attached(), Path(os.environ["SHIM_ROOT"])
def outcome(action):
    try:
        return action()
    except OSError as error:
        return errno.errorcode[error.errno]
found = {}
shim.fail("write", errno.EIO, at=2)
with open(here / "a", "wb", buffering=0) as file:
    found["second write"] = [outcome(lambda: file.write(b"xy")) for _ in range(3)]
    shim.fail("write", errno.ENOSPC, short=True)
    found["short"] = [outcome(lambda: file.write(b"xy")) for _ in range(3)]
    shim.fail("sync", errno.EIO)
    found["sync"] = [outcome(lambda: os.fsync(file.fileno())) for _ in range(2)]
    shim.fill_disk()
    found["full"] = [outcome(lambda: file.write(b"xy")), outcome(lambda: os.mkdir(here / "b"))]
    found["full"].append(outcome(lambda: os.pwrite(file.fileno(), b"z", 0)))  # needs no room
    elsewhere = outcome(lambda: Path(os.environ["SHIM_CONTROL"] + ".other").write_bytes(b"x"))
    shim.heal()
    found["healed"] = [outcome(lambda: file.write(b"xy")), elsewhere]
    shim.fail("close", errno.EIO)
    descriptor = os.dup(file.fileno())
    found["close"] = [outcome(lambda: os.close(descriptor)), outcome(lambda: os.close(descriptor))]
shim.fail("rename", errno.EIO)
found["rename"] = [outcome(lambda: os.rename(here / "a", here / "c")), (here / "a").exists(), shim.failed]
wall, steady = time.time(), time.monotonic()
shim.jump(-3600)
found["clock"] = [round((time.time() - wall) / 60), round((time.monotonic() - steady) / 60)]
print(json.dumps(found))
"""


def under(shim: Shim, script: str) -> Any:
    """What a script prints as JSON when it runs under the shim."""
    environment = {**shim.env(), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_selected_operations_fail_and_the_wall_clock_jumps(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    assert under(Shim(tmp_path / "disk", tmp_path / "work"), FAULTS) == {
        "second write": [2, "EIO", 2],
        "short": [1, "ENOSPC", 2],
        "sync": ["EIO", None],
        "full": ["ENOSPC", "ENOSPC", 1],
        "healed": [2, 1],
        "close": ["EIO", "EBADF"],
        "rename": ["EIO", True, 1],
        "clock": [-60, 0],
    }
