"""A service at rest: what the commands that inspect, replay, check and copy a service read, from either storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from townlet.decide.events import Event
from townlet.decide.recovery import ReplayedVersion, replay
from townlet.decide.storage.serving_log import ServingChange
from townlet.errors import TownletError
from townlet.interfaces.state import State
from townlet.runs.verify import IntegrityReport

URL_SCHEMES = ("postgresql://", "postgres://")


class StoredService(Protocol):
    """A service in a folder or a database, for reading. It may be running."""

    def events(self, after: int = 0) -> Iterator[Event]:
        """All events after a record."""

    def load_version(self, version: int) -> tuple[State, dict[str, Any]]:
        """State and info of a stored version; every byte is checked."""

    def changes(self) -> Sequence[ServingChange]:
        """The last changes of what serves, oldest first."""

    def overview(self) -> dict[str, Any]:
        """What serves, the last changes, and all stored versions, as JSON."""

    def verify(self) -> IntegrityReport:
        """Check everything that is stored."""

    def close(self) -> None:
        """Release connections."""


def is_url(where: str | Path) -> bool:
    """Whether a place is a database; otherwise it is a folder."""
    return str(where).startswith(URL_SCHEMES)


def open_stored(where: str | Path) -> StoredService:
    """Open the service in a folder, or in the database with this URL."""
    if is_url(where):
        from townlet.decide.storage.postgres.service_database import ServiceDatabase  # needs an extra

        return ServiceDatabase(str(where))
    if "://" in str(where):
        raise TownletError(f"{where} is not a URL of PostgreSQL", "write postgresql://user@host/database")
    from townlet.decide.storage.service_folder import ServiceFolder

    return ServiceFolder(Path(where))


def replay_stored(stored: StoredService) -> Iterator[ReplayedVersion]:
    """Train again from the stored events; yields each version as it is published."""

    def load(version: int) -> State:
        loaded: State = stored.load_version(version)[0]["trainer"]
        return loaded

    yield from replay(stored, load)


def replay_folder(folder: Path) -> Iterator[ReplayedVersion]:
    """As `replay_stored`, for a folder."""
    yield from replay_stored(open_stored(folder))
