"""Control data of the decision log: which records are known to be on the disk, in a separate file.

Two slots with checksums are written in turn, so that a torn write leaves the other one. The file never grows: it can
be written on a full disk. At a start it reveals records that are missing at the end of the log.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from townlet.decide.storage import StorageNotice
from townlet.decide.storage.segments import LogEnd, SegmentWriter, cut_at_damage, find_end
from townlet.errors import SourceLocation, TownletError
from townlet.runs import disk

CONTROL_FILE: Final = "control"
CONTROL_MAGIC: Final = b"townctl\n"
CONTROL_VERSION: Final = 1
SLOT: Final = struct.Struct("<8sIQ16sQQQQQB")  # magic, version, sequence number, then the fields of `Control`
SLOT_CHECKSUM: Final = struct.Struct("<I")
SLOT_BYTES: Final = 4096  # a page of its own for each, so that a torn write touches one of them only


class ControlData(NamedTuple):
    """Facts about a log that hold from the moment they are written."""

    log_id: bytes
    synced: int = 0  # the last record that is on the disk
    oldest: int = 1  # the first record that is kept
    segment: int = 1  # the first record of the segment that is written
    size: int = 0  # bytes of that segment that are on the disk
    serving: int = 0  # number of the last change of the serving record
    gate_only: bool = False  # whether the kill switch was on after it


class ControlFile:
    """The control file of a log folder, for its one writer."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / CONTROL_FILE
        self._descriptor: int | None = None
        self._sequence = 0
        self.written: ControlData | None = None  # what the file holds
        self.damage: str | None = None  # set while neither slot is readable

    @property
    def exists(self) -> bool:
        """Whether there is a file, whole or not."""
        return self._path.exists()

    def open(self) -> ControlData | None:
        """Read the newest slot; None where the file is missing or damaged (`damage` says which)."""
        slots = read_slots(self._path)
        if slots is None:
            self.damage = f"{self._path.name} is missing"
            return None
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        whole = [slot for slot in slots if slot is not None]
        if not whole:
            self.damage = f"{self._path.name} is damaged: neither of its two slots matches its checksum"
            return None
        self._sequence, self.written = max(whole)
        return self.written

    def create(self, control: ControlData) -> None:
        """Write a new file with both slots."""
        self.close()
        disk.replace_file(self._path, _encode_slot(1, control) + _encode_slot(2, control))
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise disk.describe_error(error, f"cannot open {self._path}") from error
        self._sequence, self.written, self.damage = 2, control, None

    def write(self, control: ControlData) -> None:
        """Replace the older slot, and wait for the disk."""
        if self._descriptor is None or self.damage is not None:
            return self.create(control)
        place = (self._sequence + 1) % 2 * SLOT_BYTES
        data = memoryview(_encode_slot(self._sequence + 1, control))
        while data:
            count = os.pwrite(self._descriptor, data, place)
            data, place = data[count:], place + count
        os.fdatasync(self._descriptor)
        self._sequence, self.written = self._sequence + 1, control

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def read_slots(path: Path) -> list[tuple[int, ControlData] | None] | None:
    """Both slots with their sequence numbers, None for one that is damaged; None where there is no file."""
    if not path.exists():
        return None
    data = disk.read_bounded(path, 1 << 20).ljust(2 * SLOT_BYTES, b"\0")
    slots: list[tuple[int, ControlData] | None] = []
    for place in (0, SLOT_BYTES):
        check = SLOT_CHECKSUM.unpack_from(data, place + SLOT.size)[0]
        magic, version, sequence, log_id, synced, oldest, segment, size, serving, off = SLOT.unpack_from(data, place)
        rest = data[place + SLOT.size + SLOT_CHECKSUM.size : place + SLOT_BYTES]
        whole = crc32(data[place : place + SLOT.size]) == check and not rest.strip(b"\0")
        known = whole and magic == CONTROL_MAGIC and version == CONTROL_VERSION
        control = ControlData(log_id, synced, oldest, segment, size, serving, bool(off))
        slots.append((sequence, control) if known else None)
    return slots


def _encode_slot(sequence: int, control: ControlData) -> bytes:
    facts = SLOT.pack(CONTROL_MAGIC, CONTROL_VERSION, sequence, *control)
    return (facts + SLOT_CHECKSUM.pack(crc32(facts))).ljust(SLOT_BYTES, b"\0")


ACCEPT_DATA_LOSS: Final = "--accept-data-loss"
ReferenceCheck = Callable[[int, bool], list[StorageNotice]]  # of the last record, and whether a loss is accepted


class DataLossError(TownletError):
    """Records are missing that were on the disk before."""

    def __init__(self, what: str, folder: Path) -> None:
        fix = f"restore a backup, or start with {ACCEPT_DATA_LOSS} to continue without the missing records"
        super().__init__(what, fix, SourceLocation(str(folder)))


class OpenedLog(NamedTuple):
    """A log that is ready for writing."""

    log_id: bytes
    control: ControlFile
    known: ControlData  # the control data at the start, or what follows from the log where they were lost
    tail: SegmentWriter
    notices: list[StorageNotice]  # what was wrong


def open_log(
    folder: Path, segment_bytes: int, accept_data_loss: bool, check: ReferenceCheck | None = None
) -> OpenedLog:
    """Open the end of a log; raises `LogDamage` or `DataLoss` where records are missing, before anything is written."""
    notices = cut_at_damage(folder) if accept_data_loss else []
    control, found = ControlFile(folder), find_end(folder)
    try:
        try:
            known = control.open()
        except OSError as error:
            raise disk.describe_error(error, f"cannot open the control data in {folder}") from error
        if known is not None:
            notices += _check_control(folder, known, found, accept_data_loss)
        elif found.segment is not None or control.exists:
            notices += _check_without_control(folder, control, found, accept_data_loss)
        if check is not None:
            notices += check(found.end.last, accept_data_loss)
        log_id = (known.log_id if known else found.end.log_id) or secrets.token_bytes(16)
        if known is None and found.segment is None:
            control.create(ControlData(log_id))  # before the first segment: a log without control data is incomplete
        tail = SegmentWriter(folder, segment_bytes, log_id, found)
    except BaseException:
        control.close()
        raise
    known = known or ControlData(log_id, found.end.last, found.oldest)
    return OpenedLog(log_id, control, known._replace(oldest=found.oldest), tail, [*notices, *tail.notices])


def missing_records(last: int, known: int, source: str) -> str:
    """Message: the log ends before a record that another file refers to."""
    lost = f"record {known}" if known == last + 1 else f"records {last + 1} to {known}"
    return f"the log ends at record {last}, but {source} refers to record {known}: {lost} missing"


def loss_notice(what: str) -> StorageNotice:
    """The alarm of a start that continues without missing records."""
    fix = (
        f"Started with {ACCEPT_DATA_LOSS}: decisions and outcomes of these records are lost. "
        "The next start clears this alarm."
    )
    return StorageNotice("data_loss", what[0].upper() + what[1:], fix)


def _check_control(folder: Path, known: ControlData, found: LogEnd, accept_data_loss: bool) -> list[StorageNotice]:
    """Refuse a log with another id, or one that ends before a record that was on the disk."""
    if found.end.log_id and found.end.log_id != known.log_id:
        what = "the segments and the control data belong to different logs"
        raise TownletError(what, "restore the folder from a backup", SourceLocation(str(folder)))
    if found.segment is not None and found.oldest > known.oldest:
        what = f"the log begins with record {found.oldest}, but should begin with record {known.oldest}"
    elif found.end.last < known.synced:
        what = missing_records(found.end.last, known.synced, "its control data")
        if found.segment is not None and found.end.torn:
            what += f" ({found.segment.path.name} is unreadable from byte {found.end.place} on)"
    else:
        return []
    if not accept_data_loss:
        raise DataLossError(what, folder)
    return [loss_notice(what)]


def _check_without_control(
    folder: Path, control: ControlFile, found: LogEnd, accept_data_loss: bool
) -> list[StorageNotice]:
    """Continue without control data, unless the end of the log suggests that records are missing."""
    if (found.end.torn or found.segment is None) and not accept_data_loss:
        state = "its last write was cut off" if found.segment else "there are no segments"
        what = f"the control data of the log are lost ({control.damage}), and {state}: records may be missing"
        raise DataLossError(what, folder)
    fix = "They were rebuilt from the log, which is whole. Check the disk."
    return [StorageNotice("control", f"The control data of the log were lost: {control.damage}", fix)]
