"""Which recipes can be trained on this machine."""

from __future__ import annotations

from townlet.gym import extras


def is_here(title: str) -> bool:
    """Whether what the environment of ENV:VARIANT needs is installed."""
    found = extras.family(title.rpartition(":")[0])
    return found is None or found.installed
