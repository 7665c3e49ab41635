"""Checksums of metrics: each flush adds a group of rows per table, and the digests of all groups form a chain.

A digest covers the rows of its group as SQLite returns them, including storage classes (1 is not 1.0), and the previous
digest. The last digest covers every row; checkpoints store it.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from townlet.errors import TownletError
from townlet.runs.database import METRICS_FIX, ROW_GROUPS, wal_path

DIGEST_BYTES: Final = 32
START: Final = bytes(DIGEST_BYTES)  # predecessor of the first digest of a chain
MAX_CACHED_TABLES: Final = 256  # of all files together; a full cache is cleared
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
    previous: bytes  # digest of the previous group in the chain


class Damage(NamedTuple):
    """Damage in a table, between two env_steps if they are known; an empty `table` stands for the whole file."""

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
        raise sqlite3.DatabaseError(f"some of the rows {first} to {last} of '{table}' are missing")
    env_steps = max(row[1] for row in rows)  # env_steps is the first column of every table, after the rowid
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
    """Make the chain cover exactly the first `counts[table]` rows of each table; returns its new last digest.

    Removes the first group with a row beyond the count and all later groups. Rows that lose their group get a new one.
    """
    for table, count in counts.items():
        first_removed = f'SELECT min(rowid) FROM "{ROW_GROUPS}" WHERE "table" = ? AND "last" > ?'
        connection.execute(f'DELETE FROM "{ROW_GROUPS}" WHERE rowid >= ({first_removed})', (table, count))
    last_digest = head(connection)
    for table, count in counts.items():
        query = f'SELECT coalesce(max("last"), 0) FROM "{ROW_GROUPS}" WHERE "table" = ?'
        (covered,) = connection.execute(query, (table,)).fetchone()
        if covered < count:
            last_digest = add_group(connection, table, covered + 1, count, last_digest)
    return last_digest


def groups(connection: sqlite3.Connection, table: str, after: int = 0) -> list[RowGroup]:
    """The groups of a table in order, only those numbered higher than `after`."""
    found = connection.execute(f"{_CHAIN} AND g.rowid > ? ORDER BY g.rowid", (table, after))
    return [_group(row, table) for row in found]


def find_damage(
    connection: sqlite3.Connection, table: str, chain: Sequence[RowGroup], covered: int = 0
) -> Iterator[Damage]:
    """Find damage in the rows that follow the first `covered` rows; `chain` must hold the groups of all these rows."""
    begin = 0
    for group in chain:
        if group.first != covered + 1 or group.last < group.first:
            yield Damage(table, "the checksums of some rows are missing", begin, group.env_steps)
        elif not _is_intact(connection, group):
            yield Damage(table, "rows were changed, added or removed", begin, group.env_steps)
        covered, begin = group.last, group.env_steps
    (count,) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
    (largest,) = connection.execute(f'SELECT coalesce(max(rowid), 0) FROM "{table}"').fetchone()
    if count != largest:
        yield Damage(table, "rows are missing")
    elif count != covered:
        yield Damage(table, f"the table has {count} rows, but the checksums cover {covered}")


def _is_intact(connection: sqlite3.Connection, group: RowGroup) -> bool:
    """Whether the rows of one group are as they were written."""
    rows = _rows(connection, group.table, group.first, group.last)
    return group.digest == _digest(group.previous, group.table, group.first, group.last, group.env_steps, rows)


def structural_fault(connection: sqlite3.Connection, table: str = "") -> str:
    """The first fault that SQLite finds in a table and its indexes, or in the whole file; "" if there is none."""
    query = f"PRAGMA integrity_check('{table}')" if table else "PRAGMA integrity_check"
    found = str(connection.execute(query).fetchone()[0])
    return "" if found == "ok" else found.splitlines()[0]


def _group(row: tuple[Any, ...], table: str) -> RowGroup:
    """A group from a row of the chain; raises DatabaseError if its table or the type of a value is wrong."""
    group = RowGroup(*row)
    if group.number == 1:
        group = group._replace(previous=START)
    if group.table != table or [type(value) for value in group] != [int, str, int, int, int, bytes, bytes]:
        raise sqlite3.DatabaseError("the checksums of rows are damaged")
    return group


def _rows(connection: sqlite3.Connection, table: str, first: int, last: int) -> list[tuple[Any, ...]]:
    query = f'SELECT rowid, * FROM "{table}" WHERE rowid BETWEEN ? AND ? ORDER BY rowid'
    return connection.execute(query, (first, last)).fetchall()


def _digest(previous: bytes, table: str, first: int, last: int, env_steps: int, rows: Sequence[Sequence[Any]]) -> bytes:
    """The digest of a group, from the previous digest, its position, and its rows column by column."""
    state = blake2b(previous, digest_size=DIGEST_BYTES)
    state.update(f"{table} {first} {last} {env_steps} {len(rows)}\n".encode())
    for column in zip(*rows, strict=True):
        state.update(_encoded(column))
    return state.digest()


def _encoded(values: Sequence[Any]) -> bytes:
    """The values of a column as bytes: their storage classes (once if all are equal), then the values by class."""
    types = set(map(type, values))
    if len(types) == 1:
        (only_type,) = types
        return _CODES[only_type] + _PACK[only_type](values)
    parts = [_CODES[type(value)] for value in values]
    for kind, pack in _PACK.items():
        if kind in types:
            parts.append(pack([value for value in values if type(value) is kind]))
    return b"".join(parts)


def _pack_blobs(values: Sequence[bytes]) -> bytes:
    """All lengths, then all contents."""
    return struct.pack(f"<{len(values)}I", *map(len, values)) + b"".join(values)


# Storage class of each Python type that SQLite returns, and how values of that type are packed (little-endian).
_CODES: Final[dict[type, bytes]] = {int: b"I", float: b"R", str: b"T", bytes: b"B", type(None): b"N"}
_PACK: Final[dict[type, Callable[[Sequence[Any]], bytes]]] = {
    int: lambda values: struct.pack(f"<{len(values)}q", *values),
    float: lambda values: struct.pack(f"<{len(values)}d", *values),
    str: lambda values: _pack_blobs([value.encode() for value in values]),
    bytes: _pack_blobs,
    type(None): lambda values: b"",
}


class IntactTable(NamedTuple):
    """A table that was found intact: the stamp of its file at that time, and its last group."""

    stamp: tuple[int, ...]
    last_group: RowGroup


_intact_tables: dict[tuple[int, int, str], IntactTable] = {}  # by device and inode of the file, and table


def require_intact(connection: sqlite3.Connection, path: Path, table: str, newest: int | None = None) -> None:
    """Raise an error if rows or indexes of a table are damaged.

    An unchanged file is not read again. If this table has only grown, its new groups are read; otherwise all of them.
    If `newest` is given, the first check of a table reads only that many of its newest rows.
    """
    identity, stamp = _file_stamp(path)
    cached = _intact_tables.get((*identity, table))
    if cached and cached.stamp == stamp:
        return
    if cached is None and newest is not None:
        _require_newest(connection, path, table, newest)
        return
    chain = _new_groups(connection, cached.last_group) if cached else []
    if cached and chain:
        damage = next(find_damage(connection, table, chain, cached.last_group.last), None)
    else:
        chain = groups(connection, table)
        damage = next(find_damage(connection, table, chain), None)
        if damage is None and (fault := structural_fault(connection, table)):
            damage = Damage(table, fault)
    if damage:
        raise damage.error(path)
    if chain:
        if len(_intact_tables) >= MAX_CACHED_TABLES:
            _intact_tables.clear()
        _intact_tables[(*identity, table)] = IntactTable(stamp, chain[-1])


def _new_groups(connection: sqlite3.Connection, last: RowGroup) -> list[RowGroup]:
    """The groups that follow `last` in its table; [] if `last` is no longer in the chain."""
    found = connection.execute(f'SELECT "digest" FROM "{ROW_GROUPS}" WHERE rowid = ?', (last.number,)).fetchone()
    return groups(connection, last.table, last.number) if found == (last.digest,) else []


def _require_newest(connection: sqlite3.Connection, path: Path, table: str, count: int) -> None:
    """Raise an error if the groups of the newest `count` rows are damaged, or if there are rows without a checksum."""
    newest_first = (_group(row, table) for row in connection.execute(f"{_CHAIN} ORDER BY g.rowid DESC", (table,)))
    (largest,) = connection.execute(f'SELECT coalesce(max(rowid), 0) FROM "{table}"').fetchone()
    group = next(newest_first, None)
    covered = group.last if group else 0
    if largest != covered:
        raise Damage(table, f"the table has {largest} rows, but the checksums cover {covered}").error(path)
    while group and count > 0:
        if not _is_intact(connection, group):
            raise Damage(table, "rows were changed, added or removed", 0, group.env_steps).error(path)
        count -= group.last - group.first + 1
        group = next(newest_first, None)


def _file_stamp(path: Path) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Device and inode of the file, and a stamp that changes when the file or its write-ahead log is written."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise TownletError(f"cannot read {path}: {error.strerror}", "check whether it was moved or removed") from None
    stamp: tuple[int, ...] = (found.st_size, found.st_mtime_ns)
    with suppress(OSError):
        log = os.stat(wal_path(path))
        stamp += (log.st_size, log.st_mtime_ns)
    return (found.st_dev, found.st_ino), stamp
