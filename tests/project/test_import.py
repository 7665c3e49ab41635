"""`import townlet` and the help of the program stay light."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import townlet

MEASURE = """
import sys, time
began = time.process_time()
import townlet
print(time.process_time() - began)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
LIMIT_S = 1.0  # CPU time; torch alone takes twice as long


def _run(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_importing_townlet_is_quick_and_loads_no_engine() -> None:
    # The best of three, because other programs on the machine slow down some of them.
    runs = [_run("-c", MEASURE).splitlines() for _ in range(3)]
    assert min(float(seconds) for seconds, _ in runs) < LIMIT_S
    loaded = set(runs[0][1].split())
    assert not loaded & {"torch", "numba", "pygame", "PIL", "pydantic"}


def test_help_loads_no_engine() -> None:
    script = "import sys; from townlet.cli import app; print(*sys.modules)"
    assert not set(_run("-c", script).split()) & {"torch", "numba", "pydantic"}


@pytest.mark.long
def test_commands_of_the_service_do_not_load_numba() -> None:
    assert "numba" not in _run("-c", "import sys, townlet.decide.app; print(*sys.modules)").split()


def test_version_matches_the_installed_metadata() -> None:
    assert townlet.__version__ == version("townlet")
