"""The folder of a service, for reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from townlet.decide.events import Event
from townlet.decide.recovery import LogFolder, first_start
from townlet.decide.storage import LOG, VERSIONS
from townlet.decide.storage.serving_log import SERVING_LOG, ServingChange, read_serving_log, read_versions
from townlet.decide.storage.verify import verify
from townlet.errors import TownletError
from townlet.interfaces.state import State
from townlet.runs import checkpoint
from townlet.runs.verify import IntegrityReport


class ServiceFolder:
    """A service in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def events(self, after: int = 0) -> Iterator[Event]:
        """All events after a record."""
        if not (self.folder / LOG).is_dir() or first_start(self.folder / LOG) is None:
            raise TownletError(f"{self.folder} has no decision log", "name the folder of a service with --folder")
        return LogFolder(self.folder / LOG).events(after)

    def load_version(self, version: int) -> tuple[State, dict[str, Any]]:
        """State and info of a stored version; every byte is checked."""
        return checkpoint.load(self.folder / VERSIONS / checkpoint.folder_name(version))

    def changes(self) -> Sequence[ServingChange]:
        """The last changes of what serves, oldest first."""
        return read_serving_log(self.folder / VERSIONS / SERVING_LOG).changes

    def overview(self) -> dict[str, Any]:
        """What serves, the last changes, and all stored versions, as JSON."""
        return read_versions(self.folder / VERSIONS)

    def verify(self) -> IntegrityReport:
        """Check everything that is stored."""
        return verify(self.folder)

    def close(self) -> None:
        """Nothing is open."""
