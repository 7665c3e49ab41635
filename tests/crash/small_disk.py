"""Run by test_disk_full.py in a mount namespace of its own: trains on a disk that becomes full, makes room, goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

from crash.smith import digest, only_run
from townlet.errors import TownletError
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.tasks.experiment import load_experiment
from townlet.train.session import resume, start


def main(place: Path, recipe: str, words: list[str]) -> None:
    torch.set_num_threads(1)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k", "none", str(place)], check=True)
    loaded = load_experiment(recipe, words)
    try:
        start(loaded, place)
    except TownletError as error:
        said = str(error)
    else:
        sys.exit("the disk was never full")
    run = only_run(place)
    last = checkpoint.latest(run / "checkpoints")
    assert last is not None
    checkpoint.verify(last.path)
    left = [path.name for path in (run / "checkpoints").iterdir() if path.name.startswith(".")]
    subprocess.run(["mount", "-o", "remount,size=60m", str(place)], check=True)
    resume(Run(run), pause_at=800)
    print(json.dumps({"said": said, "left": left, "last": last.env_steps, "digest": digest(run)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
