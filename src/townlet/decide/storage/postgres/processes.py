"""The processes of a service: each reports itself every second, adopts new versions, and reads what others report."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from psycopg import Connection

from townlet.decide.clock import ServiceClock
from townlet.decide.service_loop import ServiceLoop
from townlet.decide.storage import StorageNotice
from townlet.decide.storage.postgres.database import Database, synchronize
from townlet.decide.storage.postgres.event_table import Position
from townlet.decide.storage.versions import VersionStore
from townlet.runs.provenance import differences

POLL_SECONDS: Final = 0.25  # between two checks for another serving version
REPORT_SECONDS: Final = 1.0
RUNNING_SECONDS: Final = 5.0  # after which a process that reports nothing may have ended
FORGET_SECONDS: Final = 60  # after which a process that reports nothing is no longer listed
LEARNER: Final = "learner"  # id of the row with the report of the leading learner

REPORT: Final = """
    INSERT INTO process (id, role, host, status, settings) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (id) DO UPDATE SET role = excluded.role, host = excluded.host, status = excluded.status, seen = now()"""
READ: Final = """
    SELECT id, role, host, extract(epoch FROM now() - seen)::float8, status, settings FROM process ORDER BY started"""
# Events of deciders after a position, and the age of the oldest of them.
LAG: Final = """
    SELECT count(*), 1000 * coalesce(extract(epoch FROM clock_timestamp() - min(at)), 0)::float8 FROM event
    WHERE after_id IS NULL AND (transaction, id) > (%s, %s)"""
FORGET: Final = f"DELETE FROM process WHERE seen < now() - interval '{FORGET_SECONDS} seconds' AND id <> '{LEARNER}'"


class ProcessReports:
    """A thread that reports this process and reads the reports of all; nothing else waits for it."""

    def __init__(
        self, url: str, id: str, role: str, versions: VersionStore, clock: ServiceClock, settings: str
    ) -> None:
        """`settings`: those of this process, as JSON."""
        self._database, self._versions, self.id, self.role = Database(url, "processes"), versions, id, role
        self._clock, self._settings = clock, settings
        self.status: Callable[[], Mapping[str, Any]] = dict  # what this process reports
        self.learner_status: Callable[[], Mapping[str, Any] | None] = lambda: None  # the same as the leading learner
        self.learner_position: Callable[[], Position | None] = lambda: None  # the last event applied, while it leads
        self._serving: int | None = None  # the version that served at the last check
        self._adoption_ms: float | None = None  # from the last change of the serving version until it served here
        self.processes: list[dict[str, Any]] = []  # all processes, the oldest first
        self.notices: list[StorageNotice] = []  # processes with other settings
        self.learner: dict[str, Any] = {}  # the last report of a leading learner
        self.learner_age: float | None = None  # seconds since that report; None: there was none
        self.refreshed = time.monotonic()  # when what serves was last read
        self._due = time.monotonic()
        self.loop = ServiceLoop("processes", self._poll, POLL_SECONDS)

    def start(self) -> None:
        self.loop.start()

    def stop(self) -> None:
        self.loop.stop()
        self._database.close()

    def _poll(self) -> None:
        self._refresh()
        if time.monotonic() >= self._due:
            self._exchange()
            self._due = time.monotonic() + REPORT_SECONDS

    def _refresh(self) -> None:
        self._versions.refresh()
        self.refreshed = time.monotonic()
        serving = self._versions.serving.version if self._versions.serving else 0
        if self._serving not in (None, serving):
            at = next((change.at for change in reversed(self._versions.history) if change.applied), None)
            self._adoption_ms = None if at is None else max(0.0, 1000 * (self._clock() - at))
        self._serving = serving

    def _lag(self, connection: Connection[Any]) -> dict[str, float | None]:
        """How far this process is behind: the learner in events, the others in adopting a version."""
        if (position := self.learner_position()) is None:
            return {"lag_events": None, "lag_ms": self._adoption_ms}
        events, age = connection.execute(LAG, position).fetchone() or (0, 0.0)
        return {"lag_events": events, "lag_ms": age}

    def _exchange(self) -> None:
        host = f"{socket.gethostname()}"
        status, learner = self.status(), self.learner_status()
        with self._database.transaction() as connection:
            synchronize(self._clock, connection)
            own = json.dumps({**status, **self._lag(connection)})
            connection.execute(REPORT, [self.id, self.role, host, own, self._settings])
            if learner is not None:
                connection.execute(REPORT, [LEARNER, "learn", host, json.dumps(learner), self._settings])
            connection.execute(FORGET)
            rows = connection.execute(READ).fetchall()
        listed, notices = [], []
        for id, role, host, age, status, settings in rows:
            if id == LEARNER:
                self.learner, self.learner_age = json.loads(status), age
            else:
                listed.append({"id": id, "role": role, "host": host, "seen_seconds_ago": age, **json.loads(status)})
                if age < RUNNING_SECONDS and settings not in ("", self._settings):
                    notices.append(_other_settings(f"{id} ({role})", json.loads(self._settings), json.loads(settings)))
        self.processes, self.notices = listed, notices


def _other_settings(process: str, own: Mapping[str, Any], other: Mapping[str, Any]) -> StorageNotice:
    """A notice about a process that was started with other settings."""
    listed = ", ".join(f"{name} is {there}, here {here}" for name, here, there in differences(own, other))
    what = f"Process {process} has other settings: {listed}"
    return StorageNotice("settings", what, "Start all processes with the same settings.", critical=False)
