"""Opening a decision log: it is checked against its control data before anything is written."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from townlet.decide.storage.control import Control, ControlFile
from townlet.decide.storage.notices import StorageNotice
from townlet.decide.storage.tail import LogEnd, Tail, cut_at_damage, find_end
from townlet.errors import Mark, TownletError
from townlet.runs import disk

OVERRIDE: Final = "--accept-data-loss"
Check = Callable[[int, bool], list[StorageNotice]]  # of the last record, and whether a loss is accepted


class DataLoss(TownletError):
    """Records are missing that were on the disk before."""

    def __init__(self, what: str, folder: Path) -> None:
        fix = f"restore a backup, or start with {OVERRIDE} to continue without the missing records"
        super().__init__(what, fix, Mark(str(folder)))


class OpenedLog(NamedTuple):
    """A log that is ready for writing."""

    log_id: bytes
    control: ControlFile
    known: Control  # the control data at the start, or what follows from the log where they were lost
    tail: Tail
    notices: list[StorageNotice]  # what was wrong


def open_log(folder: Path, segment_bytes: int, accept_data_loss: bool, check: Check | None = None) -> OpenedLog:
    """Open the end of a log; raises `LogDamage` or `DataLoss` where records are missing, before anything is written."""
    notices = cut_at_damage(folder) if accept_data_loss else []
    control, found = ControlFile(folder), find_end(folder)
    try:
        try:
            known = control.open()
        except OSError as error:
            raise disk.explained(error, f"cannot open the control data in {folder}") from error
        if known is not None:
            notices += _check(folder, known, found, accept_data_loss)
        elif found.segment is not None or control.exists:
            notices += _rebuild(folder, control, found, accept_data_loss)
        if check is not None:
            notices += check(found.end.last, accept_data_loss)
        log_id = (known.log_id if known else found.end.log_id) or secrets.token_bytes(16)
        if known is None and found.segment is None:
            control.create(Control(log_id))  # before the first segment: a log without control data is incomplete
        tail = Tail(folder, segment_bytes, log_id, found)
    except BaseException:
        control.close()
        raise
    known = known or Control(log_id, found.end.last, found.oldest)
    return OpenedLog(log_id, control, known._replace(oldest=found.oldest), tail, [*notices, *tail.notices])


def missing(last: int, known: int, source: str) -> str:
    """Message: the log ends before a record that another file refers to."""
    lost = f"record {known}" if known == last + 1 else f"records {last + 1} to {known}"
    return f"the log ends at record {last}, but {source} refers to record {known}: {lost} missing"


def accepted(what: str) -> StorageNotice:
    """The alarm of a start that continues without missing records."""
    fix = (
        f"Started with {OVERRIDE}: decisions and outcomes of these records are lost. The next start clears this alarm."
    )
    return StorageNotice("data_loss", what[0].upper() + what[1:], fix)


def _check(folder: Path, known: Control, found: LogEnd, accept_data_loss: bool) -> list[StorageNotice]:
    """Refuse a log with another id, or one that ends before a record that was on the disk."""
    if found.end.log_id and found.end.log_id != known.log_id:
        what = "the segments and the control data belong to different logs"
        raise TownletError(what, "restore the folder from a backup", Mark(str(folder)))
    if found.segment is not None and found.oldest > known.oldest:
        what = f"the log begins with record {found.oldest}, but should begin with record {known.oldest}"
    elif found.end.last < known.synced:
        what = missing(found.end.last, known.synced, "its control data")
        if found.segment is not None and found.end.torn:
            what += f" ({found.segment.path.name} is unreadable from byte {found.end.place} on)"
    else:
        return []
    if not accept_data_loss:
        raise DataLoss(what, folder)
    return [accepted(what)]


def _rebuild(folder: Path, control: ControlFile, found: LogEnd, accept_data_loss: bool) -> list[StorageNotice]:
    """Continue without control data, unless the end of the log suggests that records are missing."""
    if (found.end.torn or found.segment is None) and not accept_data_loss:
        state = "its last write was cut off" if found.segment else "there are no segments"
        what = f"the control data of the log are lost ({control.damage}), and {state}: records may be missing"
        raise DataLoss(what, folder)
    fix = "They were rebuilt from the log, which is whole. Check the disk."
    return [StorageNotice("control", f"The control data of the log were lost: {control.damage}", fix)]
