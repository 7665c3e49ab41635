"""Versions and serving changes in tables. Writes of a learner carry the epoch of its leadership."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from psycopg import Connection

from townlet.decide import events
from townlet.decide.storage.postgres.database import Database, without_password
from townlet.decide.storage.retention import needed_versions
from townlet.decide.storage.serving_log import KEPT_CHANGES, NOTHING_SERVES, ServingChange
from townlet.errors import SourceLocation, TownletError
from townlet.interfaces.state import State
from townlet.runs.packing import pack, unpack


class LeadershipLost(TownletError):
    """Another process leads: this one may no longer write as the learner."""

    def __init__(self) -> None:
        super().__init__("another process is the learner now", "nothing needs to be done: this one waits as a standby")


def require_epoch(connection: Connection[Any], epoch: int | None) -> None:
    """In a transaction of the learner: no other process becomes the leader before it ends."""
    if epoch is None:
        return
    if connection.execute("SELECT 1 FROM leader WHERE epoch = %s FOR SHARE", [epoch]).fetchone() is None:
        raise LeadershipLost


class ServingTable:
    """All changes of what serves; several processes may append."""

    keeps_unstored = False

    def __init__(self, database: Database, epoch: int | None = None) -> None:
        self._database, self._epoch = database, epoch
        self.changes: tuple[ServingChange, ...] = ()
        self.fault = ""
        self.refresh()

    @property
    def number(self) -> int:
        return self.last.number

    @property
    def last(self) -> ServingChange:
        """The change that holds the current state."""
        return self.changes[-1] if self.changes else NOTHING_SERVES

    def refresh(self) -> None:
        """Read the changes of other processes."""
        with self._database.transaction() as connection:
            sql = "SELECT body FROM serving_change WHERE number > %s ORDER BY number DESC LIMIT %s"
            rows = connection.execute(sql, [self.number, KEPT_CHANGES]).fetchall()
        new = tuple(ServingChange.model_validate_json(body) for (body,) in reversed(rows))
        self.changes = (*self.changes, *new)[-KEPT_CHANGES:]
        self.fault = self.last.fault

    def append(self, make_change: Callable[[], ServingChange]) -> ServingChange:
        """Store a change as the next one, with its event. Other processes wait until it is stored."""
        with self._database.transaction() as connection:
            connection.execute("LOCK TABLE serving_change IN SHARE ROW EXCLUSIVE MODE")
            self.refresh()
            change = make_change().model_copy(update={"number": self.number + 1})
            require_epoch(connection, self._epoch)
            sql = "INSERT INTO serving_change (number, body) VALUES (%s, %s)"
            connection.execute(sql, [change.number, change.model_dump_json()])
            if change.applied:
                serving = events.ServingChanged(
                    change.serving or 0, f"{change.kind}: {change.reason}", change.at, change.number,
                    change.gate_only, change.pinned,
                )  # fmt: skip
                connection.execute("INSERT INTO event (body) VALUES (%s)", [events.encode(serving).decode()])
        self.changes = (*self.changes, change)[-KEPT_CHANGES:]
        return change

    def distrust(self, fault: str, number: int) -> None:
        """Stop trusting the changes."""
        self.fault = self.fault or fault


class VersionTable:
    """Versions as rows: info as JSON, and weights with the trainer's state as bytes."""

    def __init__(self, database: Database, epoch: int | None = None) -> None:
        self._database, self._epoch = database, epoch
        self.history = ServingTable(database, epoch)

    def where(self, version: int) -> Path | SourceLocation:
        return SourceLocation(without_password(self._database.url))

    def numbers(self) -> list[int]:
        with self._database.transaction() as connection:
            return [number for (number,) in connection.execute("SELECT number FROM version ORDER BY number")]

    def needed_for_replay(self) -> set[int]:
        with self._database.transaction() as connection:
            infos = connection.execute("SELECT info FROM snapshot").fetchall()
        return needed_versions([json.loads(info) for (info,) in infos])

    def save(self, version: int, state: State, info: Mapping[str, Any]) -> dict[str, Any]:
        text, data = json.dumps(dict(info), allow_nan=False), pack(state)
        with self._database.transaction() as connection:
            require_epoch(connection, self._epoch)
            connection.execute("INSERT INTO version (number, info, state) VALUES (%s, %s, %s)", [version, text, data])
        stored: dict[str, Any] = json.loads(text)
        return stored

    def load(self, version: int) -> tuple[State, dict[str, Any]]:
        with self._database.transaction() as connection:
            sql = "SELECT state, info FROM version WHERE number = %s"
            row = connection.execute(sql, [version], binary=True).fetchone()
        if row is None:
            raise TownletError(
                f"there is no version {version}", "it may have been removed just now", self.where(version)
            )
        return unpack(row[0], f"version {version}"), json.loads(row[1])

    def verify(self, version: int) -> dict[str, Any]:
        return self.load(version)[1]

    def remove(self, versions: Iterable[int]) -> None:
        if not (numbers := list(versions)):
            return
        with self._database.transaction() as connection:
            require_epoch(connection, self._epoch)
            connection.execute("DELETE FROM version WHERE number = ANY(%s)", [numbers])
