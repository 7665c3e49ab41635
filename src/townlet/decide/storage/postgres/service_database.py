"""The database of a service, for reading. Each command reads in one transaction, which may run beside the service."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from psycopg import Connection

from townlet.decide.events import Event
from townlet.decide.storage.postgres.database import SERVING_LOCK, Database, require_tables, without_password
from townlet.decide.storage.postgres.event_table import EventTable, is_moved
from townlet.decide.storage.postgres.verify import verify
from townlet.decide.storage.postgres.versions import VersionTable
from townlet.decide.storage.serving_log import ServingChange, serving_summary
from townlet.decide.storage.snapshots import Snapshot, is_usable
from townlet.errors import TownletError
from townlet.interfaces.state import State
from townlet.runs.packing import unpack
from townlet.runs.verify import IntegrityReport

READ_ONLY: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


class ServiceDatabase:
    """A service in a database."""

    def __init__(self, url: str) -> None:
        self.database = Database(url, "reader")
        try:
            with self.database.transaction() as connection:
                require_tables(connection, url)
                row = connection.execute("SELECT id FROM service").fetchone()
                # No process has served a database since it was moved, so all events are complete.
                self._moved = is_moved(connection)
            if row is None:
                what = f"{without_password(url)} holds no decisions"
                raise TownletError(what, "name the database of a service with --storage")
        except TownletError:
            self.close()
            raise
        self.log_id = str(row[0])

    @contextmanager
    def reading(self) -> Iterator[Connection[Any]]:
        """A transaction that sees one state of the service; nothing can be written in it."""
        with self.database.transaction() as connection:
            connection.execute(READ_ONLY)
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield connection

    def events(self, after: int = 0) -> Iterator[Event]:
        """All events after a record."""
        return EventTable(self.database, visible=self._moved).events(after)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep the processes of the service out."""
        with self.reading() as connection:
            if connection.execute("SELECT pg_try_advisory_xact_lock(%s)", [SERVING_LOCK]).fetchone() != (True,):
                sql = "SELECT role, id FROM process WHERE seen > now() - interval '10 seconds' AND id <> 'learner'"
                listed = ", ".join(f"{role} {id}" for role, id in connection.execute(sql))
                what = f"{without_password(self.database.url)} is being served" + (f" by {listed}" if listed else "")
                raise TownletError(what, "stop all processes of the service first")
            yield

    def records(self) -> Iterator[tuple[int, bytes]]:
        """All stored records, with their numbers."""
        return EventTable(self.database, visible=True).records()

    def base(self) -> Snapshot | None:
        """The snapshot where replay starts if earlier events have been removed; None if none have been."""
        base = EventTable(self.database).base()
        if not base:
            return None
        for snapshot in self.snapshots():
            return snapshot
        what = f"events up to record {base} have been removed, but no intact snapshot covers them"
        raise TownletError(what, "restore a backup of the database")

    def snapshots(self) -> Iterator[Snapshot]:
        """All snapshots that can be used, oldest first."""
        with self.database.transaction() as connection:
            rows = connection.execute("SELECT record, info FROM snapshot ORDER BY record").fetchall()
        for record, info in rows:
            with self.database.transaction() as connection:
                found = connection.execute("SELECT state FROM snapshot WHERE record = %s", [record], binary=True)
                row = found.fetchone()
            if row is not None and is_usable(json.loads(info), self.log_id):
                with suppress(TownletError):  # a damaged one is not needed
                    yield Snapshot(record, unpack(row[0], f"the snapshot of record {record}"), json.loads(info))

    def versions(self) -> list[int]:
        """All stored versions, oldest first."""
        return VersionTable(self.database).numbers()

    def load_version(self, version: int) -> tuple[State, dict[str, Any]]:
        """State and info of a stored version; every byte is checked."""
        return VersionTable(self.database).load(version)

    def changes(self) -> Sequence[ServingChange]:
        """The last changes of what serves, oldest first."""
        return VersionTable(self.database).history.changes

    def overview(self) -> dict[str, Any]:
        """What serves, the last changes, and all stored versions, as JSON."""
        with self.reading() as connection:
            history = VersionTable(self.database).history
            rows = connection.execute("SELECT info FROM version ORDER BY number").fetchall()
        summary = serving_summary(history.changes, history.fault)
        return summary | {"versions": [json.loads(info) for (info,) in rows], "damaged": {}}

    def verify(self) -> IntegrityReport:
        """Check everything that is stored."""
        with self.reading() as connection:
            return verify(self.database, connection, self.log_id, self.base)

    def close(self) -> None:
        """Close the connection."""
        self.database.close()
