"""The end of the decision log, where records are written; and what happens to a torn tail at a start."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from townlet.decide.storage.notices import StorageNotice
from townlet.decide.storage.segments import (
    HEADER,
    RECORD,
    LogDamage,
    Segment,
    SegmentEnd,
    content,
    encoded,
    end_of,
    header,
    listing,
)
from townlet.runs import disk


class LogEnd(NamedTuple):
    """The last segment of a log and where its whole records end."""

    segment: Segment | None  # None for a log without segments
    end: SegmentEnd
    oldest: int  # the first record that is kept


def find_end(folder: Path) -> LogEnd:
    """Where the log ends; raises `LogDamage` if more than a torn tail is wrong with its last segment."""
    segments = listing(folder)
    if not segments:
        return LogEnd(None, SegmentEnd(0, 0, 0, b""), 1)
    segment = segments[-1]
    end = end_of(segment, content(segment))
    if not end.log_id and len(segments) > 1:  # the id of the log is in the segment before
        before = segments[-2]
        end = end._replace(log_id=end_of(before, content(before), segment.first).log_id)
    return LogEnd(segment, end, segments[0].first)


def cut_at_damage(folder: Path) -> list[StorageNotice]:
    """Move everything from the first damaged record on into a folder; what is before it stays the log."""
    segments = listing(folder)
    for place, segment in enumerate(segments):
        stop = segments[place + 1].first if place + 1 < len(segments) else None
        try:
            end_of(segment, content(segment), stop)
        except LogDamage as damage:
            return [_cut(folder, damage, [segment, *segments[place + 1 :]])]
    return []


def _cut(folder: Path, damage: LogDamage, segments: list[Segment]) -> StorageNotice:
    aside = folder / f"set-aside-{timestamp()}"
    disk.make_folder(aside)
    for segment in segments[:0:-1]:  # the last one first, so that a crash leaves no gap
        os.rename(segment.path, aside / segment.path.name)
        disk.sync_folder(aside)  # first: power loss must not keep the removal without the copy
        disk.sync_folder(folder)
    first = segments[0].path
    if damage.place:
        disk.replace_file(aside / first.name, first.read_bytes())
        os.truncate(first, damage.place)
        disk.sync_file(first)
    else:
        os.rename(first, aside / first.name)
    disk.sync_folder(aside)
    disk.sync_folder(folder)
    what = f"The log was cut after record {damage.last}: {damage.mistakes[0].what}"
    return StorageNotice("data_loss", what, f"The removed files are in {aside}.")


class Tail:
    """Appends records to the log. Used by one thread only.

    After a failed write or fsync the disk may have lost part of it: the segment is cut to the bytes that are known to
    be on the disk, and the records are written again into a new segment.
    """

    def __init__(self, folder: Path, segment_bytes: int, log_id: bytes, found: LogEnd) -> None:
        self._folder, self._segment_bytes, self._log_id = folder, segment_bytes, log_id
        self._descriptor: int | None = None
        self._size = 0  # bytes of the segment that are on the disk
        self._first = found.end.last + 1  # the first record of the segment
        self._own: Path | None = None  # the last segment that this process began
        self.synced = found.end.last  # the last record that is on the disk
        self.notices: list[StorageNotice] = []
        try:
            self._open(found)
        except OSError as error:
            self.close()
            raise disk.explained(error, f"cannot open the log in {folder}") from error

    @property
    def segment(self) -> tuple[int, int]:
        """The first record of the current segment, and its bytes that are on the disk."""
        return self._first, self._size

    def _open(self, found: LogEnd) -> None:
        """Continue the last segment. A torn tail is copied to a file of its own before it is cut off."""
        segment, end = found.segment, found.end
        if segment is None or (end.torn and not self._save_torn(segment, end)) or not end.place:
            return  # the first write begins a new segment
        self._descriptor = os.open(segment.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if end.torn:
            os.ftruncate(self._descriptor, end.place)
        os.fsync(self._descriptor)  # a killed process may have written more than the disk has
        disk.sync_folder(self._folder)
        self._first, self._size = segment.first, end.place

    def _save_torn(self, segment: Segment, end: SegmentEnd) -> bool:
        """Copy the torn tail; whether it may be cut off now. If there is no room for a copy, it stays in place."""
        torn = content(segment)[end.place :]
        copy = self._folder / f"torn-{end.last + 1:012d}-{timestamp()}.bin"
        where = f"after record {end.last} of {segment.path.name}"
        what = f"The last write of the log was cut off by a crash: {len(torn)} bytes {where}"
        fix = "No acknowledged record is affected, unless the disk lost what it had confirmed."
        try:
            disk.write_new(copy, torn)
            disk.sync_file(copy)
            disk.sync_folder(self._folder)
        except OSError:
            with suppress(OSError):
                copy.unlink(missing_ok=True)
            self.notices.append(StorageNotice("torn_tail", f"{what} stay there: no room for a copy", fix, grave=False))
            return False
        self.notices.append(StorageNotice("torn_tail", f"{what} were moved to {copy.name}", fix, grave=False))
        return True

    @property
    def is_full(self) -> bool:
        """Whether the next record begins a segment."""
        return self._descriptor is None or self._size >= self._segment_bytes

    def put(self, payloads: Sequence[bytes]) -> int:
        """Write as many of these records as the segment can hold; how many are on the disk now."""
        if self.is_full:
            self._begin()
        count = fitting([RECORD.size + len(payload) for payload in payloads], self._segment_bytes - self._size)
        group = enumerate(payloads[:count], 1)
        data = b"".join([encoded(self.synced + place, payload, place) for place, payload in group])
        try:
            self._write(data)
        except OSError:
            self._abandon()
            raise
        self._size += len(data)
        self.synced += count
        return count

    def _begin(self) -> None:
        """Begin a segment. An existing file of that name has no acknowledged record; it is kept under another name."""
        self.close()
        self._first = self.synced + 1
        path = self._folder / f"log-{self._first:012d}.wal"
        if path == self._own or (path.exists() and path.stat().st_size <= HEADER.size):
            path.unlink(missing_ok=True)  # its records, if any, are still in memory
        elif path.exists():
            os.rename(path, self._folder / f"torn-{self._first:012d}-{timestamp()}.bin")
        self._own = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._size = HEADER.size
        try:
            self._write(header(self._first, self._log_id))
            disk.sync_folder(self._folder)
        except OSError:
            self.close()
            raise

    def _write(self, data: bytes) -> None:
        assert self._descriptor is not None
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        os.fdatasync(self._descriptor)

    def _abandon(self) -> None:
        """Leave the segment with what is on the disk; the cut records are still in memory.

        If it cannot be cut either, readers ignore the rest, since the next segment begins with the same record.
        """
        assert self._descriptor is not None
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._size)
            os.fsync(self._descriptor)
        self.close()

    def close(self) -> None:
        """Close the file. Errors do not matter: everything acknowledged was synced before."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def timestamp() -> str:
    """The time as a part of file names."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")


def fitting(sizes: Sequence[int], room: int) -> int:
    """How many of the first records fit into so many bytes, at least one."""
    if sum(sizes) <= room:
        return len(sizes)
    return max(1, bisect_right(list(accumulate(sizes)), room))
