"""Findings about stored files at a start: each becomes a warning in the log output and an alarm."""

from __future__ import annotations

from typing import NamedTuple


class StorageNotice(NamedTuple):
    """One finding: what is wrong with a file, and what to do about it."""

    name: str  # of the alarm
    what: str
    fix: str
    grave: bool = True
