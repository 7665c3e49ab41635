"""Training in several processes under `torchrun`: the process group and the sharding of state by rows."""

from __future__ import annotations

import os
from typing import Final

LEADER: Final = 0  # the rank that evaluates, logs and writes checkpoints


def launched_with_others() -> bool:
    """Whether `torchrun` started this process as one of several."""
    return "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"
