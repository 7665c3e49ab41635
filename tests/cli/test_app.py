"""The program as a whole: help, version, exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from cli.program import Program

COMMANDS = [
    ["train"],
    ["eval"],
    ["play"],
    ["export"],
    ["recipes"],
    ["doctor"],
    ["bench", "sim"],
    ["bench", "train"],
    *(["runs", verb] for verb in ("list", "show", "compare", "export", "prune")),
    *(["world", verb] for verb in ("list", "check", "show", "explain", "new", "schema")),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(townlet: Program, command: list[str]) -> None:
    done = townlet(*command, "--help")
    assert done.code == 0
    assert f"$ townlet {' '.join(command)}" in done.out


def test_version_is_that_of_the_package(townlet: Program) -> None:
    done = townlet("--version")
    assert (done.code, done.out) == (0, f"townlet {version('townlet')}\n")


def test_unknown_commands_and_options_are_mistakes(townlet: Program) -> None:
    for wrong in (["fly"], ["world", "chek"], ["world", "list", "--nope"], ["bench", "sim", "--rows", "0"]):
        done = townlet(*wrong)
        assert done.code == 2, wrong
        assert "Traceback" not in done.err


def test_the_module_is_the_same_program_and_shows_no_traceback() -> None:
    command = [sys.executable, "-m", "townlet", "world", "show", "twon"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "there is no world 'twon'" in done.stderr
    assert "did you mean 'town'?" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_interrupting_leaves_with_130() -> None:
    command = [sys.executable, "-m", "townlet", "bench", "sim", "town", "--rows", "1", "--seconds", "120", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _wait_until_busy(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err


def _wait_until_busy(pid: int, seconds: float = 30) -> None:
    """Until the command has loaded numba: by then Python's imports cannot be what is interrupted."""
    deadline = time.monotonic() + seconds
    maps = Path(f"/proc/{pid}/maps")
    if not maps.exists():
        pytest.skip("needs /proc to see when the program is under way")
    while time.monotonic() < deadline:
        if "llvmlite" in maps.read_text():
            time.sleep(1.5)
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the program did not begin to measure")


def test_closed_output_is_no_crash() -> None:
    done = subprocess.run(f"{sys.executable} -m townlet world list >&-", shell=True, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full to write to")
def test_full_disk_is_one_message() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "townlet", "world", "list"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_terminal_without_our_letters_gets_the_rest() -> None:
    command = [sys.executable, "-m", "townlet", "world", "show", "town"]
    settings = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=settings)
    assert done.returncode == 0
    assert "satiation" in done.stdout
