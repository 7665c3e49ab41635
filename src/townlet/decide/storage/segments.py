"""Segment files of the decision log: their format, reading them, and telling damage from a torn tail.

A segment is a header followed by records. Each record carries a marker, its own number, and how many records before it
were not on the disk yet when it was written. So a whole record proves that the earlier ones were on the disk, however
many bytes lie between: if one of them is unreadable the log is damaged. Without such a proof the bytes are a torn tail,
the rest of a write that was never acknowledged (a loss of power may keep the end of a write and lose its beginning).
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from townlet.decide.storage import StorageNotice
from townlet.errors import SourceLocation, TownletError
from townlet.runs import disk

MAGIC: Final = b"townlog\n"
VERSION: Final = 3
HEADER: Final = struct.Struct("<8sIQ16sI")  # magic, version, number of the first record, log id, CRC-32 of these
HEADER_V1: Final = struct.Struct("<8sIQI")  # of format 1, which had no log id
MARKER: Final = b"\xf5\xfe\xffR"  # not UTF-8, so that no JSON payload contains it
# Marker, number, place in its group (1, 2, …: records written at once), bytes of the payload, CRC-32 of what follows
# the marker.
RECORD: Final = struct.Struct("<4sQIII")
RECORD_META: Final = struct.Struct("<QII")  # what the checksum covers besides the payload
CHECKSUM: Final = struct.Struct("<I")
SEGMENT_NAME: Final = re.compile(r"log-(\d{12,})\.wal")


class Segment(NamedTuple):
    """A file of the log and the number of its first record."""

    first: int
    path: Path


class SegmentEnd(NamedTuple):
    """Where the whole records of a segment end."""

    last: int  # the number of the last whole record; one before the first if there is none
    place: int  # the byte after it; 0 if the header is not whole
    torn: int  # bytes after that, of a write that was never acknowledged
    log_id: bytes  # empty if the header is not whole


class RecordOffset(NamedTuple):
    """A whole record in a file."""

    number: int
    place: int


class LogDamage(TownletError):
    """A damaged segment: where it is, and which record is the last whole one before the damage."""

    def __init__(self, segment: Segment, place: int, last: int, what: str) -> None:
        self.segment, self.place, self.last = segment, place, last
        fix = "restore the file from a backup; `townlet decide verify` lists what can still be used"
        super().__init__(
            f"{segment.path.name} is damaged at byte {place}: {what}", fix, SourceLocation(str(segment.path))
        )


def encode_record(number: int, payload: bytes, place: int = 1) -> bytes:
    """A record as stored in the file, at this place in the group of records that are written at once."""
    facts = RECORD_META.pack(number, place, len(payload))
    return b"".join((MARKER, facts, CHECKSUM.pack(crc32(payload, crc32(facts))), payload))


def encode_header(first: int, log_id: bytes) -> bytes:
    """The header of a segment that begins with record `first`."""
    start = HEADER.pack(MAGIC, VERSION, first, log_id, 0)[:-4]
    return start + CHECKSUM.pack(crc32(start))


def list_segments(folder: Path) -> list[Segment]:
    """The segments of a log in order."""
    try:
        found = [(SEGMENT_NAME.fullmatch(name), name) for name in os.listdir(folder)]
    except OSError as error:
        raise disk.describe_error(error, f"cannot read the log in {folder}") from error
    return sorted(Segment(int(match[1]), folder / name) for match, name in found if match)


def read_records(folder: Path, after: int = 0) -> Iterator[tuple[int, bytes]]:
    """Records with numbers above `after`, each with its number, in order; segments that were dropped have none.

    Needs no lock and works beside a writer: it stops at a torn tail, and raises `LogDamage` at anything else.
    """
    segments = list_segments(folder)
    passed = sum(segment.first <= after + 1 for segment in segments)
    wanted, log_id = segments[max(passed - 1, 0) :], b""
    for segment, following in zip_longest(wanted, wanted[1:]):
        data, stop = read_segment(segment), following.first if following else None
        begun = _log_id(segment, data)
        if log_id and begun and begun != log_id:
            raise LogDamage(segment, 0, segment.first - 1, "it belongs to another log")
        log_id = log_id or begun or b""
        last, place = segment.first - 1, HEADER.size if begun else 0
        for number, payload in iter_records(data, segment.first) if begun else ():
            if number == stop:
                break
            if number > after:
                yield number, payload
            last, place = number, place + RECORD.size + len(payload)
        _check_end(segment, data, last, place, stop)


def find_segment_end(segment: Segment, data: bytes, stop: int | None = None) -> SegmentEnd:
    """Where a segment ends; raises `LogDamage` unless its records are whole up to a torn tail.

    `stop` is the first record of the next segment. Bytes beyond it are ignored: they were written while the disk
    failed, and the next segment holds the same records again.
    """
    log_id = _log_id(segment, data)
    last, place = segment.first - 1, HEADER.size if log_id else 0
    for number, payload in iter_records(data, segment.first) if log_id else ():
        if number == stop:
            break
        last, place = number, place + RECORD.size + len(payload)
    _check_end(segment, data, last, place, stop)
    return SegmentEnd(last, place, len(data) - place if stop is None else 0, log_id or b"")


def _check_end(segment: Segment, data: bytes, last: int, place: int, stop: int | None) -> None:
    """Raise `LogDamage` unless the segment may end after record `last` at byte `place` (0: no whole header)."""
    if place and last + 1 == stop:
        return
    # A header was on the disk before any record of its segment was written.
    later = find_proof(data, place, last + 1 if place else last)
    if stop is None and later is None and (place or _is_torn_header(data, segment.first)):
        return
    what = f"record {last + 1} is unreadable" if place else "its header is unreadable"
    raise LogDamage(segment, place, last, f"{what}{_lost(last + 1, later, stop)}")


def iter_records(data: bytes, number: int) -> Iterator[tuple[int, bytes]]:
    """The whole records of a segment with their numbers, up to the first one that is not whole."""
    place, size = HEADER.size, len(data)
    while (start := place + RECORD.size) <= size:
        marker, found, _, length, check = RECORD.unpack_from(data, place)
        payload = data[start : start + length]
        if marker != MARKER or found != number or start + length > size:
            return
        if crc32(payload, crc32(data[place + len(MARKER) : start - CHECKSUM.size])) != check:
            return
        yield number, payload
        number, place = number + 1, start + length


def find_proof(data: bytes, place: int, number: int) -> RecordOffset | None:
    """The first whole record at or after byte `place` that was written when record `number` was on the disk."""
    place = data.find(MARKER, place)
    while place >= 0:
        found = _record_at(data, place)
        if found is not None and found[0] - found[1] >= number:
            return RecordOffset(found[0], place)
        place = data.find(MARKER, place + 1)
    return None


def read_segment(segment: Segment) -> bytes:
    """All bytes of a segment."""
    try:
        return segment.path.read_bytes()
    except OSError as error:
        raise disk.describe_error(error, f"cannot read {segment.path}") from error


def _record_at(data: bytes, place: int) -> tuple[int, int] | None:
    """Number and place in its group of the whole record at this byte; None if there is none."""
    start = place + RECORD.size
    if start > len(data):
        return None
    _, number, group, length, check = RECORD.unpack_from(data, place)
    payload = data[start : start + length]
    whole = len(payload) == length and crc32(payload, crc32(data[place + len(MARKER) : start - CHECKSUM.size])) == check
    return (number, group) if whole else None


def _lost(first: int, later: RecordOffset | None, stop: int | None) -> str:
    """Which records the damage covers, as the end of a sentence."""
    if later is not None:
        lost = f", but record {later.number} at byte {later.place} is whole"
        return f"{lost} (records {first} to {later.number - 1} are lost)" if later.number > first else lost
    return f", but the next segment begins with record {stop} (records {first} to {stop - 1} are lost)" if stop else ""


def _log_id(segment: Segment, data: bytes) -> bytes | None:
    """The log id of a whole header, or None; a header of another format is refused by name."""
    if len(data) >= HEADER.size:
        magic, version, first, log_id, check = HEADER.unpack_from(data)
        if crc32(data[: HEADER.size - CHECKSUM.size]) == check and magic == MAGIC:
            if version != VERSION:
                raise _other_format(segment, version)
            return bytes(log_id) if first == segment.first else None
    if len(data) >= HEADER_V1.size:
        magic, version, _, check = HEADER_V1.unpack_from(data)
        if magic == MAGIC and version == 1 and crc32(data[: HEADER_V1.size - CHECKSUM.size]) == check:
            raise _other_format(segment, version)
    return None


def _other_format(segment: Segment, version: int) -> TownletError:
    what = f"{segment.path.name} has format {version}, and this release reads format {VERSION} only"
    fix = "use the release of Townlet that wrote it, or name a new folder with --folder"
    return TownletError(what, fix, SourceLocation(str(segment.path)))


def _is_torn_header(data: bytes, first: int) -> bool:
    """Whether these bytes are the beginning of a header whose write was cut off (the rest may be zeros)."""
    written = data.rstrip(b"\0")
    known = HEADER.pack(MAGIC, VERSION, first, bytes(16), 0)[:20]
    return len(written) < HEADER.size and known[: len(written)] == written[: len(known)]


class LogEnd(NamedTuple):
    """The last segment of a log and where its whole records end."""

    segment: Segment | None  # None for a log without segments
    end: SegmentEnd
    oldest: int  # the first record that is kept


def find_end(folder: Path) -> LogEnd:
    """Where the log ends; raises `LogDamage` if more than a torn tail is wrong with its last segment."""
    segments = list_segments(folder)
    if not segments:
        return LogEnd(None, SegmentEnd(0, 0, 0, b""), 1)
    segment = segments[-1]
    end = find_segment_end(segment, read_segment(segment))
    if not end.log_id and len(segments) > 1:  # the id of the log is in the segment before
        before = segments[-2]
        end = end._replace(log_id=find_segment_end(before, read_segment(before), segment.first).log_id)
    return LogEnd(segment, end, segments[0].first)


def cut_at_damage(folder: Path) -> list[StorageNotice]:
    """Move everything from the first damaged record on into a folder; what is before it stays the log."""
    segments = list_segments(folder)
    for place, segment in enumerate(segments):
        stop = segments[place + 1].first if place + 1 < len(segments) else None
        try:
            find_segment_end(segment, read_segment(segment), stop)
        except LogDamage as damage:
            return [_set_aside(folder, damage, [segment, *segments[place + 1 :]])]
    return []


def _set_aside(folder: Path, damage: LogDamage, segments: list[Segment]) -> StorageNotice:
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
    what = f"The log was cut after record {damage.last}: {damage.diagnostics[0].what}"
    return StorageNotice("data_loss", what, f"The removed files are in {aside}.")


class SegmentWriter:
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
            raise disk.describe_error(error, f"cannot open the log in {folder}") from error

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
        torn = read_segment(segment)[end.place :]
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
        count = count_fitting([RECORD.size + len(payload) for payload in payloads], self._segment_bytes - self._size)
        group = enumerate(payloads[:count], 1)
        data = b"".join([encode_record(self.synced + place, payload, place) for place, payload in group])
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
            self._write(encode_header(self._first, self._log_id))
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


def count_fitting(sizes: Sequence[int], room: int) -> int:
    """How many of the first records fit into so many bytes, at least one."""
    if sum(sizes) <= room:
        return len(sizes)
    return max(1, bisect_right(list(accumulate(sizes)), room))
