"""Segment files of the decision log: format, reading and writing.

A segment is a header followed by records. Each record carries a marker, its number, and how many records before it
were not yet synced when it was written. A valid record therefore proves that the records before those had been synced:
if one of them is unreadable, the log is damaged. Unreadable bytes without such a proof are a torn tail: the rest of a
write that was never acknowledged (power loss may keep the end of a write and lose its beginning).
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from townlet.decide.storage import StorageNotice
from townlet.errors import TownletError
from townlet.runs import disk

MAGIC: Final = b"townlog\n"
VERSION: Final = 3
HEADER: Final = struct.Struct("<8sIQ16sI")  # magic, version, number of the first record, log id, CRC-32 of these
HEADER_V1: Final = struct.Struct("<8sIQI")  # the header of format 1, which had no log id
MARKER: Final = b"\xf5\xfe\xffR"  # not UTF-8, so that no JSON payload contains it
# Marker, number, position in its group of records written together (1, 2, …), payload bytes, CRC-32 of what follows
# the marker.
RECORD: Final = struct.Struct("<4sQIII")
RECORD_META: Final = struct.Struct("<QII")  # covered by the checksum, like the payload
CHECKSUM: Final = struct.Struct("<I")
SEGMENT_NAME: Final = re.compile(r"log-(\d{12,})\.wal")


class Segment(NamedTuple):
    """A file of the log and the number of its first record."""

    first: int
    path: Path


class SegmentEnd(NamedTuple):
    """Where the valid records of a segment end."""

    last: int  # number of the last valid record; one before the first if there is none
    offset: int  # the byte after it; 0 if the header is invalid
    torn: int  # bytes after that, of a write that was never acknowledged
    log_id: bytes  # empty if the header is invalid


class LogRecord(NamedTuple):
    """A valid record in a segment."""

    number: int
    position: int  # position in the group of records that were written together: 1, 2, …
    payload: bytes
    offset: int
    end: int  # the byte after it


class LogDamage(TownletError):
    """A damaged segment: where the damage is, and the last valid record before it."""

    def __init__(self, segment: Segment, offset: int, last: int, what: str) -> None:
        self.offset, self.last = offset, last
        fix = "restore the file from a backup; `townlet decide verify` lists what can still be used"
        super().__init__(f"{segment.path.name} is damaged at byte {offset}: {what}", fix, segment.path)


def encode_record(number: int, payload: bytes, position: int = 1) -> bytes:
    """Encode a record at this position in a group of records that are written together."""
    meta = RECORD_META.pack(number, position, len(payload))
    return b"".join((MARKER, meta, CHECKSUM.pack(crc32(payload, crc32(meta))), payload))


def list_segments(folder: Path) -> list[Segment]:
    """The segments of a log in order."""
    with disk.os_errors(f"cannot read the log in {folder}"):
        matches = [(SEGMENT_NAME.fullmatch(name), name) for name in os.listdir(folder)]
    return sorted(Segment(int(match[1]), folder / name) for match, name in matches if match)


def with_stops(segments: Sequence[Segment]) -> Iterator[tuple[Segment, int | None]]:
    """Each segment with the first record of the next one, None for the last."""
    return zip(segments, [*(segment.first for segment in segments[1:]), None], strict=False)


def read_segment(segment: Segment) -> bytes:
    with disk.os_errors(f"cannot read {segment.path}"):
        return segment.path.read_bytes()


def read_records(folder: Path, after: int = 0) -> Iterator[tuple[int, bytes]]:
    """Records with numbers above `after`, each with its number, in order.

    Needs no lock and works beside a writer: it stops at a torn tail, and raises `LogDamage` at anything else. A writer
    without space removes a segment that it could not begin; retention removes the first ones.
    """
    segments = list_segments(folder)
    begun = sum(segment.first <= after + 1 for segment in segments)  # the last of these holds the next record
    log_id = b""
    for segment, stop in with_stops(segments[max(begun - 1, 0) :]):
        try:
            data = read_segment(segment)
        except TownletError:
            if segment.path.exists() or (stop is not None and log_id):
                raise
            continue
        segment_log_id = _log_id(segment, data) or b""
        if log_id and segment_log_id and segment_log_id != log_id:
            raise LogDamage(segment, 0, segment.first - 1, "it belongs to another log")
        log_id = log_id or segment_log_id
        for record in _checked_records(segment, data, stop):
            if record.number > after:
                yield record.number, record.payload


def find_segment_end(segment: Segment, data: bytes, stop: int | None = None) -> SegmentEnd:
    """Find the end of a segment; raises `LogDamage` unless its records are valid up to a torn tail.

    `stop` is the first record of the next segment. Bytes beyond it are ignored: they were written while the disk
    failed, and the next segment contains the same records again.
    """
    log_id = _log_id(segment, data)
    last, offset = segment.first - 1, HEADER.size if log_id else 0
    for record in _checked_records(segment, data, stop):
        last, offset = record.number, record.end
    return SegmentEnd(last, offset, len(data) - offset if stop is None else 0, log_id or b"")


def _checked_records(segment: Segment, data: bytes, stop: int | None) -> Iterator[LogRecord]:
    """The records of a segment in order; then raises `LogDamage` unless the segment may end after them."""
    valid_header = _log_id(segment, data) is not None
    last, offset = segment.first - 1, HEADER.size if valid_header else 0
    while valid_header and last + 1 != stop:
        record = _record_at(data, offset)
        if record is None or record.number != last + 1:
            break
        yield record
        last, offset = record.number, record.end
    _check_end(segment, data, last, offset, stop)


def _check_end(segment: Segment, data: bytes, last: int, offset: int, stop: int | None) -> None:
    """Raise `LogDamage` unless the segment may end after record `last` at byte `offset` (0: no valid header)."""
    if offset and last + 1 == stop:
        return
    # A header was synced before any record of its segment was written.
    proof = find_proof(data, offset, last + 1 if offset else last)
    if stop is None and proof is None:
        # The beginning of a header may have been written, possibly followed by zeros.
        written, header = data.rstrip(b"\0"), HEADER.pack(MAGIC, VERSION, segment.first, bytes(16), 0)[:20]
        if offset or (len(written) < HEADER.size and header[: len(written)] == written[: len(header)]):
            return
    what, first = f"record {last + 1} is unreadable" if offset else "its header is unreadable", last + 1
    if proof is not None:
        what += f", but record {proof.number} at byte {proof.offset} is valid"
        what += f" (records {first} to {proof.number - 1} are lost)" if proof.number > first else ""
    elif stop:
        what += f", but the next segment begins with record {stop} (records {first} to {stop - 1} are lost)"
    raise LogDamage(segment, offset, last, what)


def find_proof(data: bytes, offset: int, number: int) -> LogRecord | None:
    """The first valid record at or after byte `offset` that was written when record `number` was synced."""
    offset = data.find(MARKER, offset)
    while offset >= 0:
        record = _record_at(data, offset)
        if record is not None and record.number - record.position >= number:
            return record
        offset = data.find(MARKER, offset + 1)
    return None


def _record_at(data: bytes, offset: int) -> LogRecord | None:
    start = offset + RECORD.size
    if start > len(data):
        return None
    marker, number, position, length, checksum = RECORD.unpack_from(data, offset)
    payload = data[start : start + length]
    if marker != MARKER or len(payload) != length:
        return None
    actual = crc32(payload, crc32(data[offset + len(MARKER) : start - CHECKSUM.size]))
    return LogRecord(number, position, payload, offset, start + length) if actual == checksum else None


def _log_id(segment: Segment, data: bytes) -> bytes | None:
    """The log id of a valid header, or None; raises if the header has another format."""
    if len(data) >= HEADER.size:
        magic, version, first, log_id, checksum = HEADER.unpack_from(data)
        if crc32(data[: HEADER.size - CHECKSUM.size]) == checksum and magic == MAGIC:
            if version != VERSION:
                raise _other_format(segment, version)
            return bytes(log_id) if first == segment.first else None
    if len(data) >= HEADER_V1.size:
        magic, version, _, checksum = HEADER_V1.unpack_from(data)
        if magic == MAGIC and version == 1 and crc32(data[: HEADER_V1.size - CHECKSUM.size]) == checksum:
            raise _other_format(segment, version)
    return None


def _other_format(segment: Segment, version: int) -> TownletError:
    what = f"{segment.path.name} has format {version}, and this release reads format {VERSION} only"
    fix = "use the release of Townlet that wrote it, or name a new folder with --folder"
    return TownletError(what, fix, segment.path)


class LogEnd(NamedTuple):
    """The last segment of a log and where its valid records end."""

    segment: Segment | None  # None for a log without segments
    end: SegmentEnd
    oldest: int  # the first record that is kept


def find_log_end(folder: Path) -> LogEnd:
    """Find the end of the log; raises `LogDamage` if its last segment has more than a torn tail."""
    segments = list_segments(folder)
    if not segments:
        return LogEnd(None, SegmentEnd(0, 0, 0, b""), 1)
    segment = segments[-1]
    end = find_segment_end(segment, read_segment(segment))
    if not end.log_id and len(segments) > 1:  # then the id of the log is in the segment before
        previous = segments[-2]
        end = end._replace(log_id=find_segment_end(previous, read_segment(previous), segment.first).log_id)
    return LogEnd(segment, end, segments[0].first)


class SegmentWriter:
    """Appends records to the last segment of a log. Used by one thread only.

    After a failed write or fsync the disk may have lost part of it: the segment is truncated to the bytes that are
    known to be synced, and the records are written again into a new segment.
    """

    def __init__(self, folder: Path, segment_bytes: int, log_id: bytes, log_end: LogEnd) -> None:
        self._folder, self._segment_bytes, self._log_id = folder, segment_bytes, log_id
        self._descriptor: int | None = None
        self._size = 0  # synced bytes of the segment
        self._first = log_end.end.last + 1  # the first record of the segment
        self._created: Path | None = None  # the last segment that this process created
        self.synced = log_end.end.last  # the last synced record
        self.notices: list[StorageNotice] = []
        try:
            with disk.os_errors(f"cannot open the log in {folder}"):
                self._open(log_end)
        except TownletError:
            self.close()
            raise

    @property
    def segment(self) -> tuple[int, int]:
        """The first record of the current segment, and its synced bytes."""
        return self._first, self._size

    @property
    def is_full(self) -> bool:
        """Whether the next record starts a new segment."""
        return self._descriptor is None or self._size >= self._segment_bytes

    def _open(self, log_end: LogEnd) -> None:
        """Continue the last segment. A torn tail is copied to a separate file before it is truncated."""
        segment, end = log_end.segment, log_end.end
        if segment is None or (end.torn and not self._save_torn_tail(segment, end)) or not end.offset:
            return  # the first write begins a new segment
        self._descriptor = os.open(segment.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if end.torn:
            os.ftruncate(self._descriptor, end.offset)
        os.fsync(self._descriptor)  # a killed process may have written more than was synced
        disk.sync_folder(self._folder)
        self._first, self._size = segment.first, end.offset

    def _save_torn_tail(self, segment: Segment, end: SegmentEnd) -> bool:
        """Copy the torn tail; returns whether it may be truncated now. If it cannot be copied, it stays in place."""
        torn = read_segment(segment)[end.offset :]
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
            what = f"{what} stay there, since they could not be copied"
            self.notices.append(StorageNotice("torn_tail", what, fix, critical=False))
            return False
        self.notices.append(StorageNotice("torn_tail", f"{what} were moved to {copy.name}", fix, critical=False))
        return True

    def write(self, payloads: Sequence[bytes]) -> int:
        """Write and sync as many of these records as the segment can hold; returns how many."""
        if self.is_full:
            self._begin_segment()
        sizes = accumulate(RECORD.size + len(payload) for payload in payloads)
        count = max(1, bisect_right(list(sizes), self._segment_bytes - self._size))
        group = enumerate(payloads[:count], 1)
        data = b"".join([encode_record(self.synced + position, payload, position) for position, payload in group])
        try:
            self._write_synced(data)
        except OSError:
            self._abandon_segment()
            raise
        self._size += len(data)
        self.synced += count
        return count

    def _begin_segment(self) -> None:
        """Start a segment. An existing file of that name has no acknowledged record; it is kept under another name."""
        self.close()
        self._first = self.synced + 1
        path = self._folder / f"log-{self._first:012d}.wal"
        if path == self._created or (path.exists() and path.stat().st_size <= HEADER.size):
            path.unlink(missing_ok=True)  # its records, if any, are still in memory
        elif path.exists():
            os.rename(path, self._folder / f"torn-{self._first:012d}-{timestamp()}.bin")
        self._created = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._size = HEADER.size
        try:
            header = HEADER.pack(MAGIC, VERSION, self._first, self._log_id, 0)[: -CHECKSUM.size]
            self._write_synced(header + CHECKSUM.pack(crc32(header)))
            disk.sync_folder(self._folder)
        except OSError:
            self.close()
            raise

    def _write_synced(self, data: bytes) -> None:
        assert self._descriptor is not None
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[os.write(self._descriptor, remaining) :]
        os.fdatasync(self._descriptor)

    def _abandon_segment(self) -> None:
        """Truncate the segment to its synced bytes and close it; the other records are still in memory.

        If truncation fails too, readers ignore the rest, since the next segment begins with the same record.
        """
        assert self._descriptor is not None
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._size)
            os.fsync(self._descriptor)
        self.close()

    def close(self) -> None:
        """Close the file. Errors are ignored: everything acknowledged has been synced."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def timestamp() -> str:
    """The current time, for file names."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
