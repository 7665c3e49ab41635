"""SQLite as the store needs it: opened for one writer or many readers, and its troubles in words."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from townlet.errors import Mark, TownletError
from townlet.runs import disk
from townlet.runs.schema import APPLICATION, VERSION, statements

MAX_WAL: Final = 64 << 20  # bytes that stay allocated for the log
PATIENCE: Final = 200  # milliseconds for readers to finish when a writer closes
FIX: Final = "move metrics.db away; `townlet train --resume` then begins new metrics, and no checkpoint is lost"
DAMAGED: Final = ("the metrics are damaged or foreign", FIX)

# beginning of SQLite's name of an error → (what is wrong, how to mend it)
WORDS: Final = (
    ("SQLITE_FULL", "the disk is full", "free some space, then go on from the last checkpoint"),
    ("SQLITE_READONLY", "the metrics cannot be written", "check the permissions of the run's folder, and the disk"),
    ("SQLITE_CANTOPEN", "the metrics cannot be opened", "check that the file exists and is readable, and the disk"),
    ("SQLITE_BUSY", "another process writes the metrics", "wait until it ends, or stop it"),
    ("SQLITE_IOERR", "the disk reports an error", "look at the space and the health of the disk"),
    ("SQLITE_NOTADB", *DAMAGED),
    ("SQLITE_CORRUPT", *DAMAGED),
)


@contextmanager
def in_words(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise explained(error, path) from error


def explained(error: sqlite3.Error, path: Path) -> TownletError:
    """What an error of SQLite means, and what to do."""
    name = getattr(error, "sqlite_errorname", "")
    for begin, what, fix in WORDS:
        if name.startswith(begin):
            return TownletError(f"{what} ({error})", fix, Mark(str(path)))
    if not name and type(error) in (sqlite3.DatabaseError, sqlite3.OperationalError):  # found by Python or by us
        return TownletError(f"{DAMAGED[0]} ({error})", FIX, Mark(str(path)))
    return TownletError(f"the metrics cannot be used ({error})", FIX, Mark(str(path)))


def connect(path: Path, read_only: bool) -> sqlite3.Connection:
    """A connection whose file has our tables and nothing else; a new file gets them when it may be written."""
    if read_only and not path.exists():
        fix = "`townlet train --resume` begins new ones; its checkpoints can be used without them"
        raise TownletError("this run has no metrics", fix, Mark(str(path)))
    with in_words(path):
        connection = _reader(path) if read_only else _writer(path)
        try:
            _prepare(connection, path, read_only)
        except BaseException:
            connection.close()
            raise
        return connection


def log_of(path: Path) -> Path:
    """SQLite's write-ahead log of a database."""
    return path.with_name(f"{path.name}-wal")


def _writer(path: Path) -> sqlite3.Connection:
    try:
        if (log := log_of(path)).exists():
            disk.rewrite_file(log)  # of a crash, perhaps after a failed fsync: what SQLite reads must be on the disk
    except OSError as error:
        raise disk.explained(error, f"cannot write {log}") from error
    connection = sqlite3.connect(path, isolation_level=None, timeout=10.0)
    for setting in (
        "trusted_schema=OFF",
        "journal_mode=WAL",
        "synchronous=NORMAL",
        f"journal_size_limit={MAX_WAL}",
        "wal_autocheckpoint=0",  # it would hide a failed fsync; `Store` does it
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _reader(path: Path) -> sqlite3.Connection:
    """Where nobody can write and no log waits, as on a read-only disk, the file is read as it lies."""
    frozen = not os.access(path.parent, os.W_OK) and not log_of(path).exists()
    mode = "mode=ro&immutable=1" if frozen else "mode=ro"
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{mode}", uri=True, isolation_level=None, timeout=10.0
    )
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA query_only=ON")
    return connection


def settle(connection: sqlite3.Connection) -> None:
    """Bring the log into the file and do without one, so that a run at rest is a single file that can be copied.

    Whoever reads at this moment keeps the log in use; then it stays until the next writer closes.
    """
    with suppress(sqlite3.Error):
        connection.execute(f"PRAGMA busy_timeout={PATIENCE}")
        connection.execute("PRAGMA journal_mode=DELETE")


def _prepare(connection: sqlite3.Connection, path: Path, read_only: bool) -> None:
    """Make or check the tables. A file with other tables, views or triggers is not read further."""
    if not read_only and not _shape(connection):
        _create(connection)
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION:
        raise TownletError("this is not a metrics store of Townlet", "name the folder of a run", Mark(str(path)))
    if version != VERSION:
        what = f"the metrics have format version {version} and this Townlet reads {VERSION}"
        raise TownletError(what, "use the release of Townlet that wrote them", Mark(str(path)))
    with sqlite3.connect(":memory:", isolation_level=None) as ours:
        _create(ours)
        wanted = _shape(ours)
    ours.close()
    if _shape(connection) != wanted:
        raise TownletError(*DAMAGED, Mark(str(path)))


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in statements():
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id={APPLICATION}")
    connection.execute(f"PRAGMA user_version={VERSION}")
    connection.execute("COMMIT")


def _shape(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    return list(connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name"))
