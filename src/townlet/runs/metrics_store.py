"""The writer of a run's metrics: SQLite in WAL mode, one writer and any number of readers.

Rows are buffered in memory until `flush`, which is one transaction and adds their checksums. Call `sync` before a
checkpoint, and after a crash `rewind` to the checkpoint's env_steps and position: exactly the rows that the position
counts remain, and each is checked against its checksum.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from townlet.errors import TownletError
from townlet.runs import disk, integrity
from townlet.runs.database import METRICS_FIX, TABLES, WALL_TIME, leave_wal_mode, sqlite_errors, wal_path
from townlet.runs.metrics_reader import MetricsReader, table_columns

as_json: Final = json.JSONEncoder(allow_nan=False).encode  # json.dumps would create an encoder at every call
MAX_BUFFERED_ROWS: Final = 20_000  # rows in memory that trigger a flush
MAX_WAL_BYTES: Final = 4 << 20  # bytes of the write-ahead log beyond which `flush` checkpoints it


class StorePosition(NamedTuple):
    """How far the metrics reach: rows per table, and the digest (hex) that covers them."""

    rows: dict[str, int]
    digest: str


class MetricsStore(MetricsReader):
    """Writer of the metrics of one run; it can read them too."""

    read_only = False

    def __init__(self, path: Path, check: Callable[[], None] = lambda: None) -> None:
        """`check` is called before every transaction; it raises if the folder must not be written (`Lock.check`)."""
        self._check = check
        super().__init__(path)
        self._buffered: dict[str, list[tuple[Any, ...]]] = {table: [] for table in TABLES}
        self._counts = self._count()
        with sqlite_errors(path):
            self._head = integrity.head(self._connection)
        self._folder_synced = False  # whether the names of SQLite's files are durable
        self._sync_error: TownletError | None = None  # a failed fsync, after which nothing can be made durable here

    @property
    def empty(self) -> bool:
        return not any(self._counts.values()) and not any(self._buffered.values())

    @property
    def last_env_steps(self) -> int:
        """The largest env_steps of any row; 0 without rows."""
        with sqlite_errors(self.path):
            query = 'SELECT coalesce(max("env_steps"), 0) FROM "{}"'
            return max(int(self._connection.execute(query.format(table)).fetchone()[0]) for table in TABLES)

    def add(self, table: str, rows: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Add rows: a list of {column: value}, or {column: values}, where one value stands for every row.

        Values may be tensors or arrays. Missing columns stay empty.
        """
        if isinstance(rows, Mapping):
            columns = _columns(rows)
        else:
            names = dict.fromkeys(name for row in rows for name in row)
            columns = {name: [_as_scalar(row.get(name)) for row in rows] for name in names}
        types, buffered = table_columns(table, tuple(columns)), self._buffered[table]
        count = len(next(iter(columns.values()), ()))
        if count and ("env_steps" not in columns or None in columns["env_steps"]):
            raise TownletError(f"a row of '{table}' lacks env_steps", "give env_steps for every row")
        columns.setdefault(WALL_TIME, [time.time()] * count)
        empty = [None] * count
        for name, kind in types.items():
            if kind == "JSON" and name in columns:
                columns[name] = [None if v is None else as_json(v) for v in columns[name]]
        buffered.extend(zip(*(columns.get(name, empty) for name in types), strict=True))
        if len(buffered) >= MAX_BUFFERED_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write buffered rows in one transaction. If it fails, nothing is written and the rows stay buffered."""
        if not any(self._buffered.values()):
            return
        counts, head = dict(self._counts), self._head
        with sqlite_errors(self.path), self._transaction():
            for table, rows in self._buffered.items():
                if rows:
                    places = ", ".join("?" * len(TABLES[table]))
                    self._connection.executemany(f'INSERT INTO "{table}" VALUES ({places})', rows)
                    first, counts[table] = counts[table] + 1, counts[table] + len(rows)
                    head = integrity.add_group(self._connection, table, first, counts[table], head)
        self._counts, self._head = counts, head
        for rows in self._buffered.values():
            rows.clear()
        if (log := wal_path(self.path)).exists() and log.stat().st_size > MAX_WAL_BYTES:
            self._sync_wal()

    def sync(self) -> StorePosition:
        """Flush and make every row durable; returns the position to store in a checkpoint.

        SQLite fsyncs its log only when it checkpoints, which a reader may prevent, so the log is fsynced here.
        """
        self.flush()
        self._sync_wal()
        return StorePosition(dict(self._counts), self._head.hex())

    def _sync_wal(self) -> None:
        """Fsync SQLite's log, then move it into the database as far as readers allow.

        After a failed fsync the disk may lack bytes that a second fsync would not write. There is no second one
        until the file is opened again, which rewrites them.
        """
        if self._sync_error:
            raise self._sync_error
        log = wal_path(self.path)
        try:
            with disk.os_errors(f"cannot write {log}", "then resume from the last checkpoint"):
                if log.exists():  # closing it releases no POSIX lock: SQLite locks other files
                    disk.sync_file(log)
                if not self._folder_synced:
                    disk.sync_folder(self.path.parent)
                    self._folder_synced = True
            with sqlite_errors(self.path):
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except TownletError as error:
            self._sync_error = error
            raise

    def rewind(self, env_steps: int, position: StorePosition | None = None) -> None:
        """Remove all rows after `env_steps` and after a position from `sync`, in one transaction.

        An episode that ended before `env_steps` may have been written later, so env_steps alone are not enough. Rows
        are only appended: the n-th has rowid n. With a position all remaining rows are checked; missing or changed
        ones are refused, and nothing is removed.
        """
        rows = position.rows if position else {}
        with sqlite_errors(self.path), self._transaction():
            for table in TABLES:
                self._connection.execute(f'DELETE FROM "{table}" WHERE "env_steps" > ?', (env_steps,))
            for table, wanted in rows.items():
                if table in TABLES:
                    self._connection.execute(f'DELETE FROM "{table}" WHERE rowid > ?', (wanted,))
            counts = self._count()
            for table, wanted in rows.items():
                if (found := counts.get(table)) != wanted:
                    what = f"'{table}' has {found} rows up to env_steps {env_steps}, but the checkpoint has {wanted}"
                    fix = f"these metrics belong to another run or are damaged: {METRICS_FIX}"
                    raise TownletError(what, fix, self.path)
            head = integrity.truncate(self._connection, counts)
            if position:
                self._require_position(head, position)
        self._counts, self._head = counts, head
        for buffered in self._buffered.values():
            buffered.clear()

    def _require_position(self, head: bytes, position: StorePosition) -> None:
        """Raise an error if the rows do not match the digest of the position."""
        for table in TABLES:
            chain = integrity.groups(self._connection, table)
            if damage := next(integrity.find_damage(self._connection, table, chain), None):
                raise damage.error(self.path)
        if head.hex() != position.digest:
            what = "the metrics do not match the checkpoint: the last checksum differs"
            raise TownletError(what, METRICS_FIX, self.path)
        if fault := integrity.structural_fault(self._connection):
            raise TownletError(f"the metrics are damaged: {fault}", METRICS_FIX, self.path)

    def close(self) -> None:
        """Flush and close; a single file then holds everything, unless a reader still uses the log."""
        try:
            if self._sync_error:
                with suppress(OSError):
                    disk.rewrite_file(wal_path(self.path))  # SQLite moves it into the database while it closes
            self.flush()
            self._check()  # `leave_wal_mode` removes the log by its path
            leave_wal_mode(self._connection)
        finally:
            super().close()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            self.close()
        except TownletError:
            if kind is None:  # otherwise the exception in the `with` block is raised
                raise

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """A transaction that is rolled back on any exception."""
        self._check()
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite itself rolls back when the disk is full
                self._connection.execute("ROLLBACK")
            raise

    def _count(self) -> dict[str, int]:
        with sqlite_errors(self.path):
            return {t: self._connection.execute(f'SELECT count(*) FROM "{t}"').fetchone()[0] for t in TABLES}


def _columns(given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Columns of equal length; single values are repeated for every row."""
    lists = {name: _as_list(values) for name, values in given.items()}
    lengths = {len(column) for column in lists.values() if column is not None}
    if len(lengths) > 1:
        shown = ", ".join(f"{name} {len(column)}" for name, column in lists.items() if column is not None)
        raise TownletError(f"the columns have different lengths: {shown}", "give one value for each row")
    count = lengths.pop() if lengths else 1
    return {name: [_as_scalar(given[name])] * count if column is None else column for name, column in lists.items()}


def _as_list(values: Any) -> list[Any] | None:
    """A column as a list of Python values, or None for a single value."""
    if hasattr(values, "tolist"):  # tensors and arrays; a scalar is not a list
        found = values.tolist()
        return found if isinstance(found, list) else None
    return [_as_scalar(value) for value in values] if isinstance(values, list | tuple) else None


def _as_scalar(value: Any) -> Any:
    """A Python value; NumPy and torch scalars are converted."""
    return value.item() if hasattr(value, "item") else value
