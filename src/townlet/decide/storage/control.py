"""Control data of the decision log: which records are known to be on the disk, in a separate file.

Two slots with checksums are written in turn, so that a torn write leaves the other one. The file never grows: it can
be written on a full disk. At a start it reveals records that are missing at the end of the log.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from townlet.runs import disk

FILE: Final = "control"
MAGIC: Final = b"townctl\n"
VERSION: Final = 1
SLOT: Final = struct.Struct("<8sIQ16sQQQQQB")  # magic, version, sequence number, then the fields of `Control`
CHECK: Final = struct.Struct("<I")
SLOT_BYTES: Final = 4096  # a page of its own for each, so that a torn write touches one of them only


class Control(NamedTuple):
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
        self._path = folder / FILE
        self._descriptor: int | None = None
        self._sequence = 0
        self.written: Control | None = None  # what the file holds
        self.damage: str | None = None  # set while neither slot is readable

    @property
    def exists(self) -> bool:
        """Whether there is a file, whole or not."""
        return self._path.exists()

    def open(self) -> Control | None:
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

    def create(self, control: Control) -> None:
        """Write a new file with both slots."""
        self.close()
        disk.replace_file(self._path, _encoded(1, control) + _encoded(2, control))
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise disk.explained(error, f"cannot open {self._path}") from error
        self._sequence, self.written, self.damage = 2, control, None

    def write(self, control: Control) -> None:
        """Replace the older slot, and wait for the disk."""
        if self._descriptor is None or self.damage is not None:
            return self.create(control)
        place = (self._sequence + 1) % 2 * SLOT_BYTES
        data = memoryview(_encoded(self._sequence + 1, control))
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


def read_slots(path: Path) -> list[tuple[int, Control] | None] | None:
    """Both slots with their sequence numbers, None for one that is damaged; None where there is no file."""
    if not path.exists():
        return None
    data = disk.read_bounded(path, 1 << 20).ljust(2 * SLOT_BYTES, b"\0")
    slots: list[tuple[int, Control] | None] = []
    for place in (0, SLOT_BYTES):
        check = CHECK.unpack_from(data, place + SLOT.size)[0]
        magic, version, sequence, log_id, synced, oldest, segment, size, serving, off = SLOT.unpack_from(data, place)
        rest = data[place + SLOT.size + CHECK.size : place + SLOT_BYTES]
        whole = crc32(data[place : place + SLOT.size]) == check and not rest.strip(b"\0")
        known = whole and magic == MAGIC and version == VERSION
        control = Control(log_id, synced, oldest, segment, size, serving, bool(off))
        slots.append((sequence, control) if known else None)
    return slots


def _encoded(sequence: int, control: Control) -> bytes:
    facts = SLOT.pack(MAGIC, VERSION, sequence, *control)
    return (facts + CHECK.pack(crc32(facts))).ljust(SLOT_BYTES, b"\0")
