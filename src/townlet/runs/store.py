"""The metrics of a run: SQLite in WAL mode, one writer and any number of readers.

Rows wait in memory until `flush`, which is one transaction. Before a checkpoint call `sync`; after a crash call
`rewind` with the checkpoint's env_steps and position: what it saw is there exactly once, and nothing else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from townlet.errors import Mark, TownletError
from townlet.runs.database import FIX, in_words, settle
from townlet.runs.reader import Reader, known
from townlet.runs.schema import TABLES, WALL, insertion

as_json: Final = json.JSONEncoder(allow_nan=False).encode  # json.dumps would make an encoder at every call
WAITING: Final = 20_000  # rows in memory before they are flushed unasked


def _unchecked() -> None:
    """For a file that is written without a lock."""


class Store(Reader):
    """The metrics of one run, for its one writer, who can read them too."""

    read_only = False

    def __init__(self, path: Path, check: Callable[[], None] = _unchecked) -> None:
        """`check` raises when the folder may no longer be written (`Lock.check`); it precedes every transaction."""
        self._check = check
        super().__init__(path)
        self._waiting: dict[str, list[tuple[Any, ...]]] = {table: [] for table in TABLES}
        self._counts = self._count()

    @property
    def empty(self) -> bool:
        """Whether nothing was ever written here, or all of it was undone."""
        return not any(self._counts.values()) and not any(self._waiting.values())

    def add(self, table: str, rows: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Add rows: a list of {column: value}, or {column: values}, where one value stands for every row.

        Values may be tensors or arrays. Missing columns stay empty.
        """
        columns = _columns(rows) if isinstance(rows, Mapping) else _transposed(rows)
        types, waiting = known(table, tuple(columns)), self._waiting[table]
        count = len(next(iter(columns.values()), ()))
        if count and ("env_steps" not in columns or None in columns["env_steps"]):
            raise TownletError(f"a row of '{table}' lacks env_steps", "give the moment of every row")
        columns.setdefault(WALL, [time.time()] * count)
        empty = [None] * count
        for name, kind in types.items():
            if kind == "JSON" and name in columns:
                columns[name] = [None if v is None else as_json(v) for v in columns[name]]
        waiting.extend(zip(*(columns.get(name, empty) for name in types), strict=True))
        if len(waiting) >= WAITING:
            self.flush()

    def flush(self) -> None:
        """Write what waits, in one transaction. When it fails nothing is written and the rows go on waiting."""
        if not any(self._waiting.values()):
            return
        with in_words(self.path), self._transaction():
            for table, rows in self._waiting.items():
                self._connection.executemany(insertion(table), rows)
        for table, rows in self._waiting.items():
            self._counts[table] += len(rows)
            rows.clear()

    def sync(self) -> dict[str, int]:
        """Flush, and let it survive a loss of power. Gives the position to keep in a checkpoint."""
        self.flush()
        with in_words(self.path):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        return dict(self._counts)

    def rewind(self, env_steps: int, position: Mapping[str, int] | None = None) -> None:
        """Remove everything after a moment and after a position from `sync`, in one transaction.

        An episode that ended before that moment may have been written after it, so the moment alone does not tell.
        Rows are only ever added: the n-th has rowid n. Fewer rows than the position says are refused.
        """
        with in_words(self.path), self._transaction():
            for table in TABLES:
                self._connection.execute(f'DELETE FROM "{table}" WHERE "env_steps" > ?', (env_steps,))
            for table, wanted in (position or {}).items():
                if table in TABLES:
                    self._connection.execute(f'DELETE FROM "{table}" WHERE rowid > ?', (wanted,))
            counts = self._count()
            for table, wanted in (position or {}).items():
                if (found := counts.get(table)) != wanted:
                    what = f"up to env_steps {env_steps} '{table}' has {found} rows and the checkpoint saw {wanted}"
                    raise TownletError(
                        what, f"these metrics are of another run or damaged: {FIX}", Mark(str(self.path))
                    )
        self._counts = counts
        for rows in self._waiting.values():
            rows.clear()

    def close(self) -> None:
        """Flush and close; the file alone then holds everything."""
        try:
            self.flush()
            self._check()  # `settle` removes the log by its path
            settle(self._connection)
        finally:
            super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except TownletError:
            if error is None:  # else a full disk has been told of already
                raise

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of it or nothing, also when what went wrong is not SQLite's fault."""
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
        with in_words(self.path):
            return {t: self._connection.execute(f'SELECT count(*) FROM "{t}"').fetchone()[0] for t in TABLES}


def _columns(given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Columns of equal length; a single value stands for every row."""
    lists = {name: _listed(values) for name, values in given.items()}
    lengths = {len(column) for column in lists.values() if column is not None}
    if len(lengths) > 1:
        shown = ", ".join(f"{name} {len(column)}" for name, column in lists.items() if column is not None)
        raise TownletError(f"the columns have different lengths: {shown}", "give one value for each row")
    count = lengths.pop() if lengths else 1
    return {name: [_single(given[name])] * count if column is None else column for name, column in lists.items()}


def _listed(values: Any) -> list[Any] | None:
    """A column as a list of Python values, or None for a single value."""
    if hasattr(values, "tolist"):  # tensors and arrays; a single number of theirs is no list
        found = values.tolist()
        return found if isinstance(found, list) else None
    return [_single(value) for value in values] if isinstance(values, list | tuple) else None


def _transposed(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [_single(row.get(name)) for row in rows] for name in names}


def _single(value: Any) -> Any:
    """A Python value of what may be a number of NumPy or torch."""
    return value.item() if hasattr(value, "item") else value
