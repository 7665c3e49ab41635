"""What a use of a library returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ID: Final = "Townlet/Town-v0"


@dataclass(frozen=True)
class Outcome:
    """What a library did on a town of some rows."""

    rows: int
    steps: int
    checked: str
