"""How `torchrun` tells a process that others were started with it."""

from __future__ import annotations

import os
from typing import Final

LEADER: Final = 0  # who writes


def several() -> bool:
    """Whether this process is one of several that were started together."""
    return "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"
