"""Files of a log: a header, then records with checksums. How they are read, and how they grow at their end.

A record has no number in the file, but its checksum is of number and payload: it is right at its own place only.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from townlet.errors import Mark, TownletError
from townlet.runs import disk

MAGIC: Final = b"townlog\n"
VERSION: Final = 1
HEADER: Final = struct.Struct("<8sIQI")  # magic, version, number of the first record, checksum of these
RECORD: Final = struct.Struct("<II")  # bytes of the payload, checksum of number and payload; then the payload
NUMBER: Final = struct.Struct("<Q")
NAME: Final = re.compile(r"log-(\d{12,})\.wal")
AHEAD: Final = 16  # records that may be lost at one damaged spot, when the next whole one is looked for
EFFORT: Final = 1 << 30  # bytes that are looked through for it


class Segment(NamedTuple):
    """A file of the log and the number of its first record."""

    first: int
    path: Path


class Whole(NamedTuple):
    """How far the last segment is whole."""

    last: int  # the number of its last whole record; one before its first if there is none
    place: int  # the byte after it; 0 if not even the header is whole


def encoded(number: int, payload: bytes) -> bytes:
    """A record as it stands in the file."""
    return RECORD.pack(len(payload), crc32(payload, crc32(NUMBER.pack(number)))) + payload


def header(first: int) -> bytes:
    """The beginning of a segment."""
    start = HEADER.pack(MAGIC, VERSION, first, 0)[:-4]
    return start + struct.pack("<I", crc32(start))


def listing(folder: Path) -> list[Segment]:
    """The segments of a log in their order."""
    try:
        found = [(NAME.fullmatch(name), name) for name in os.listdir(folder)]
    except OSError as error:
        raise disk.explained(error, f"cannot read the log in {folder}") from error
    return sorted(Segment(int(match[1]), folder / name) for match, name in found if match)


def read(folder: Path, after: int = 0) -> Iterator[tuple[int, bytes]]:
    """Records with numbers above `after`, each with its number, in order; of what was dropped there is nothing.

    It needs no lock. It stops where the log is torn, and raises where something before whole records is damaged.
    """
    segments = listing(folder)
    passed = sum(segment.first <= after + 1 for segment in segments)
    wanted = segments[max(passed - 1, 0) :]
    for segment, following in zip_longest(wanted, wanted[1:]):
        yield from _records(segment, after, following.first if following else None)


def survey(segment: Segment) -> Whole:
    """How far the last segment of a log is whole; raises if what is not is more than a torn tail."""
    data, last = _bytes(segment), segment.first - 1
    if not _is_begun(data, segment):
        if followed(data, 0, last) or not header(segment.first).startswith(data.rstrip(b"\0")):
            raise damaged(segment, 0, "its header is not what was written")
        return Whole(last, 0)
    place = HEADER.size
    for number, payload in walk(data, segment.first):
        last, place = number, place + RECORD.size + len(payload)
    if followed(data, place, last + 1):
        raise damaged(segment, place, f"record {last + 1} is not what was written")
    return Whole(last, place)


def _records(segment: Segment, after: int, stop: int | None) -> Iterator[tuple[int, bytes]]:
    """Those of a segment, which ends before record `stop`; None if it is the last, whose tail may be torn.

    What stands behind that end was written while a disk failed, and stands in the next segment again.
    """
    data, place, following = _bytes(segment), HEADER.size, segment.first
    if not _is_begun(data, segment):
        if stop is not None or followed(data, 0, segment.first - 1):
            raise damaged(segment, 0, "its header is not what was written")
        return
    for number, payload in walk(data, segment.first):
        if number == stop:
            return
        if number > after:
            yield number, payload
        place += RECORD.size + len(payload)
        following = number + 1
    if following != stop and (stop is not None or followed(data, place, following)):
        raise damaged(segment, place, f"record {following} is not what was written")


def walk(data: bytes, number: int) -> Iterator[tuple[int, bytes]]:
    """The whole records of a segment with their numbers, up to the first that is not whole."""
    place, size = HEADER.size, len(data)
    while (start := place + RECORD.size) <= size:
        length, check = RECORD.unpack_from(data, place)
        place = start + length
        payload = data[start:place]
        if place > size or crc32(payload, crc32(NUMBER.pack(number))) != check:
            return
        yield number, payload
        number += 1


def followed(data: bytes, place: int, number: int) -> bool:
    """Whether a whole record comes after the one at `place`, which is not: that is damage and no torn tail.

    Its length may be what is damaged, so the next one may begin anywhere. In doubt nothing may be cut.
    """
    effort = 0
    written = len(data.rstrip(b"\0"))  # nothing begins in what the disk never got
    said = _end(data, place)
    for start in range(place + RECORD.size, min(written, len(data) - RECORD.size + 1)):
        end = _end(data, start)
        if end > len(data) or not (start == said or _goes_on(data, end)):
            continue
        payload, (_, check) = data[start + RECORD.size : end], RECORD.unpack_from(data, start)
        between = min((start - place) // RECORD.size, AHEAD)
        effort += between * (len(payload) + 64)
        guesses = range(number + 1, number + 1 + between)
        if effort > EFFORT or any(crc32(payload, crc32(NUMBER.pack(guess))) == check for guess in guesses):
            return True
    return False


def _end(data: bytes, place: int) -> int:
    """Where a record at `place` would end; beyond the data if there is no room for one."""
    if place + RECORD.size > len(data):
        return len(data) + 1
    return place + RECORD.size + int.from_bytes(data[place : place + 4], "little")


def _goes_on(data: bytes, place: int) -> bool:
    """Whether two more records could follow here, or none is needed: spares most checksums of what is no record."""
    for _ in range(2):
        if place == len(data):
            return True
        place = _end(data, place)
    return place <= len(data)


def damaged(segment: Segment, place: int, what: str) -> TownletError:
    """The refusal to read on, with file and byte."""
    wrong = f"the log is damaged at byte {place} of {segment.path.name}: {what}"
    return TownletError(wrong, "put back a copy of the file; more was written behind that", Mark(str(segment.path)))


def _bytes(segment: Segment) -> bytes:
    try:
        return segment.path.read_bytes()
    except OSError as error:
        raise disk.explained(error, f"cannot read {segment.path}") from error


def _is_begun(data: bytes, segment: Segment) -> bool:
    """Whether the header is whole; one of another release is refused."""
    if data[: HEADER.size] == header(segment.first):
        return True
    if len(data) >= HEADER.size:
        _, version, _, check = HEADER.unpack_from(data)
        if version != VERSION and crc32(data[: HEADER.size - 4]) == check:
            what = f"{segment.path.name} has format {version}, and this release reads {VERSION}"
            raise TownletError(what, "use the release of Townlet that wrote it", Mark(str(segment.path)))
    return False


class Tail:
    """The end of the log, where records are written. One thread uses it.

    A disk that failed to write may have lost what it was given: so the file is cut to what is known to be there, and
    the rest goes into a fresh segment, from the first record on that is not.
    """

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self._folder, self._segment_bytes = folder, segment_bytes
        self._descriptor: int | None = None
        self._place = 0  # bytes that the disk has for sure
        self.synced = 0  # the last record of which that holds
        try:
            self._open()
        except OSError as error:
            self.close()
            raise disk.explained(error, f"cannot open the log in {folder}") from error

    def _open(self) -> None:
        """Cut a torn tail, and go on behind it."""
        segments = listing(self._folder)
        if not segments:
            return self._begin()
        path = segments[-1].path
        self.synced, self._place = survey(segments[-1])
        if not self._place:
            return self._begin()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        os.ftruncate(self._descriptor, self._place)
        os.fsync(self._descriptor)  # whoever was killed may have written more than the disk has
        disk.sync_folder(self._folder)

    def put(self, records: Sequence[bytes]) -> int:
        """Write the first of them, as many as the segment takes; how many the disk has now."""
        if self._descriptor is None or self._place >= self._segment_bytes:
            self._begin()
        count = fitting(records, self._segment_bytes - self._place)
        data = b"".join(records[:count])
        try:
            self._write(data)
        except OSError:
            self._abandon()
            raise
        self._place += len(data)
        self.synced += count
        return count

    def _begin(self) -> None:
        """A fresh segment. Where one of that name lies already, nothing in it ever counted."""
        self.close()
        path = self._folder / f"log-{self.synced + 1:012d}.wal"
        path.unlink(missing_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._place = HEADER.size
        try:
            self._write(header(self.synced + 1))
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
        """Leave the segment with what is known to be in it. What cannot be cut now is left out when it is read."""
        assert self._descriptor is not None
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._place)
            os.fsync(self._descriptor)
        self.close()

    def close(self) -> None:
        """Let the file go."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def fitting(records: Sequence[bytes], room: int) -> int:
    """How many of the first records fit into so many bytes: one at least."""
    if sum(map(len, records)) <= room:
        return len(records)
    return max(1, bisect_right(list(accumulate(map(len, records))), room))
