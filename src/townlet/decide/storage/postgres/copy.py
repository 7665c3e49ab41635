"""Copy of a service into an empty database, in one transaction: a copy that is interrupted leaves it empty."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final

from psycopg import Connection
from pydantic_core import to_json

from townlet.decide.events import DecisionMade, decode
from townlet.decide.storage.postgres.database import Database, migrate, without_password
from townlet.decide.storage.postgres.rows import observation_format, territory_format
from townlet.decide.storage.postgres.service_row import create_service
from townlet.decide.storage.stored_service import CHUNK, CopySummary, StoredService, last_state
from townlet.errors import TownletError
from townlet.runs.packing import pack

DECISION: Final = b'["decisionmade",'  # with which the record of a decision begins
COPY_EVENTS: Final = "COPY event (body) FROM STDIN"
COPY_DECISIONS: Final = """
    COPY decision (number, territory, game_time, at, client, action, status, digest, reply, inactive, observation)
    FROM STDIN"""
COPY_TERRITORIES: Final = "COPY territory (name, state, game_time, at, client) FROM STDIN"
INSERT_SNAPSHOT: Final = """
    INSERT INTO snapshot (record, transaction, id, same, info, state) VALUES (%s, %s, %s, %s, %s, %s)"""
# A snapshot of records before all that are stored has a place before the first one.
PLACE: Final = """
    SELECT coalesce(max(transaction), 0), coalesce(max(id), 0), count(*)
    FROM (SELECT transaction, id FROM event ORDER BY id LIMIT 1 OFFSET %s) AS found"""


def copy_to_database(stored: StoredService, url: str) -> CopySummary:
    """Copy everything that is stored, and the tables that follow from it."""
    with closing(Database(url, "copy", serving=True)) as database:
        migrate(database)
        with database.transaction() as connection:
            connection.execute("LOCK TABLE service IN EXCLUSIVE MODE")
            if connection.execute("SELECT 1 FROM service").fetchone() is not None:
                where = without_password(url)
                raise TownletError(f"{where} holds a service already", "name an empty database for the copy")
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            return _Copy(connection, stored).run()


class _Copy:
    """One copy, in a transaction."""

    def __init__(self, connection: Connection[Any], stored: StoredService) -> None:
        self._connection, self._stored, self._state = connection, stored, last_state(stored)
        self._written: Counter[int] = Counter()  # decisions with a row, by status

    def run(self) -> CopySummary:
        state, connection = self._state, self._connection
        oldest, last = self._copy_records()
        self._copy_kept_decisions(oldest)
        self._copy_territories()
        snapshots = self._copy_snapshots(oldest)
        versions = self._copy_versions()
        if state.join.last:
            connection.execute("SELECT setval('decision_number', %s)", [state.join.last])
        create_service(connection, self._stored.log_id, state.settings)
        if (base := self._stored.base()) is not None:
            connection.execute("UPDATE service SET base = %s", [base.record])
        return CopySummary(last, versions, snapshots)

    def _copy_records(self) -> tuple[int, int]:
        """Write all records, and the decisions among them; returns the numbers of the first and the last record."""
        records, oldest, last = self._stored.records(), 0, 0
        while chunk := list(islice(records, CHUNK)):
            oldest, last = oldest or chunk[0][0], chunk[-1][0]
            with self._connection.cursor() as cursor, cursor.copy(COPY_EVENTS) as copy:
                for _, payload in chunk:
                    copy.write_row([payload.decode()])
            made = (decode(payload) for _, payload in chunk if payload.startswith(DECISION))
            self._copy_decisions(one for one in made if isinstance(one, DecisionMade))
        return oldest, last

    def _copy_decisions(self, made: Iterator[DecisionMade]) -> None:
        state, encode = self._state, observation_format(self._state.domain).encode
        with self._connection.cursor() as cursor, cursor.copy(COPY_DECISIONS) as copy:
            for one in made:
                pending = state.pending.get(one.number)
                if pending is None and state.join.is_forgotten(one.number):
                    continue  # only counted; a report about it is late
                status, row = state.join.status(one.number), pending and encode(pending.row)
                digest = 0 if pending else state.join.digest(one.number)
                inactive = one.number in state.inactive
                place = (one.number, one.territory, one.game_time, one.at, one.client, one.action)
                copy.write_row([*place, status, digest, to_json(one.reply).decode(), inactive, row])
                self._written[status] += 1

    def _copy_kept_decisions(self, oldest: int) -> None:
        """Decisions whose records have been removed, but which are pending, or the last ones of their territories."""
        if oldest == 1:
            return
        kept = {number: pending.decision for number, pending in self._state.pending.items()}
        kept |= {last.number: last for last in (one.last for one in self._state.territories.values()) if last}
        sql = "SELECT number FROM decision WHERE number = ANY(%s)"
        stored = {number for (number,) in self._connection.execute(sql, [list(kept)])}
        self._copy_decisions(kept[number] for number in sorted(kept.keys() - stored))

    def _copy_territories(self) -> None:
        encode, counts = territory_format(self._state.domain).encode, self._state.join.counts
        with self._connection.cursor() as cursor, cursor.copy(COPY_TERRITORIES) as copy:
            for name, territory in self._state.territories.items():
                if (last := territory.last) is not None:
                    copy.write_row([name, encode(territory.state), territory.time, last.at, last.client])
        everything = (counts.pending, counts.waited, counts.joined, counts.failed, counts.expired)  # by status
        removed = [(status, count - self._written[status]) for status, count in enumerate(everything)]
        sql = "INSERT INTO removed_decisions (status, count) VALUES (%s, %s)"
        with self._connection.cursor() as cursor:
            cursor.executemany(sql, [row for row in removed if row[1]])

    def _copy_snapshots(self, oldest: int) -> int:
        copied = 0
        for snapshot in self._stored.snapshots():
            place: Sequence[int] | None = (0, 0, 0)
            if snapshot.record >= oldest:
                place = self._connection.execute(PLACE, [snapshot.record - oldest]).fetchone()
            assert place is not None
            values = [snapshot.record, *place, json.dumps(dict(snapshot.info)), pack(snapshot.state)]
            self._connection.execute(INSERT_SNAPSHOT, values)
            copied += 1
        return copied

    def _copy_versions(self) -> int:
        for version in self._stored.versions():
            state, info = self._stored.load_version(version)
            sql = "INSERT INTO version (number, info, state) VALUES (%s, %s, %s)"
            self._connection.execute(sql, [version, json.dumps(info), pack(state)])
        for change in self._stored.changes():
            sql = "INSERT INTO serving_change (number, body) VALUES (%s, %s)"
            self._connection.execute(sql, [change.number, change.model_dump_json()])
        return len(self._stored.versions())
