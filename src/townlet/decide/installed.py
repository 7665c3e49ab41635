"""Domains of installed packages: entry points of the group `townlet.domains`. Listing them loads none."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Final

GROUP: Final = "townlet.domains"


def installed_domains() -> dict[str, EntryPoint]:
    """The entry points by the names of their domains."""
    return {point.name: point for point in entry_points(group=GROUP)}
