"""The learner of a service in PostgreSQL: applies the events of all deciders, trains, and publishes versions."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from psycopg import Connection

from townlet.decide import events
from townlet.decide.clock import PAUSE, ServiceClock, log_pause
from townlet.decide.domain import Domain, Observation
from townlet.decide.join import EXPIRED
from townlet.decide.recovery import read_start, recover
from townlet.decide.settings import DecideSettings, settings_hash
from townlet.decide.state import ServiceState
from townlet.decide.storage import snapshots
from townlet.decide.storage.availability import StorageUnavailable
from townlet.decide.storage.postgres.database import NOW, Database
from townlet.decide.storage.postgres.event_table import EventTable, Position
from townlet.decide.storage.postgres.processes import LEARNER
from townlet.decide.storage.postgres.reports import LOCK_TERRITORIES
from townlet.decide.storage.postgres.retention import remove_old_rows, set_base
from townlet.decide.storage.postgres.rows import lock_key
from townlet.decide.storage.postgres.versions import VersionTable, require_epoch
from townlet.decide.storage.snapshots import SNAPSHOT_SCHEMA, Snapshot
from townlet.decide.storage.versions import VersionStore
from townlet.decide.territories import max_pending
from townlet.decide.trainer import Trainer
from townlet.errors import TownletError
from townlet.rng import Streams
from townlet.runs.packing import pack, unpack

MAX_EXPIRED: Final = 10_000  # decisions in one event
KEPT_SNAPSHOTS: Final = 2

EXPIRE: Final = f"""
    UPDATE decision SET status = {EXPIRED}, observation = NULL WHERE number IN (
        SELECT number FROM decision WHERE status = 0 AND (at < %s OR number = ANY(%s))
        ORDER BY at LIMIT {MAX_EXPIRED} FOR UPDATE SKIP LOCKED)
    RETURNING number"""
SILENT: Final = f"SELECT {NOW} - extract(epoch FROM seen)::float8 FROM process WHERE id = '{LEARNER}'"
DELAY: Final = """
    UPDATE decision SET at = at + %s WHERE number IN (
        SELECT number FROM decision WHERE status = 0 AND at <= %s FOR UPDATE SKIP LOCKED)"""
REMOVE_SNAPSHOTS: Final = f"""
    DELETE FROM snapshot
    WHERE record NOT IN (SELECT record FROM snapshot ORDER BY record DESC LIMIT {KEPT_SNAPSHOTS})"""
INSERT_SNAPSHOT: Final = """
    INSERT INTO snapshot (record, transaction, id, same, info, state) VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (record) DO NOTHING"""
OLDEST_PENDING: Final = "SELECT number FROM decision WHERE status = 0 ORDER BY at OFFSET %s"


class PostgresLearner:
    """The state, trainer and versions of the leading learner; every write carries the epoch of its leadership."""

    def __init__(self, url: str, domain: Domain, settings: DecideSettings, clock: ServiceClock, epoch: int) -> None:
        self.domain, self.settings, self.clock, self.epoch = domain, settings, clock, epoch
        self.gate_hash = settings_hash(settings.gate)
        self.lock = threading.RLock()
        self._database = Database(url, "learner")
        self._problem: str | None = None
        self.broken = False  # whether a write failed, so that state and trainer may differ from the stored events
        self.state = ServiceState(domain, settings)
        self._table = EventTable(self._database)
        with self._database.transaction() as connection:
            require_epoch(connection, epoch)
            (log_id,) = connection.execute("SELECT id FROM service").fetchone() or ("",)
            (silent,) = connection.execute(SILENT).fetchone() or (0.0,)
        self._log_id = str(log_id)
        # The clock's offset when pending decisions were last checked, as if the former learner had used this clock.
        self._checked = clock.offset - silent
        if not self._table.base():
            with events.stored_values("record 1 of the log"):
                self.state.configure(read_start(self._table))
        self.trainer = Trainer(domain, self.state)
        template = domain.policies[settings.policy].build(Streams(0).torch("empty"), settings.options)
        archive = VersionTable(self._database, epoch)
        self.versions = VersionStore(archive, template, settings.versions, clock, log_id=self._log_id)
        recover(self._table, self._newest_snapshot(), self.state, self.trainer, self.versions)

    def _newest_snapshot(self) -> Snapshot | None:
        with self._database.transaction() as connection:
            sql = "SELECT record, info, state FROM snapshot ORDER BY record DESC"
            rows = connection.execute(sql, binary=True).fetchall()
        for record, info, state in rows:
            if json.loads(info).get("schema") == SNAPSHOT_SCHEMA:
                with suppress(TownletError):  # if it is damaged, an older one or all events are used
                    return Snapshot(record, unpack(state, f"the snapshot of record {record}"), json.loads(info))
        return None

    @property
    def problem(self) -> str | None:
        """Why nothing can be learned at the moment."""
        return "the learner starts again from the stored events" if self.broken else self._problem

    @property
    def record(self) -> int:
        """The last event that was applied."""
        return self._table.record

    @property
    def position(self) -> Position:
        """The place of the last event that was applied."""
        return self._table.position

    def catch_up(self) -> None:
        """Apply what operators and deciders have stored, expire decisions, and evict territories."""
        self.versions.refresh()
        self._apply_tail()
        now, memory = self.clock(), self.settings.memory
        with self._database.transaction() as connection:
            require_epoch(connection, self.epoch)
            self._skip_pause(connection, now)
            surplus = connection.execute(OLDEST_PENDING, [max_pending(self.domain, memory)]).fetchall()
            expired = connection.execute(EXPIRE, [now - memory.expire_after, [n for (n,) in surplus]]).fetchall()
            if expired:
                event = events.DecisionsExpired(now, sorted(number for (number,) in expired))
                connection.execute("INSERT INTO event (body) VALUES (%s)", [events.encode(event).decode()])
        self._checked = self.clock.offset
        if names := self.state.surplus_territories:
            with self._database.transaction() as connection:
                connection.execute(LOCK_TERRITORIES, [sorted(map(lock_key, names))])
                require_epoch(connection, self.epoch)
                connection.execute("DELETE FROM territory WHERE name = ANY(%s)", [names])
                evicted = events.encode(events.TerritoriesEvicted(names)).decode()
                connection.execute("INSERT INTO event (body) VALUES (%s)", [evicted])
        self._apply_tail()

    def _skip_pause(self, connection: Connection[Any], now: float) -> None:
        """Let decisions wait longer by the time without a learner, or by which the clock of the server was changed."""
        pause = self.clock.offset - self._checked
        # Decisions may have been made after the last report of the former learner, in less time than PAUSE.
        if pause > PAUSE and connection.execute(DELAY, [pause, now - pause + PAUSE]).rowcount:
            log_pause(pause)

    def _apply_tail(self) -> None:
        try:
            for event in self._table.tail():
                with self.lock:
                    self.state.apply_stored(event, self.record)
            self._problem = None
        except StorageUnavailable as error:
            self._problem = error.diagnostics[0].what
            raise

    def write(self, event: events.Event, observation: Observation | None = None) -> int:
        """Store an event of the learner, and apply it."""
        sql = "INSERT INTO event (after_transaction, after_id, body) VALUES (%s, %s, %s)"
        try:
            with self._database.transaction() as connection:
                require_epoch(connection, self.epoch)
                connection.execute(sql, [*self._table.position, events.encode(event).decode()])
        except BaseException:
            self.broken = True
            raise
        with self.lock:
            self._table.count_own()
            self.state.apply(event, observation)
        return self._table.record

    def recent_events(self, count: int) -> Iterable[events.Event]:
        """The last events, oldest first."""
        with self._database.transaction() as connection:
            sql = "SELECT body FROM event ORDER BY transaction DESC, id DESC LIMIT %s"
            rows = connection.execute(sql, [count]).fetchall()
        return [events.decode(body.encode()) for (body,) in reversed(rows)]

    def await_durable(self) -> int:
        """Everything is durable; returns the last record."""
        return self.record

    def version_info(self) -> dict[str, Any]:
        """The log to which a version belongs."""
        return {"log": self._log_id}

    def save_snapshot(self) -> None:
        """Save a snapshot, so that the next leader starts fast. The trainer must be idle."""
        with self.lock:
            place = [*self._table.position, self._table.same]
            taken = snapshots.take(self, self._log_id)
        values = [taken.info["record"], *place, json.dumps(taken.info), pack(taken.state())]
        with self._database.transaction() as connection:
            require_epoch(connection, self.epoch)
            connection.execute(INSERT_SNAPSHOT, values)
            if self.settings.keep is None and not self._table.base():
                connection.execute(REMOVE_SNAPSHOTS)
            else:
                set_base(connection, self.settings.keep, self.clock())
        remove_old_rows(self._database, self.epoch)

    def close(self) -> None:
        self._database.close()
