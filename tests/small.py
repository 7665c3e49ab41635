"""Runs small enough to be trained in a second or two, and a finger on Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from townlet.runs import checkpoint
from townlet.runs.folder import Run

SHARED: Final = (
    "rows=8", "threads=1", "evaluation.episodes=8", "metrics.tensorboard=false",
)  # fmt: skip
SMALL: Final[dict[str, tuple[str, ...]]] = {
    "town-l0:dqn": (
        *SHARED, "network.hidden=[16]", "budget.env_steps=1600", "evaluation.every=800", "agent.warmup=200",
        "agent.batch_size=32", "agent.update_every=4", "agent.replay=2000",
    ),
    "town:ppo": (
        *SHARED, "network.hidden=[16]", "budget.env_steps=1024", "evaluation.every=512", "agent.n_steps=16",
        "agent.batch_size=64",
    ),
    "town-l2:drqn": (
        *SHARED, "budget.env_steps=800", "evaluation.every=400", "agent.warmup=200", "agent.replay=2000",
        "agent.batch_size=4", "evaluation.change={max_steps: 400}",
        "network={name: mlp, hidden: [16], recurrent: {kind: gru, size: 8, after: [8]}}",
    ),
}  # fmt: skip


@contextmanager
def ctrl_c_once_training(root: Path) -> Iterator[None]:
    """Press Ctrl-C in this process as soon as a run below `root` has been saved, so that its training is under way."""

    def press() -> None:
        for _ in range(1200):
            if any(checkpoint.listing(run.checkpoints) for run in Run.list(root)):
                break
            time.sleep(0.05)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    finger = threading.Thread(target=press)
    finger.start()
    try:
        yield
    finally:
        finger.join()
