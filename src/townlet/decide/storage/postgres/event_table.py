"""The events in their order, from the table to which all processes append.

Events of deciders are ordered by transaction and id. They are read only up to the oldest transaction in progress, so
that no event can appear later before one that has been read. An event of the learner follows the last event that the
learner had applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from psycopg import Connection

from townlet.decide.events import Event, decode
from townlet.decide.storage.postgres.database import Database
from townlet.errors import TownletError

CHUNK: Final = 1000  # events per round trip

COMPLETE: Final = """
    transaction < pg_snapshot_xmin(pg_current_snapshot())::text::bigint + (SELECT transaction_offset FROM service)"""
# Whether there are events of transactions that this server has not numbered yet: a dump of another one was restored.
MOVED: Final = """
    SELECT (SELECT max(transaction) FROM event)
        >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint + transaction_offset
    FROM service"""
CONTINUE: Final = """
    UPDATE service SET transaction_offset = (SELECT max(transaction) FROM event) RETURNING transaction_offset"""
READ_ALL: Final = f"""
    SELECT coalesce(after_transaction, transaction), coalesce(after_id, id), body FROM event
    WHERE (after_id IS NOT NULL OR {COMPLETE})
      AND (coalesce(after_transaction, transaction), coalesce(after_id, id)) >= (%s, %s)
    ORDER BY 1, 2, after_id IS NOT NULL, id"""
READ_TAIL: Final = f"""
    SELECT transaction, id, body FROM event
    WHERE after_id IS NULL AND (transaction, id) > (%s, %s) AND {COMPLETE}
    ORDER BY transaction, id LIMIT {CHUNK}"""


class Position(NamedTuple):
    """The place of an event of a decider."""

    transaction: int = 0
    id: int = 0


class EventTable:
    """The events of a service, in a database."""

    def __init__(self, database: Database, *, visible: bool = False) -> None:
        """`visible`: read all events that the transaction sees, of which others may later precede some."""
        self._database = database
        self._read_all = READ_ALL.replace(COMPLETE, "true") if visible else READ_ALL
        self.position = Position()  # of the last event of a decider that was read
        self.same = 0  # events that were read and have this position: that one, and those of the learner after it
        self.record = 0  # events that were read

    def events(self, after: int = 0) -> Iterator[Event]:
        """All events after a record of which there is a snapshot, or all events."""
        if not after and (base := self.base()):
            what = f"events up to record {base} have been removed, but no intact snapshot covers them"
            raise TownletError(what, "restore a backup of the database")
        return (decode(body, number) for number, body in self.records(after))

    def base(self) -> int:
        """Events up to this record have been removed; 0: none have been."""
        with self._database.transaction() as connection:
            row = connection.execute("SELECT base FROM service").fetchone()
        return row[0] if row else 0

    def records(self, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """As `events`, from the first one that is kept: the number of each, and the event as it is stored."""
        base = 0 if after else self.base()
        with self._database.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = 0")  # the first rows come after all were sorted
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")  # the caller may train meanwhile
            start, skipped = _place(connection, after or base)
            self.position, self.same, self.record = Position(), 0, (after or base) - skipped
            with connection.cursor("events") as cursor:
                cursor.itersize = CHUNK
                for transaction, id, body in cursor.execute(self._read_all, start):
                    self._count(Position(transaction, id))
                    if self.record > after:
                        yield self.record, body.encode()

    def tail(self) -> Iterator[Event]:
        """The events of deciders after the last one that was read."""
        while True:
            with self._database.transaction() as connection:
                rows = connection.execute(READ_TAIL, self.position).fetchall()
            for transaction, id, body in rows:
                self._count(Position(transaction, id))
                yield decode(body.encode(), self.record)
            if len(rows) < CHUNK:
                return

    def _count(self, position: Position) -> None:
        self.same = self.same + 1 if position == self.position else 1
        self.position = position
        self.record += 1

    def count_own(self) -> None:
        """Count an event that the learner has written after the last one that was read."""
        self._count(self.position)


def is_moved(connection: Connection[Any]) -> bool:
    """Whether the events were moved to a server that would number the next ones like earlier ones."""
    return connection.execute(MOVED).fetchone() == (True,)


def continue_transactions(connection: Connection[Any]) -> None:
    """Number transactions from the last one of the events on, after they were moved to another server."""
    if is_moved(connection):
        (offset,) = connection.execute(CONTINUE).fetchone() or (0,)
        number = f"pg_current_xact_id()::text::bigint + {int(offset)}"
        connection.execute(f"ALTER TABLE event ALTER COLUMN transaction SET DEFAULT ({number})")


def _place(connection: Connection[Any], record: int) -> tuple[Position, int]:
    """Where reading begins, and how many events from there on are not after the record."""
    if not record:
        return Position(), 0
    row = connection.execute("SELECT transaction, id, same FROM snapshot WHERE record = %s", [record]).fetchone()
    if row is None:
        raise ValueError(f"there is no snapshot of record {record}")
    return Position(row[0], row[1]), row[2]
