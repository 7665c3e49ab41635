"""Where versions and the changes of the serving version are stored: in a folder, or in a database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from townlet.decide.storage.serving_log import ServingChange
from townlet.errors import SourceLocation
from townlet.interfaces.state import State


class ServingHistory(Protocol):
    """All changes of the serving version, the pin and gate-only mode."""

    changes: tuple[ServingChange, ...]  # the last ones, oldest first
    fault: str  # why they cannot be trusted; empty if they can

    @property
    def number(self) -> int:
        """Number of the last change known from any source."""

    @property
    def last(self) -> ServingChange:
        """The change that holds the current state."""

    keeps_unstored: bool  # whether a change that could not be stored is in effect nevertheless, until a restart

    def append(self, make_change: Callable[[], ServingChange]) -> ServingChange:
        """Store a change durably, with the next number; it is made from the last one, of whichever process that is."""

    def distrust(self, fault: str, number: int) -> None:
        """Stop trusting the changes: another source contradicts them, and refers to a change of this number."""

    def refresh(self) -> None:
        """Read the changes of other processes."""


class VersionArchive(Protocol):
    """Where versions are stored."""

    @property
    def history(self) -> ServingHistory:
        """All changes of what serves."""

    def where(self, version: int) -> Path | SourceLocation:
        """The place of a version, for messages."""

    def numbers(self) -> list[int]:
        """All stored versions, oldest first."""

    def needed_for_replay(self) -> set[int]:
        """The versions to which a replay from a kept snapshot may go back."""

    def save(self, version: int, state: State, info: Mapping[str, Any]) -> dict[str, Any]:
        """Store a version durably; returns its info."""

    def load(self, version: int) -> tuple[State, dict[str, Any]]:
        """State and info of a stored version; every byte is checked."""

    def verify(self, version: int) -> dict[str, Any]:
        """The info of a stored version whose bytes are intact; raises TownletError otherwise."""

    def remove(self, versions: Iterable[int]) -> None:
        """Remove these versions."""
