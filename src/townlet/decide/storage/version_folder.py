"""Versions as checkpoints in a folder, one per version, beside the serving log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from townlet.decide.storage.serving_log import SERVING_LOG, ServingLog
from townlet.interfaces.state import State
from townlet.runs import checkpoint, disk


class VersionFolder:
    """The versions and the serving log in a folder, for its only writer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with disk.os_errors(f"cannot open the versions in {folder}"):
            disk.make_folder(folder)
            checkpoint.remove_leftovers(folder)
        self.needed: set[int] = set()  # versions to which a replay may go back
        self.history = ServingLog(folder / SERVING_LOG)

    def where(self, version: int) -> Path:
        """The place of a version, for messages."""
        return self.folder / checkpoint.folder_name(version)

    def numbers(self) -> list[int]:
        """All stored versions, oldest first."""
        return [checkpoint.step_and_serial(path)[0] for path in checkpoint.paths(self.folder)]

    def needed_for_replay(self) -> set[int]:
        """The versions to which a replay from a kept snapshot may go back."""
        return self.needed

    def save(self, version: int, state: State, info: Mapping[str, Any]) -> dict[str, Any]:
        """Store a version durably; returns its info."""
        return checkpoint.save(self.folder, checkpoint.folder_name(version), state, info).info

    def load(self, version: int) -> tuple[State, dict[str, Any]]:
        """State and info of a stored version; every byte is checked."""
        return checkpoint.load(self.where(version))

    def verify(self, version: int) -> dict[str, Any]:
        """The info of a stored version whose bytes are intact; raises TownletError otherwise."""
        return checkpoint.verify(self.where(version)).info

    def remove(self, versions: Iterable[int]) -> None:
        """Remove these versions."""
        checkpoint.remove(self.folder, [checkpoint.folder_name(version) for version in versions])
