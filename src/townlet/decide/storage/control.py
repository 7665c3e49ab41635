"""Control file of the decision log, and opening a log, which is checked against its control file.

The control file stores which records are known to be synced, so that startup detects records missing at the end of the
log. Its two slots have checksums and are written in turn, so that a torn write leaves the other one intact. The file
never grows, so it can be written on a full disk.
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

from townlet.decide.storage import StorageNotice, segments
from townlet.errors import TownletError
from townlet.runs import disk

CONTROL_FILE: Final = "control"
CONTROL_MAGIC: Final = b"townctl\n"
CONTROL_VERSION: Final = 1
SLOT: Final = struct.Struct("<8sIQ16sQQQQQB")  # magic, version, sequence number, then the fields of `ControlData`
SLOT_CHECKSUM: Final = struct.Struct("<I")
SLOT_BYTES: Final = 4096  # one page per slot, so that a torn write affects only one of them
ACCEPT_DATA_LOSS: Final = "--accept-data-loss"
ReferenceCheck = Callable[[int, bool], list[StorageNotice]]  # (last record, whether loss is accepted) → problems


class ControlData(NamedTuple):
    """What is known about a log independently of its segments."""

    log_id: bytes
    synced: int = 0  # the last synced record
    oldest: int = 1  # the first record that is kept
    segment: int = 1  # the first record of the current segment
    size: int = 0  # synced bytes of that segment
    serving: int = 0  # number of the last change in the serving log
    gate_only: bool = False  # whether gate-only mode was on after that change


class ControlFile:
    """The control file of a log folder, for its only writer."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / CONTROL_FILE
        self._descriptor: int | None = None
        self._sequence = 0
        self.written: ControlData | None = None  # current contents of the file
        self.damage: str | None = None  # set while neither slot is readable

    def open(self) -> ControlData | None:
        """Read the newest slot; None if the file is missing or damaged (see `damage`)."""
        slots = read_slots(self._path)
        if slots is None:
            self.damage = f"{self._path.name} is missing"
            return None
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        valid = [slot for slot in slots if slot is not None]
        if not valid:
            self.damage = f"{self._path.name} is damaged: neither of its two slots matches its checksum"
            return None
        self._sequence, self.written = max(valid)
        return self.written

    def create(self, control: ControlData) -> None:
        """Write a new file with both slots."""
        self.close()
        disk.replace_file(self._path, _encode_slot(1, control) + _encode_slot(2, control))
        with disk.os_errors(f"cannot open {self._path}"):
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._sequence, self.written, self.damage = 2, control, None

    def write(self, control: ControlData) -> None:
        """Replace the older slot and sync it."""
        if self._descriptor is None or self.damage is not None:
            return self.create(control)
        offset = (self._sequence + 1) % 2 * SLOT_BYTES
        data = memoryview(_encode_slot(self._sequence + 1, control))
        while data:
            count = os.pwrite(self._descriptor, data, offset)
            data, offset = data[count:], offset + count
        os.fdatasync(self._descriptor)
        self._sequence, self.written = self._sequence + 1, control

    def close(self) -> None:
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def read_slots(path: Path) -> list[tuple[int, ControlData] | None] | None:
    """Both slots with their sequence numbers, None for a damaged one; None if there is no file."""
    if not path.exists():
        return None
    data = disk.read_bounded(path, 1 << 20).ljust(2 * SLOT_BYTES, b"\0")
    slots: list[tuple[int, ControlData] | None] = []
    for offset in (0, SLOT_BYTES):
        checksum = SLOT_CHECKSUM.unpack_from(data, offset + SLOT.size)[0]
        magic, version, sequence, *fields, gate_only = SLOT.unpack_from(data, offset)
        padding = data[offset + SLOT.size + SLOT_CHECKSUM.size : offset + SLOT_BYTES]
        valid = crc32(data[offset : offset + SLOT.size]) == checksum and not padding.strip(b"\0")
        readable = valid and magic == CONTROL_MAGIC and version == CONTROL_VERSION
        control = ControlData(*fields)._replace(gate_only=bool(gate_only))
        slots.append((sequence, control) if readable else None)
    return slots


def _encode_slot(sequence: int, control: ControlData) -> bytes:
    data = SLOT.pack(CONTROL_MAGIC, CONTROL_VERSION, sequence, *control)
    return (data + SLOT_CHECKSUM.pack(crc32(data))).ljust(SLOT_BYTES, b"\0")


class DataLossError(TownletError):
    """Records that had been synced are missing."""

    def __init__(self, what: str, folder: Path) -> None:
        fix = f"restore a backup, or start with {ACCEPT_DATA_LOSS} to continue without the missing records"
        super().__init__(what, fix, folder)


def open_log(
    folder: Path, segment_bytes: int, accept_data_loss: bool, check: ReferenceCheck | None = None
) -> tuple[ControlFile, ControlData, segments.SegmentWriter, list[StorageNotice]]:
    """Open the end of a log for writing; raises `LogDamage` or `DataLossError` before anything is written.

    The returned control data are those read from the control file, or rebuilt from the log if it was lost.
    """
    notices = cut_at_damage(folder) if accept_data_loss else []
    control_file, log_end = ControlFile(folder), segments.find_log_end(folder)
    try:
        with disk.os_errors(f"cannot open the control file in {folder}"):
            control = control_file.open()
        if control is not None:
            notices += _check_control(folder, control, log_end, accept_data_loss)
        elif log_end.segment is not None or (folder / CONTROL_FILE).exists():
            notices += _check_without_control(folder, control_file, log_end, accept_data_loss)
        if check is not None:
            notices += check(log_end.end.last, accept_data_loss)
        log_id = (control.log_id if control else log_end.end.log_id) or secrets.token_bytes(16)
        if control is None and log_end.segment is None:
            control_file.create(ControlData(log_id))  # before the first segment: without it a log is incomplete
        writer = segments.SegmentWriter(folder, segment_bytes, log_id, log_end)
    except BaseException:
        control_file.close()
        raise
    control = (control or ControlData(log_id, log_end.end.last))._replace(oldest=log_end.oldest)
    return control_file, control, writer, [*notices, *writer.notices]


def cut_at_damage(folder: Path) -> list[StorageNotice]:
    """Move everything from the first damaged record on into a separate folder; the records before it stay."""
    files = segments.list_segments(folder)
    for index, (segment, stop) in enumerate(segments.with_stops(files)):
        try:
            segments.find_segment_end(segment, segments.read_segment(segment), stop)
        except segments.LogDamage as damage:
            return [_set_aside(folder, damage, files[index:])]
    return []


def _set_aside(folder: Path, damage: segments.LogDamage, files: list[segments.Segment]) -> StorageNotice:
    aside = folder / f"set-aside-{segments.timestamp()}"
    disk.make_folder(aside)
    for segment in files[:0:-1]:  # the last one first, so that a crash leaves no gap
        os.rename(segment.path, aside / segment.path.name)
        disk.sync_folder(aside)  # before the source: after a power loss the file must be in one of them
        disk.sync_folder(folder)
    first = files[0].path
    if damage.offset:
        disk.replace_file(aside / first.name, first.read_bytes())
        os.truncate(first, damage.offset)
        disk.sync_file(first)
    else:
        os.rename(first, aside / first.name)
    disk.sync_folder(aside)
    disk.sync_folder(folder)
    what = f"The log was cut after record {damage.last}: {damage.diagnostics[0].what}"
    return StorageNotice("data_loss", what, f"The removed files are in {aside}.")


def missing_records(last: int, referenced: int, source: str) -> str:
    """The message that the log ends before a record that another file refers to."""
    lost = "it is missing" if referenced == last + 1 else f"records {last + 1} to {referenced} are missing"
    return f"the log ends at record {last}, but {source} refers to record {referenced}: {lost}"


def loss_notice(what: str) -> StorageNotice:
    """The alarm of a service that was started although records are missing."""
    lost = f"Started with {ACCEPT_DATA_LOSS}: decisions and outcomes of these records are lost."
    return StorageNotice("data_loss", what[0].upper() + what[1:], f"{lost} The next start clears this alarm.")


def _check_control(
    folder: Path, control: ControlData, log_end: segments.LogEnd, accept_data_loss: bool
) -> list[StorageNotice]:
    """Refuse a log with another id, or one that ends before a record that was synced."""
    segment, end = log_end.segment, log_end.end
    if end.log_id and end.log_id != control.log_id:
        what = "the segments and the control file belong to different logs"
        raise TownletError(what, "restore the folder from a backup", folder)
    if segment is not None and log_end.oldest > control.oldest:
        what = f"the log begins with record {log_end.oldest}, but should begin with record {control.oldest}"
    elif end.last < control.synced:
        what = missing_records(end.last, control.synced, "its control file")
        if segment is not None and end.torn:
            what += f" ({segment.path.name} is unreadable from byte {end.offset} on)"
    else:
        return []
    if not accept_data_loss:
        raise DataLossError(what, folder)
    return [loss_notice(what)]


def _check_without_control(
    folder: Path, control_file: ControlFile, log_end: segments.LogEnd, accept_data_loss: bool
) -> list[StorageNotice]:
    """Continue without the control file, unless the end of the log suggests that records are missing."""
    if (log_end.end.torn or log_end.segment is None) and not accept_data_loss:
        state = "its last write was cut off" if log_end.segment else "there are no segments"
        what = f"the control file of the log is lost ({control_file.damage}), and {state}: records may be missing"
        raise DataLossError(what, folder)
    fix = "It was rebuilt from the log, which is intact. Check the disk."
    return [StorageNotice("control", f"The control file of the log was lost: {control_file.damage}", fix)]
