"""Numbers of examples for Hypothesis: a few in `make test`, all of them in `make test-long`."""

from __future__ import annotations

import os
from typing import Final

THOROUGH: Final = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def examples(quick: int, thorough: int) -> int:
    """Number of examples that a test tries."""
    return thorough if THOROUGH else quick
