"""A connection to PostgreSQL that is reopened after a failure, and the migrations of its tables."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import resources
from typing import Any, Final

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from townlet.decide.clock import TOLERANCE, ServiceClock
from townlet.decide.storage.availability import StorageUnavailable
from townlet.errors import TownletError

CONNECT_SECONDS: Final = 5
STATEMENT_SECONDS: Final = 30  # a longer statement counts as a failure
WAIT_SECONDS: Final = 4  # for a lock, and for a statement of the decision path: two attempts fit into its time
IDLE_SECONDS: Final = 10  # a process that stops within a transaction loses it, and the locks that it holds
# Dead peers are detected within about ten seconds.
KEEPALIVES: Final = {
    "keepalives": 1, "keepalives_idle": 3, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000,
}  # fmt: skip
NOW: Final = "extract(epoch FROM clock_timestamp())::float8"  # seconds since 1970, by the clock of the server
MIGRATION_LOCK: Final = 0x746F776E6C6574  # "townlet"
SERVING_LOCK: Final = 0x73657276696E67  # "serving": shared by all processes of a service
MIGRATION: Final = re.compile(r"(\d{3})_\w+\.sql")
# Beginnings of the SQLSTATEs of a server that cannot do its work now: connection lost (08), read-only (25), rolled back
# (40), no resources (53), locked (55), timeout or shutdown (57), system error (58), no privilege (42501).
UNAVAILABLE: Final = ("08", "25", "40", "53", "55", "57", "58", "42501")
FOREIGN_TABLES: Final = "42"  # of statements that do not fit the tables
URL: Final = re.compile(r"(?P<scheme>postgres(ql)?://)((?P<user>[^:@/]*)(:[^@/]*)?@)?(?P<place>[^@?]*)(\?[^@]*)?")


def without_password(url: str) -> str:
    """The URL for messages. Refuses one whose parts are not clear, without showing any: one may be the password."""
    found = URL.fullmatch(url)
    try:
        port = conninfo_to_dict(url).get("port", "")
    except psycopg.ProgrammingError:
        found = None
    if found is None or not re.fullmatch(r"[\d,]*", str(port)):
        fix = "write postgresql://user@host/database; in a password, write %40 for @, %2F for / and %25 for %"
        raise TownletError("this is not a URL of PostgreSQL", fix)
    user = f"{found['user']}@" if found["user"] is not None else ""
    return f"{found['scheme']}{user}{found['place']}"


class Database:
    """One connection, for one thread at a time."""

    def __init__(
        self, url: str, purpose: str, *, serving: bool = False, statement_seconds: int = STATEMENT_SECONDS
    ) -> None:
        """`serving`: while this connection is open, the service cannot be copied."""
        self.url, self._purpose, self._serving = url, purpose, serving
        self._where, self._statement_seconds = without_password(url), statement_seconds
        self._lock = threading.RLock()
        self._connection: Connection[Any] | None = None

    @contextmanager
    def transaction(self, *, pipelined: bool = False) -> Iterator[Connection[Any]]:
        """A transaction that is committed at the end of the block. Raises `StorageUnavailable` if the server fails.

        `pipelined`: begin and commit travel with other statements.
        """
        with self._lock:
            try:
                connection = self._open()
                # Inside another transaction there is no savepoint: a suspended generator may end after that one.
                begun = connection.info.transaction_status == TransactionStatus.INTRANS
                transaction = nullcontext() if begun else connection.transaction()
                with connection.pipeline() if pipelined else nullcontext(), transaction:
                    yield connection
            except psycopg.Error as error:
                # In pipeline mode, an error may be raised after the commit was sent, which leaves a failed transaction.
                self.close()
                if (described := self._describe(error)) is None:
                    raise
                raise described from error

    def _describe(self, error: psycopg.Error) -> TownletError | None:
        """The error for people; None if it is one of the program."""
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        if state := error.sqlstate:
            unavailable = state.startswith(UNAVAILABLE)
        else:  # raised by the client
            unavailable = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        if unavailable:
            fix = "check the server, and the privileges of its user"
            return StorageUnavailable(f"the database {self._where} cannot be used: {first}", fix)
        if state is not None and state.startswith(FOREIGN_TABLES):
            what = f"the database {self._where} has other tables than those of a service: {first}"
            return TownletError(what, "name another database")
        return None

    def _open(self) -> Connection[Any]:
        if self._connection is None or self._connection.closed:
            options = (
                f"-c statement_timeout={self._statement_seconds}s -c lock_timeout={WAIT_SECONDS}s"
                f" -c idle_in_transaction_session_timeout={IDLE_SECONDS}s"
            )
            self._connection = psycopg.connect(
                self.url, autocommit=True, connect_timeout=CONNECT_SECONDS, options=options,
                application_name=f"townlet {self._purpose}", **KEEPALIVES,  # type: ignore[arg-type]
            )  # fmt: skip
            lock = "SELECT pg_try_advisory_lock_shared(%s)"
            if self._serving and self._connection.execute(lock, [SERVING_LOCK]).fetchone() != (True,):
                self.close()
                raise StorageUnavailable(f"{self._where} is being copied", "start it when that is done")
        return self._connection

    def close(self) -> None:
        """Close the connection; the next transaction opens another one."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(psycopg.Error):
                    connection.close()


def migrate(database: Database) -> None:
    """Create or update the tables, under a lock; refuses tables of a later release."""
    with database.transaction() as connection:
        connection.execute("SET LOCAL lock_timeout = 0")  # another process may be migrating
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
        connection.execute("CREATE TABLE IF NOT EXISTS migration (number integer PRIMARY KEY, name text NOT NULL)")
        applied, known = _applied(connection, database.url), {int(name[:3]): name for name in _migrations()}
        for number, name in sorted(known.items()):
            if number not in applied:
                connection.execute((resources.files(__package__) / name).read_bytes())
                connection.execute("INSERT INTO migration VALUES (%s, %s)", [number, name])


def require_tables(connection: Connection[Any], url: str) -> None:
    """Refuse a database whose tables this release cannot read, without changing it."""
    where = without_password(url)
    if connection.execute("SELECT to_regclass('migration')").fetchone() == (None,):
        raise TownletError(f"{where} holds no decisions", "name the database of a service with --storage")
    if missing := {int(name[:3]) for name in _migrations()} - set(_applied(connection, url)):
        what = f"the tables of {where} were made by an earlier release (before migration {min(missing)})"
        raise TownletError(what, "start the service once with this release, which migrates them")


def _applied(connection: Connection[Any], url: str) -> list[int]:
    """The migrations that a database has; refuses those of a later release."""
    applied = [number for (number,) in connection.execute("SELECT number FROM migration ORDER BY number")]
    if later := set(applied) - {int(name[:3]) for name in _migrations()}:
        what = f"the tables of {without_password(url)} were made by a later release (migration {max(later)})"
        raise TownletError(what, "use that release of Townlet, or another database")
    return applied


def _migrations() -> list[str]:
    return [entry.name for entry in resources.files(__package__ or "").iterdir() if MIGRATION.fullmatch(entry.name)]


def synchronize(clock: ServiceClock, connection: Connection[Any]) -> None:
    """Set a clock to that of the server; a measurement that took long is ignored."""
    began = time.monotonic()
    (now,) = connection.execute(f"SELECT {NOW}").fetchone() or (0.0,)
    if time.monotonic() - began < TOLERANCE:
        clock.synchronize(now)


def durability_problem(connection: Connection[Any]) -> str:
    """Why a committed transaction could be lost, by the settings of the server; empty if it cannot be."""
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        row = connection.execute("SELECT current_setting(%s)", [setting]).fetchone()
        if row and row[0] == "off":
            return f"{setting} is off: acknowledged decisions can be lost in a crash"
    return ""
