"""Snapshots and versions know how long the log was when they were written: a shorter log has lost records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from townlet.decide.log_opening import DataLoss, accepted, missing
from townlet.decide.notices import StorageNotice
from townlet.decide.tail import timestamp
from townlet.runs import checkpoint, disk


class RecordReference(NamedTuple):
    """A file that was written when the log had reached a record."""

    record: int
    source: str  # in words
    path: Path


def references(folder: Path) -> Iterator[RecordReference]:
    """Every snapshot and version in a folder whose manifest names a record."""
    whole, _ = checkpoint.survey(folder)
    for found in whole:
        if isinstance(record := found.info.get("record"), int):
            yield RecordReference(record, f"{folder.name}/{found.name}", found.path)


def check_length(folder: Path, parts: Sequence[str], last: int, accept_data_loss: bool) -> list[StorageNotice]:
    """Refuse a log that ends before a record that other files refer to; with consent these are moved aside."""
    beyond = [one for part in parts for one in references(folder / part) if one.record > last]
    if not beyond:
        return []
    newest = max(beyond)
    what = missing(last, newest.record, newest.source)
    if not accept_data_loss:
        raise DataLoss(what, folder)
    aside = folder / f"set-aside-{timestamp()}"
    for one in beyond:
        target = aside / one.path.relative_to(folder)
        disk.make_folder(target.parent)
        os.rename(one.path, target)
        disk.sync_folder(target.parent)
        disk.sync_folder(one.path.parent)
    notice = accepted(what)
    return [notice._replace(fix=f"{notice.fix} {len(beyond)} later snapshots and versions are in {aside.name}.")]
