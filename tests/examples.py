"""Numbers of examples for Hypothesis: a few in `make test`, all of them in `make test-long`."""

from __future__ import annotations

import os
from typing import Final

THOROUGH: Final = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def examples(quick: int, thorough: int) -> int:
    """How many examples a test tries in this run."""
    return thorough if THOROUGH else quick
