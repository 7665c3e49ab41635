"""Snapshots, versions and the serving record refer to log records: a log that ends before one has lost records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from townlet.decide.storage import snapshots
from townlet.decide.storage.log_opening import DataLoss, accepted, missing
from townlet.decide.storage.notices import StorageNotice
from townlet.decide.storage.serving_log import FILE, listed, read_record, write_record
from townlet.decide.storage.tail import timestamp
from townlet.runs import checkpoint, disk

VERSIONS: Final = "versions"  # the folder of versions in that of a service


class RecordReference(NamedTuple):
    """A file that was written when the log had reached a record."""

    record: int
    source: str  # in words
    path: Path


def references(folder: Path) -> Iterator[RecordReference]:
    """Everything in the folder of a service that names a record of the log."""
    for part in (snapshots.FOLDER, VERSIONS):
        whole, _ = checkpoint.survey(folder / part)
        for found in whole:
            if isinstance(record := found.info.get("record"), int):
                yield RecordReference(record, f"{part}/{found.name}", found.path)
    path = folder / VERSIONS / FILE
    for change in listed(path):
        yield RecordReference(change.record, f"{VERSIONS}/{FILE} (change {change.number})", path)


def check_length(folder: Path, last: int, accept_data_loss: bool) -> list[StorageNotice]:
    """Refuse a log that ends before a record that other files refer to; or, if accepted, move these aside."""
    beyond = [one for one in references(folder) if one.record > last]
    if not beyond:
        return []
    newest = max(beyond)
    what = missing(last, newest.record, newest.source)
    if not accept_data_loss:
        raise DataLoss(what, folder)
    aside = folder / f"set-aside-{timestamp()}"
    for path in {one.path for one in beyond}:
        _move_aside(path, aside / path.relative_to(folder), last)
    notice = accepted(what)
    return [notice._replace(fix=f"{notice.fix} Later snapshots, versions and changes are in {aside.name}.")]


def _move_aside(path: Path, target: Path, last: int) -> None:
    """Move a snapshot or version; in the serving record, only remove the changes after record `last`."""
    disk.make_folder(target.parent)
    if path.name != FILE:
        os.rename(path, target)
    else:
        disk.replace_file(target, path.read_bytes())
        if not (record := read_record(path)).damaged:  # a damaged one stays as it is
            write_record(path, [change for change in record.changes if change.record <= last])
    disk.sync_folder(target.parent)
    disk.sync_folder(path.parent)
