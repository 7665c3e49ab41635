"""The SQLite database of metrics: its tables as data, connections, and error messages. Every row has its env_steps."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from townlet.errors import TownletError
from townlet.runs import disk

APPLICATION_ID: Final = 0x746F776E  # "town", in the header of the file
SCHEMA_VERSION: Final = 5
ROW_GROUPS: Final = "row_groups"  # checksums of the rows of each flush; see `integrity`
WALL_TIME: Final = "wall"  # wall-clock seconds: in every table, but ignored when runs are compared

_COUNTERS: Final = {"env_steps": "INTEGER", "updates": "INTEGER"}
_STATISTICS: Final = ("mean", "min", "max", "p10", "p50", "p90")

# table → column → type; JSON is stored as text. Column names are the metric names used everywhere.
_COLUMNS: Final[dict[str, dict[str, str]]] = {
    "episodes": {  # finished episodes, or a sample of them if there are many
        **_COUNTERS,
        "row": "INTEGER",
        "start": "INTEGER",  # env_steps when it began
        "length": "INTEGER",
        "return": "REAL",
        "extrinsic": "REAL",
        "intrinsic": "REAL",
        "stage": "INTEGER",
        "epsilon": "REAL",
        "cause": "TEXT",  # of death, or "time" at the step limit
        "meters": "JSON",  # {meter: final value}
    },
    "episode_intervals": {  # all episodes that ended in (start, env_steps]
        **_COUNTERS,
        "start": "INTEGER",
        "count": "INTEGER",
        **{f"length_{statistic}": "REAL" for statistic in _STATISTICS},
        **{f"return_{statistic}": "REAL" for statistic in _STATISTICS},
        "extrinsic": "REAL",
        "intrinsic": "REAL",
        "causes": "JSON",  # {cause: count}
        "stages": "JSON",  # {stage: count}
        "meters": "JSON",  # {meter: mean final value}
    },
    # One row per metric: a chart reads one name through one index, and a new agent needs no new column.
    "updates": {**_COUNTERS, "name": "TEXT", "value": "REAL"},
    "affordance_visits": {"env_steps": "INTEGER", "affordance": "TEXT", "count": "INTEGER"},
    "affordance_transitions": {"env_steps": "INTEGER", "from": "TEXT", "to": "TEXT", "count": "INTEGER"},
    "cell_visits": {"env_steps": "INTEGER", "cell": "INTEGER", "count": "INTEGER", "novelty": "REAL"},
    "stage_changes": {
        **_COUNTERS,
        "row": "INTEGER",
        "from_stage": "INTEGER",
        "to_stage": "INTEGER",
        "reason": "TEXT",
        "survival": "REAL",
        "progress": "REAL",
        "entropy": "REAL",
    },
    "recordings": {  # a few complete episodes
        **_COUNTERS,
        "kind": "TEXT",  # why it was recorded
        "row": "INTEGER",
        "length": "INTEGER",
        "stage": "INTEGER",
        "cause": "TEXT",
        "return": "REAL",
        "outputs": "TEXT",  # "values" or "probabilities"
        "data": "BLOB",  # see townlet.town.episode_recorder.Recording
    },
    "setting_changes": {  # changes of agent settings during training
        **_COUNTERS,
        "key": "TEXT",
        "old": "JSON",  # a value as in a recipe: a number, or a schedule
        "new": "JSON",
        "why": "TEXT",
    },
    "alerts": {**_COUNTERS, "name": "TEXT", "message": "TEXT", "tip": "TEXT", "value": "REAL"},
    "evaluations": {
        **_COUNTERS,
        "policy": "TEXT",  # "greedy" for the agent, even if it samples; "random" for comparison
        "episodes": "INTEGER",
        "limit": "INTEGER",  # maximum episode length
        "length": "REAL",
        "length_min": "REAL",
        "length_max": "REAL",
        "return": "REAL",
        "survived": "REAL",  # fraction of episodes that reached the limit
        "earns_money": "REAL",  # fraction of episodes that earned money
        "score": "REAL",  # decides which checkpoint is the best
        "causes": "JSON",
        "meters": "JSON",
    },
}
TABLES: Final = {name: {**columns, WALL_TIME: "REAL"} for name, columns in _COLUMNS.items()}

MAX_IDLE_WAL_BYTES: Final = 64 << 20  # SQLite truncates the write-ahead log to this size after a checkpoint
READER_TIMEOUT_MS: Final = 200  # how long a closing writer waits for readers
METRICS_FIX: Final = "move metrics.db away; `townlet train --resume` then starts new metrics, and no checkpoint is lost"
DAMAGED: Final = ("the metrics are damaged", METRICS_FIX)

# prefix of SQLite's error name → (what is wrong, what to do)
SQLITE_MESSAGES: Final = (
    ("SQLITE_FULL", "the disk is full", "free some space, then resume from the last checkpoint"),
    ("SQLITE_READONLY", "the metrics cannot be written", "check the disk, and the permissions of the run's folder"),
    ("SQLITE_CANTOPEN", "the metrics cannot be opened", "check the disk, and that the file exists and is readable"),
    ("SQLITE_BUSY", "another process is using the metrics", "wait until it ends, or stop it"),
    ("SQLITE_IOERR", "the disk reports an error", "check the space and the health of the disk"),
    ("SQLITE_NOTADB", *DAMAGED),
    ("SQLITE_CORRUPT", *DAMAGED),
)


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Raise an SQLite error as a TownletError with a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        what, fix = "the metrics cannot be used", METRICS_FIX
        if not name and type(error) in (sqlite3.DatabaseError, sqlite3.OperationalError):
            what, fix = DAMAGED  # raised by the sqlite3 module or by `integrity`, not by SQLite
        for prefix, meaning, remedy in SQLITE_MESSAGES:
            if name.startswith(prefix):
                what, fix = meaning, remedy
        raise TownletError(f"{what} ({error})", fix, path) from error


def connect(path: Path, read_only: bool) -> sqlite3.Connection:
    """A connection to a metrics database, whose tables are checked; a writer creates them in a new file."""
    if path.is_symlink():  # SQLite would create files beside its target, even to read it
        raise TownletError(f"{path.name} is a symbolic link", "put the file itself there", path)
    if read_only and not path.exists():
        fix = "`townlet train --resume` starts new ones; the checkpoints can be used without them"
        raise TownletError("this run has no metrics", fix, path)
    with sqlite_errors(path):
        connection = _reader(path) if read_only else _writer(path)
        try:
            _prepare(connection, path, read_only)
        except BaseException:
            connection.close()
            raise
        return connection


def wal_path(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _writer(path: Path) -> sqlite3.Connection:
    log = wal_path(path)
    with disk.os_errors(f"cannot write {log}"):
        if log.exists():
            disk.rewrite_file(log)  # a crash left it, perhaps after a failed fsync: SQLite must read what is on disk
    connection = sqlite3.connect(path, isolation_level=None, timeout=10.0)
    for setting in (
        "trusted_schema=OFF",
        "journal_mode=WAL",
        "synchronous=NORMAL",
        f"journal_size_limit={MAX_IDLE_WAL_BYTES}",
        "wal_autocheckpoint=0",  # it would hide a failed fsync; `MetricsStore` checkpoints explicitly
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _reader(path: Path) -> sqlite3.Connection:
    """A read-only connection; immutable if the folder is read-only and there is no log."""
    frozen = not os.access(path.parent, os.W_OK) and not wal_path(path).exists()
    mode = "mode=ro&immutable=1" if frozen else "mode=ro"
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{mode}", uri=True, isolation_level=None, timeout=10.0
    )
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA query_only=ON")
    return connection


def leave_wal_mode(connection: sqlite3.Connection) -> None:
    """Merge the write-ahead log into the file, so that a finished run is a single file that can be copied.

    A concurrent reader keeps the log in use; then it stays until the next writer closes.
    """
    with suppress(sqlite3.Error):
        connection.execute(f"PRAGMA busy_timeout={READER_TIMEOUT_MS}")
        connection.execute("PRAGMA journal_mode=DELETE")


def _prepare(connection: sqlite3.Connection, path: Path, read_only: bool) -> None:
    """Create or check the tables; raises TownletError for a file with other tables, views or triggers."""
    if not read_only and not _schema(connection):
        _create(connection)
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise TownletError("this is not a metrics store of Townlet", "name the folder of a run", path)
    if version != SCHEMA_VERSION:
        what = f"the metrics have format version {version}, but this Townlet reads {SCHEMA_VERSION}"
        raise TownletError(what, "use the release of Townlet that wrote them", path)
    with sqlite3.connect(":memory:", isolation_level=None) as reference:
        _create(reference)
        wanted = _schema(reference)
    reference.close()
    if _schema(connection) != wanted:
        raise TownletError(*DAMAGED, path)


def _create(connection: sqlite3.Connection) -> None:
    """Create the tables, each with an index on env_steps (updates also on name)."""
    connection.execute("BEGIN IMMEDIATE")
    for table, columns in TABLES.items():
        fields = ", ".join(
            f'"{column}" {"TEXT" if kind == "JSON" else kind}{" NOT NULL" if column == "env_steps" else ""}'
            for column, kind in columns.items()
        )
        connection.execute(f'CREATE TABLE "{table}" ({fields})')
        connection.execute(f'CREATE INDEX "{table}_moment" ON "{table}" ("env_steps")')
    connection.execute(
        f'CREATE TABLE "{ROW_GROUPS}" ("table" TEXT NOT NULL, "first" INTEGER NOT NULL, "last" INTEGER NOT NULL, '
        '"env_steps" INTEGER NOT NULL, "digest" BLOB NOT NULL)'
    )
    connection.execute(f'CREATE INDEX "{ROW_GROUPS}_table" ON "{ROW_GROUPS}" ("table")')
    connection.execute('CREATE INDEX "updates_name" ON "updates" ("name", "env_steps", "value")')
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _schema(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    return list(connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name"))
