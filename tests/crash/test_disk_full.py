"""A disk that becomes full while a run trains: a clean stop, a message, the old checkpoint intact, and on it goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crash.smith import DQN, Forge, digest
from runs.test_disk import may_mount

SCRIPT = Path(__file__).with_name("small_disk.py")
WAYS = {
    "every checkpoint is kept": ("checkpoints.every_episodes=1", "checkpoints.keep_every=1"),
    "metrics of every round are kept": ("metrics.every=8", "metrics.whole_episodes=1000", "metrics.tensorboard=true"),
}


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount a tmpfs in a namespace of its own")
@pytest.mark.parametrize("way", WAYS)
def test_a_full_disk_stops_the_run_and_room_lets_it_go_on(way: str, forge: Forge, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    words = (*DQN, *WAYS[way])
    command = ["unshare", "-rm", sys.executable, str(SCRIPT), str(disk), "town:dqn", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parent.parent)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert "the disk is full" in found["said"]
    assert "free some space" in found["said"]
    assert found["left"] == []
    assert found["digest"] == digest(forge.train("town:dqn", words, tmp_path / "whole", pause_at=800))
