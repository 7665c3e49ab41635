"""The log of a killed process and on a full disk: acknowledged records are there, once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import warm
from runs.test_disk import may_mount

SCRIPT = Path(__file__).with_name("log_writer.py")


def written(way: str, folder: Path, *more: str) -> dict[str, str]:
    """The output of the writer, which checks the log."""
    command = [sys.executable, str(SCRIPT), way, str(folder), *more]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # the helpers of the tests, too
    done = warm.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("times", [15, pytest.param(100, marks=pytest.mark.long)])
def test_killed_at_random_instants_nothing_acknowledged_is_lost_or_duplicated(times: int, tmp_path: Path) -> None:
    said = written("killed", tmp_path, str(times))
    assert int(said["acknowledged"]) > 10 * times
    assert int(said["segments"]) > 1


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount a tmpfs in a separate namespace")
def test_a_full_disk_stops_appending_until_space_is_freed(tmp_path: Path) -> None:
    said = written("full", tmp_path)
    assert said["refused"] == said["problem"]
    assert "cannot write the log in" in said["problem"]
    assert "the disk is full; free some space there" in said["problem"]
    assert said["problem afterwards"] == "None"


def test_a_limit_on_file_sizes_stops_appending_until_it_is_raised(tmp_path: Path) -> None:
    said = written("limited", tmp_path)
    assert "a file may not grow that large here; raise the limit" in said["problem"]
    assert said["problem afterwards"] == "None"
