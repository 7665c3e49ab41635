"""A disk that becomes full during training: clean stop, message, last checkpoint intact, and the run can be resumed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import warm
from crash.training_process import DQN, ForkServer, metrics_digest
from runs.test_disk import may_mount

SCRIPT = Path(__file__).with_name("full_disk.py")
CASES = {
    "every checkpoint is kept": ("checkpoints.every_episodes=1", "checkpoints.keep_every=1"),
    "metrics of every rollout are kept": ("metrics.every=8", "metrics.whole_episodes=1000", "metrics.tensorboard=true"),
}


@pytest.mark.skipif(not may_mount(), reason="needs permission to mount a tmpfs in a namespace")
def test_full_disk_stops_the_run_and_it_resumes_once_space_is_free(server: ForkServer, tmp_path: Path) -> None:
    cases = {name: [*DQN, *words] for name, words in CASES.items()}
    command = [sys.executable, str(SCRIPT), str(tmp_path), json.dumps(cases)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = warm.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    for name, words in cases.items():
        result = results[name]
        assert "the disk is full" in result["message"], name
        assert "free some space" in result["message"], name
        assert result["temporary"] == [], name
        whole = server.train("town:dqn", tuple(words), tmp_path / f"whole {name}", pause_at=result["paused"])
        assert result["digest"] == metrics_digest(whole), name
