"""Which recipes can be trained on this machine."""

from __future__ import annotations

from townlet.gym import extras


def is_installed(title: str) -> bool:
    """Whether the packages of the environment in ENV:VARIANT are installed."""
    found = extras.family(title.rpartition(":")[0])
    return found is None or found.installed
