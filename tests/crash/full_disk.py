"""Run by test_disk_full.py: train in a mount namespace until the disk is full, free space, and resume."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from crash.training_process import metrics_digest, only_run
from runs.small_disk import enter_namespaces
from townlet.errors import TownletError
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.tasks.experiment import load_experiment
from townlet.train.session import resume, start


def fill_and_resume(disk: Path, words: list[str]) -> dict[str, Any]:
    """Message, temporary files and metrics of a run whose disk was full for a while."""
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "none", str(disk)], check=True)
    try:
        start(load_experiment("town:dqn", words), disk)
    except TownletError as error:
        message = str(error)
    else:
        sys.exit("the disk was never full")
    run = only_run(disk)
    last = checkpoint.latest(run / "checkpoints")
    assert last is not None
    checkpoint.verify(last.path)
    temporary = [path.name for path in (run / "checkpoints").iterdir() if path.name.startswith(".")]
    subprocess.run(["mount", "-o", "remount,size=60m", str(disk)], check=True)
    paused = last.env_steps + 200
    resume(Run(run), pause_at=paused)
    return {"message": message, "temporary": temporary, "paused": paused, "digest": metrics_digest(run)}


def main(folder: Path, cases: dict[str, list[str]]) -> None:
    torch.set_num_threads(1)
    enter_namespaces()
    print(json.dumps({name: fill_and_resume(folder / f"disk {name}", words) for name, words in cases.items()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
