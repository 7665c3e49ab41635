"""A service at rest: what the commands that inspect, replay, check and copy a service read, from either storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from townlet.decide.events import Event
from townlet.decide.recovery import ReplayedVersion, begin, replay
from townlet.decide.state import ServiceState
from townlet.decide.storage import URL_SCHEMES
from townlet.decide.storage.serving_log import ServingChange
from townlet.decide.storage.snapshots import Snapshot
from townlet.errors import TownletError
from townlet.interfaces.state import State, get_part
from townlet.runs import disk
from townlet.runs.verify import IntegrityReport

CHUNK: Final = 5000  # records of a copy that are written together


class CopySummary(NamedTuple):
    """Contents of a copy."""

    records: int  # number of the last one
    versions: int
    snapshots: int


class StoredService(Protocol):
    """A service in a folder or a database, for reading. It may be running."""

    def events(self, after: int = 0) -> Iterator[Event]:
        """All events after a record."""

    @property
    def log_id(self) -> str:
        """Identifies the log."""

    def exclusive(self) -> AbstractContextManager[object]:
        """No process serves it inside the block; raises TownletError if one does, or if records are missing."""

    def records(self) -> Iterator[tuple[int, bytes]]:
        """All stored records, with their numbers."""

    def base(self) -> Snapshot | None:
        """The snapshot where replay starts if earlier records have been removed; None if none have been."""

    def snapshots(self) -> Iterator[Snapshot]:
        """All snapshots that can be used, oldest first."""

    def versions(self) -> list[int]:
        """All stored versions, oldest first."""

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
    if "://" in str(where):  # not shown: it may contain a password
        raise TownletError("this is not a URL of PostgreSQL", "write postgresql://user@host/database")
    from townlet.decide.storage.service_folder import ServiceFolder

    disk.refuse_links(Path(where))
    return ServiceFolder(Path(where))


def last_state(stored: StoredService) -> ServiceState:
    """The state of a service after its last record."""
    newest = max(stored.snapshots(), key=lambda snapshot: snapshot.record, default=None)
    state = begin(stored, newest)
    after = newest.record if newest else 0
    for record, event in enumerate(stored.events(after), after + 1):
        state.apply_stored(event, record)
    return state


def replay_stored(stored: StoredService) -> Iterator[ReplayedVersion]:
    """Train again from the stored events; yields each version as it is published."""

    def load(version: int) -> State:
        loaded: State = get_part(stored.load_version(version)[0], "trainer", "version")
        return loaded

    yield from replay(stored, load, stored.base())
