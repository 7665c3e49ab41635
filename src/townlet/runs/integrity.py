"""Checksums of metrics: each flush adds a group of rows per table, and the digests of all groups form a chain.

A digest covers the rows of its group as SQLite returns them, including storage classes (1 is not 1.0), and the previous
digest. The last digest covers every row; checkpoints store it.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from townlet.errors import TownletError
from townlet.runs.database import METRICS_FIX, ROW_GROUPS, TABLES

DIGEST_BYTES: Final = 32
START: Final = bytes(DIGEST_BYTES)  # predecessor of the first digest of a chain
_SELECT: Final = {
    table: f'SELECT rowid, {", ".join(f"{chr(34)}{column}{chr(34)}" for column in columns)} FROM "{table}"'
    for table, columns in TABLES.items()
}
_CHAIN: Final = (
    'SELECT g.rowid, g."table", g."first", g."last", g."env_steps", g."digest", p."digest" '
    f'FROM "{ROW_GROUPS}" AS g LEFT JOIN "{ROW_GROUPS}" AS p ON p.rowid = g.rowid - 1 WHERE g."table" = ?'
)


class RowGroup(NamedTuple):
    """Rows `first` to `last` of a table, usually of one flush; `env_steps` is the largest in these rows."""

    number: int  # in the chain of all tables
    table: str
    first: int
    last: int
    env_steps: int
    digest: bytes
    previous: bytes


class Damage(NamedTuple):
    """Damaged rows of a table, within a range of env_steps; an empty `table` stands for the whole file."""

    table: str
    why: str
    begin: int | None = None
    end: int | None = None

    def __str__(self) -> str:
        table = f" in '{self.table}'" if self.table else ""
        where = f" between env_steps {self.begin:,} and {self.end:,}" if self.end is not None else ""
        return f"the metrics are damaged{table}{where}: {self.why}"

    def error(self, path: Path) -> TownletError:
        """This damage as an error with a remedy."""
        return TownletError(str(self), METRICS_FIX, path)


def add_group(connection: sqlite3.Connection, table: str, first: int, last: int, previous: bytes) -> bytes:
    """Add the checksum of rows that were just inserted; returns the new last digest of the chain."""
    rows = _rows(connection, table, first, last)
    if len(rows) != last - first + 1:
        raise sqlite3.DatabaseError(f"'{table}' has rows that this run did not write")
    env_steps = max(row[1] for row in rows)  # the first column of every table
    digest = _digest(previous, table, first, last, env_steps, rows)
    query = f'INSERT INTO "{ROW_GROUPS}" ("table", "first", "last", "env_steps", "digest") VALUES (?, ?, ?, ?, ?)'
    connection.execute(query, (table, first, last, env_steps, digest))
    return digest


def head(connection: sqlite3.Connection) -> bytes:
    """The last digest of the chain; `START` if it is empty."""
    found = connection.execute(f'SELECT "digest" FROM "{ROW_GROUPS}" ORDER BY rowid DESC LIMIT 1').fetchone()
    return START if found is None else bytes(found[0])


def digests(connection: sqlite3.Connection) -> set[str]:
    """Every digest of the chain (hex), including that of an empty chain."""
    found = connection.execute(f'SELECT "digest" FROM "{ROW_GROUPS}"')
    return {START.hex(), *(bytes(digest).hex() for (digest,) in found)}


def truncate(connection: sqlite3.Connection, counts: Mapping[str, int]) -> bytes:
    """Truncate the chain to these numbers of rows of each table; returns its new last digest."""
    first_removed = [
        found
        for table, count in counts.items()
        for (found,) in connection.execute(
            f'SELECT min(rowid) FROM "{ROW_GROUPS}" WHERE "table" = ? AND "last" > ?', (table, count)
        )
        if found is not None
    ]
    if first_removed:
        connection.execute(f'DELETE FROM "{ROW_GROUPS}" WHERE rowid >= ?', (min(first_removed),))
    last_digest = head(connection)
    for table, count in counts.items():
        query = f'SELECT coalesce(max("last"), 0) FROM "{ROW_GROUPS}" WHERE "table" = ?'
        if (grouped := connection.execute(query, (table,)).fetchone()[0]) < count:
            last_digest = add_group(connection, table, grouped + 1, count, last_digest)
    return last_digest


def groups(connection: sqlite3.Connection, table: str, after: int = 0) -> list[RowGroup]:
    """The groups of a table in order, after the given number."""
    found = connection.execute(f"{_CHAIN} AND g.rowid > ? ORDER BY g.rowid", (table, after))
    return [_group(row, table) for row in found]


def damages(connection: sqlite3.Connection, table: str, chain: Sequence[RowGroup], row: int = 0) -> Iterator[Damage]:
    """Yield the damage in `chain`, the groups that cover the rows after `row` up to the end of the table."""
    begin = 0
    for group in chain:
        if group.first != row + 1 or group.last < group.first:
            yield Damage(table, "the checksums of some rows are missing", begin, group.env_steps)
        elif not intact(connection, group):
            yield Damage(table, "rows were changed, added or removed", begin, group.env_steps)
        row, begin = group.last, group.env_steps
    (count,) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
    (largest,) = connection.execute(f'SELECT coalesce(max(rowid), 0) FROM "{table}"').fetchone()
    if count != largest:
        yield Damage(table, "rows are missing")
    elif count != row:
        yield Damage(table, f"the table has {count} rows, but the checksums cover {row}")


def intact(connection: sqlite3.Connection, group: RowGroup) -> bool:
    """Whether the rows of one group are as they were written."""
    rows = _rows(connection, group.table, group.first, group.last)
    return group.digest == _digest(group.previous, *group[1:5], rows)


def structural_fault(connection: sqlite3.Connection, table: str = "") -> str:
    """The first fault that SQLite finds in a table and its indexes, or in the whole file; "" if there is none."""
    query = f"PRAGMA integrity_check('{table}')" if table else "PRAGMA integrity_check"
    found = str(connection.execute(query).fetchone()[0])
    return "" if found == "ok" else found.splitlines()[0]


def _group(row: tuple[Any, ...], table: str) -> RowGroup:
    """A group from a row of the chain; raises DatabaseError if its table or the type of a value is wrong."""
    kinds = (int, str, int, int, int, bytes, bytes)
    values = (*row[:6], START if row[0] == 1 else row[6])
    if row[1] != table or not all(type(value) is kind for value, kind in zip(values, kinds, strict=True)):
        raise sqlite3.DatabaseError("the checksums of rows are damaged")
    return RowGroup(*values)


def _rows(connection: sqlite3.Connection, table: str, first: int, last: int) -> list[tuple[Any, ...]]:
    query = f"{_SELECT[table]} WHERE rowid BETWEEN ? AND ? ORDER BY rowid"
    return connection.execute(query, (first, last)).fetchall()


def _digest(previous: bytes, table: str, first: int, last: int, env_steps: int, rows: Sequence[Sequence[Any]]) -> bytes:
    """The digest of a group, from the previous digest, its position, and its rows column by column."""
    state = blake2b(previous, digest_size=DIGEST_BYTES)
    state.update(f"{table} {first} {last} {env_steps} {len(rows)}\n".encode())
    for column in zip(*rows, strict=True):
        state.update(_encoded(column))
    return state.digest()


def _encoded(values: Sequence[Any]) -> bytes:
    """Values with their storage classes, little-endian, grouped by class."""
    kinds = set(map(type, values))
    if len(kinds) == 1:
        (kind,) = kinds
        return _CODES[kind] + _PACKED[kind](values)
    codes = b"".join(_CODES[type(value)] for value in values)
    return codes + b"".join(
        _PACKED[kind]([value for value in values if type(value) is kind]) for kind in _CODES if kind in kinds
    )


def _blobs(values: Sequence[bytes]) -> bytes:
    return struct.pack(f"<{len(values)}I", *map(len, values)) + b"".join(values)


# Python types that SQLite returns, by storage class.
_CODES: Final[dict[type, bytes]] = {int: b"I", float: b"R", str: b"T", bytes: b"B", type(None): b"N"}
_PACKED: Final[dict[type, Callable[[Sequence[Any]], bytes]]] = {
    int: lambda values: struct.pack(f"<{len(values)}q", *values),
    float: lambda values: struct.pack(f"<{len(values)}d", *values),
    str: lambda values: _blobs([value.encode() for value in values]),
    bytes: _blobs,
    type(None): lambda values: b"",
}


MAX_CACHED_TABLES: Final = 256  # tables of all files together; then the cache is cleared


class IntactTable(NamedTuple):
    """A table that was found intact: the stamp of its file, and number, digest and last row of its last group."""

    stamp: tuple[int, ...]
    number: int
    digest: bytes
    row: int


_intact_tables: dict[tuple[int, int, str], IntactTable] = {}


def require_intact(connection: sqlite3.Connection, path: Path, table: str, last: int | None = None) -> None:
    """Raise an error if rows or indexes of a table are damaged; with `last`, check only its last rows.

    An unchanged file is not read again; of a file that has grown, only the new groups are read.
    """
    identity, stamp = _file_stamp(path)
    before = _intact_tables.get((*identity, table))
    if before and before.stamp == stamp:
        return
    if before is None and last is not None:
        _require_newest(connection, path, table, last)
        return
    query = f'SELECT "digest" FROM "{ROW_GROUPS}" WHERE rowid = ?'  # the chain may have been truncated meanwhile
    unchanged = before and connection.execute(query, (before.number,)).fetchone() == (before.digest,)
    known = before if unchanged else None
    chain = groups(connection, table, known.number if known else 0)
    if known and not chain:  # the file changed, but not by a flush of this table
        known, chain = None, groups(connection, table)
    for damage in damages(connection, table, chain, known.row if known else 0):
        raise damage.error(path)
    if known is None and (fault := structural_fault(connection, table)):
        raise Damage(table, fault).error(path)
    if chain:
        if len(_intact_tables) >= MAX_CACHED_TABLES:
            _intact_tables.clear()
        _intact_tables[(*identity, table)] = IntactTable(stamp, chain[-1].number, chain[-1].digest, chain[-1].last)


def _require_newest(connection: sqlite3.Connection, path: Path, table: str, rows: int) -> None:
    """Raise an error if the groups of the last `rows` rows are damaged, or if rows without a checksum follow."""
    chain = (_group(row, table) for row in connection.execute(f"{_CHAIN} ORDER BY g.rowid DESC", (table,)))
    (largest,) = connection.execute(f'SELECT coalesce(max(rowid), 0) FROM "{table}"').fetchone()
    group = next(chain, None)
    covered = group.last if group else 0
    if largest != covered:
        raise Damage(table, f"the table has {largest} rows, but the checksums cover {covered}").error(path)
    while group and rows > 0:
        if not intact(connection, group):
            raise Damage(table, "rows were changed, added or removed", 0, group.env_steps).error(path)
        rows -= group.last - group.first + 1
        group = next(chain, None)


def _file_stamp(path: Path) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Identity of the file, and a stamp that changes when the file or its log is written."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise TownletError(f"cannot read {path}: {error.strerror}", "check whether it was moved or removed") from None
    try:
        log = os.stat(f"{path}-wal")
    except OSError:
        log = None
    stamp = (found.st_size, found.st_mtime_ns, *((log.st_size, log.st_mtime_ns) if log else ()))
    return (found.st_dev, found.st_ino), stamp
