"""Which tables of a metrics file were found intact, so that readers check every row once and then only new ones."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final, NamedTuple

from townlet.errors import TownletError
from townlet.runs import integrity
from townlet.runs.integrity import Damage
from townlet.runs.schema import GROUPS

REMEMBERED: Final = 256  # tables, of all files together
Stamp = tuple[int, ...]


class IntactTable(NamedTuple):
    """A table as it was when it was last checked: the file's size and date, and its last group."""

    stamp: Stamp
    number: int
    digest: bytes
    row: int


_checked: dict[tuple[int, int, str], IntactTable] = {}


def require_intact(connection: sqlite3.Connection, path: Path, table: str, last: int | None = None) -> None:
    """Refuse a table whose rows or indexes are damaged; with `last` only the groups of its last rows are checked.

    A file that has not changed since is not read again; of one that has grown, only the new groups are.
    """
    identity, stamp = _stamp(path)
    before = _checked.get((*identity, table))
    if before and before.stamp == stamp:
        return
    if before is None and last is not None:
        _require_newest(connection, path, table, last)
        return
    known = before if before and _continues(connection, before) else None
    chain = integrity.groups(connection, table, known.number if known else 0)
    if known and not chain:  # the file has changed, yet not by a flush of this table
        known, chain = None, integrity.groups(connection, table)
    for damage in integrity.damages(connection, table, chain, known.row if known else 0):
        raise damage.error(path)
    if known is None and (fault := integrity.structure(connection, table)):
        raise Damage(table, fault).error(path)
    if chain:
        if len(_checked) >= REMEMBERED:
            _checked.clear()
        _checked[(*identity, table)] = IntactTable(stamp, chain[-1].number, chain[-1].digest, chain[-1].last)


def _require_newest(connection: sqlite3.Connection, path: Path, table: str, rows: int) -> None:
    """Refuse damaged groups among those of the last rows, and rows behind them that have no checksum."""
    found = integrity.newest_groups(connection, table, rows)
    (largest,) = connection.execute(f'SELECT coalesce(max(rowid), 0) FROM "{table}"').fetchone()
    if largest != (found[0].last if found else 0):
        raise Damage(table, f"the table has {largest} rows, but the checksums cover others").error(path)
    for group in found:
        if not integrity.intact(connection, group):
            raise Damage(table, "rows were changed, added or removed", 0, group.env_steps).error(path)


def _continues(connection: sqlite3.Connection, before: IntactTable) -> bool:
    """Whether the chain still holds the group at which the last check ended."""
    query = f'SELECT "digest" FROM "{GROUPS}" WHERE rowid = ?'
    return bool(connection.execute(query, (before.number,)).fetchone() == (before.digest,))


def _stamp(path: Path) -> tuple[tuple[int, int], Stamp]:
    """Identity of the file, and a stamp that changes when it or its log is written."""
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
