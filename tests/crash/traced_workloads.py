"""Run by test_powerloss.py under the shim: every workload in its own folder, with marks in the trace."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from crash.decide_workloads import DecisionLog, Publications, Snapshots
from crash.run_workloads import Checkpoints, Metrics, TrainedRun
from crash.shim import Shim
from townlet.runs import disk

WORKLOADS: dict[str, Any] = {
    "checkpoint": Checkpoints,
    "metrics": Metrics,
    "log": DecisionLog,
    "snapshot": Snapshots,
    "publication": Publications,
}


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    shim, root = Shim.attached(), Path(os.environ["SHIM_ROOT"])
    for name in names:
        shim.mark(f"workload {name}")
        (root / name).mkdir()
        disk.sync_folder(root)
        (WORKLOADS | {"training": TrainedRun})[name].act(root / name, lambda **facts: shim.mark(json.dumps(facts)))


if __name__ == "__main__":
    main(sys.argv[1:] or [*WORKLOADS, "training"])
