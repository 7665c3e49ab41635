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
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from townlet.errors import Mark, TownletError
from townlet.runs import disk

MAGIC: Final = b"townlog\n"
VERSION: Final = 2
HEADER: Final = struct.Struct("<8sIQ16sI")  # magic, version, number of the first record, log id, CRC-32 of these
FIRST_FORMAT: Final = struct.Struct("<8sIQI")  # the same of format 1, which had no log id
MARKER: Final = b"\xf5\xfe\xffR"  # not UTF-8, so that no JSON payload contains it
# Marker, number, place in its group (1, 2, …: records written at once), bytes of the payload, CRC-32 of what follows
# the marker.
RECORD: Final = struct.Struct("<4sQIII")
FACTS: Final = struct.Struct("<QII")  # what the checksum covers besides the payload
CHECK: Final = struct.Struct("<I")
NAME: Final = re.compile(r"log-(\d{12,})\.wal")


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


class RecordPlace(NamedTuple):
    """A whole record in a file."""

    number: int
    place: int


class LogDamage(TownletError):
    """A damaged segment: where it is, and which record is the last whole one before the damage."""

    def __init__(self, segment: Segment, place: int, last: int, what: str) -> None:
        self.segment, self.place, self.last = segment, place, last
        fix = "restore the file from a backup; `townlet decide verify` lists what can still be used"
        super().__init__(f"{segment.path.name} is damaged at byte {place}: {what}", fix, Mark(str(segment.path)))


def encoded(number: int, payload: bytes, place: int = 1) -> bytes:
    """A record as stored in the file, at this place in the group of records that are written at once."""
    facts = FACTS.pack(number, place, len(payload))
    return b"".join((MARKER, facts, CHECK.pack(crc32(payload, crc32(facts))), payload))


def header(first: int, log_id: bytes) -> bytes:
    """The header of a segment that begins with record `first`."""
    start = HEADER.pack(MAGIC, VERSION, first, log_id, 0)[:-4]
    return start + CHECK.pack(crc32(start))


def listing(folder: Path) -> list[Segment]:
    """The segments of a log in order."""
    try:
        found = [(NAME.fullmatch(name), name) for name in os.listdir(folder)]
    except OSError as error:
        raise disk.explained(error, f"cannot read the log in {folder}") from error
    return sorted(Segment(int(match[1]), folder / name) for match, name in found if match)


def read(folder: Path, after: int = 0) -> Iterator[tuple[int, bytes]]:
    """Records with numbers above `after`, each with its number, in order; segments that were dropped have none.

    Needs no lock and works beside a writer: it stops at a torn tail, and raises `LogDamage` at anything else.
    """
    segments = listing(folder)
    passed = sum(segment.first <= after + 1 for segment in segments)
    wanted, log_id = segments[max(passed - 1, 0) :], b""
    for segment, following in zip_longest(wanted, wanted[1:]):
        data, stop = content(segment), following.first if following else None
        begun = _log_id(segment, data)
        if log_id and begun and begun != log_id:
            raise LogDamage(segment, 0, segment.first - 1, "it belongs to another log")
        log_id = log_id or begun or b""
        last, place = segment.first - 1, HEADER.size if begun else 0
        for number, payload in walk(data, segment.first) if begun else ():
            if number == stop:
                break
            if number > after:
                yield number, payload
            last, place = number, place + RECORD.size + len(payload)
        _check_end(segment, data, last, place, stop)


def end_of(segment: Segment, data: bytes, stop: int | None = None) -> SegmentEnd:
    """Where a segment ends; raises `LogDamage` unless its records are whole up to a torn tail.

    `stop` is the first record of the next segment. Bytes beyond it are ignored: they were written while the disk
    failed, and the next segment holds the same records again.
    """
    log_id = _log_id(segment, data)
    last, place = segment.first - 1, HEADER.size if log_id else 0
    for number, payload in walk(data, segment.first) if log_id else ():
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
    later = proof_of(data, place, last + 1 if place else last)
    if stop is None and later is None and (place or _is_torn_header(data, segment.first)):
        return
    what = f"record {last + 1} is unreadable" if place else "its header is unreadable"
    raise LogDamage(segment, place, last, f"{what}{_lost(last + 1, later, stop)}")


def walk(data: bytes, number: int) -> Iterator[tuple[int, bytes]]:
    """The whole records of a segment with their numbers, up to the first one that is not whole."""
    place, size = HEADER.size, len(data)
    while (start := place + RECORD.size) <= size:
        marker, found, _, length, check = RECORD.unpack_from(data, place)
        payload = data[start : start + length]
        if marker != MARKER or found != number or start + length > size:
            return
        if crc32(payload, crc32(data[place + len(MARKER) : start - CHECK.size])) != check:
            return
        yield number, payload
        number, place = number + 1, start + length


def proof_of(data: bytes, place: int, number: int) -> RecordPlace | None:
    """The first whole record at or after byte `place` that was written when record `number` was on the disk."""
    place = data.find(MARKER, place)
    while place >= 0:
        found = _record_at(data, place)
        if found is not None and found[0] - found[1] >= number:
            return RecordPlace(found[0], place)
        place = data.find(MARKER, place + 1)
    return None


def content(segment: Segment) -> bytes:
    """All bytes of a segment."""
    try:
        return segment.path.read_bytes()
    except OSError as error:
        raise disk.explained(error, f"cannot read {segment.path}") from error


def _record_at(data: bytes, place: int) -> tuple[int, int] | None:
    """Number and place in its group of the whole record at this byte; None if there is none."""
    start = place + RECORD.size
    if start > len(data):
        return None
    _, number, group, length, check = RECORD.unpack_from(data, place)
    payload = data[start : start + length]
    whole = len(payload) == length and crc32(payload, crc32(data[place + len(MARKER) : start - CHECK.size])) == check
    return (number, group) if whole else None


def _lost(first: int, later: RecordPlace | None, stop: int | None) -> str:
    """Which records the damage covers, as the end of a sentence."""
    if later is not None:
        lost = f", but record {later.number} at byte {later.place} is whole"
        return f"{lost} (records {first} to {later.number - 1} are lost)" if later.number > first else lost
    return f", but the next segment begins with record {stop} (records {first} to {stop - 1} are lost)" if stop else ""


def _log_id(segment: Segment, data: bytes) -> bytes | None:
    """The log id of a whole header, or None; a header of another format is refused by name."""
    if len(data) >= HEADER.size:
        magic, version, first, log_id, check = HEADER.unpack_from(data)
        if crc32(data[: HEADER.size - CHECK.size]) == check and magic == MAGIC:
            if version != VERSION:
                raise _other_format(segment, version)
            return bytes(log_id) if first == segment.first else None
    if len(data) >= FIRST_FORMAT.size:
        magic, version, _, check = FIRST_FORMAT.unpack_from(data)
        if magic == MAGIC and version == 1 and crc32(data[: FIRST_FORMAT.size - CHECK.size]) == check:
            raise _other_format(segment, version)
    return None


def _other_format(segment: Segment, version: int) -> TownletError:
    what = f"{segment.path.name} has format {version}, and this release reads format {VERSION} only"
    fix = "use the release of Townlet that wrote it, or name a new folder with --folder"
    return TownletError(what, fix, Mark(str(segment.path)))


def _is_torn_header(data: bytes, first: int) -> bool:
    """Whether these bytes are the beginning of a header whose write was cut off (the rest may be zeros)."""
    written = data.rstrip(b"\0")
    known = HEADER.pack(MAGIC, VERSION, first, bytes(16), 0)[:20]
    return len(written) < HEADER.size and known[: len(written)] == written[: len(known)]
