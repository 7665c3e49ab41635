"""Messages from a running training to viewers: a memory-mapped ring of slots, which never blocks the trainer.

The trainer writes the latest messages into slots; viewers poll for new ones a few times a second. A slow reader misses
messages. The trainer writes only if a reader has polled in the last few seconds. A message that was overwritten while
it was read fails its checksum.
"""

from __future__ import annotations

import mmap
import struct
import time
import zlib
from pathlib import Path
from typing import Final, NamedTuple, Self

from townlet.errors import TownletError

MAGIC: Final = b"townfeed"
HEADER: Final = struct.Struct("<8sIIQd")  # magic, slots, bytes of a slot, number of messages, time of the last poll
SLOT: Final = struct.Struct("<QIII")  # message number, length, kind, checksum
EPISODE_ENDED, ROWS_OVERVIEW = 1, 2  # kinds of messages: an ended episode, and an overview of the first rows
SLOTS: Final = 16
SLOT_BYTES: Final = 1 << 18
COUNT_OFFSET: Final = struct.calcsize("<8sII")  # position of the number of messages in the header
POLL_OFFSET: Final = COUNT_OFFSET + 8  # position of the time of the last poll
READER_TIMEOUT: Final = 5.0  # seconds after the last poll during which messages are still written


class FeedMessage(NamedTuple):
    """One message; the writer defines the content of each kind."""

    number: int
    kind: int
    data: bytes


class Feed:
    """The memory-mapped file. One process writes (`Feed.create`), any number read (`Feed.open`)."""

    def __init__(self, path: Path, memory: mmap.mmap, slots: int, size: int) -> None:
        self.path, self._memory, self._slots, self._size = path, memory, slots, size
        self._inode = path.stat().st_ino
        self._number = self._count()  # messages written, or read so far

    @classmethod
    def create(cls, path: Path, slots: int = SLOTS, size: int = SLOT_BYTES) -> Self:
        """Create a feed in place of an older one; `is_current` of its readers then becomes False."""
        path.unlink(missing_ok=True)
        with path.open("w+b") as file:
            file.truncate(HEADER.size + slots * (SLOT.size + size))
            memory = mmap.mmap(file.fileno(), 0)
        HEADER.pack_into(memory, 0, MAGIC, slots, size, 0, 0.0)
        return cls(path, memory, slots, size)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a feed for reading, from its latest message on."""
        try:
            with path.open("r+b") as file:
                memory = mmap.mmap(file.fileno(), 0)
            magic, slots, size, _, _ = HEADER.unpack_from(memory)
            valid = magic == MAGIC and len(memory) == HEADER.size + slots * (SLOT.size + size)
        except (OSError, ValueError, struct.error):
            valid = False
        if not valid:
            raise TownletError("this run publishes no messages", "start or resume its training", path)
        return cls(path, memory, slots, size)

    def _count(self) -> int:
        return int(struct.unpack_from("<Q", self._memory, COUNT_OFFSET)[0])

    @property
    def is_current(self) -> bool:
        """Whether the file is still this one, neither removed nor replaced by a new training."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    @property
    def has_readers(self) -> bool:
        """Whether a reader has polled in the last few seconds."""
        last_poll = struct.unpack_from("<d", self._memory, POLL_OFFSET)[0]
        return bool(0 <= time.time() - last_poll < READER_TIMEOUT)

    def poll(self) -> list[FeedMessage]:
        """Messages since the last poll, oldest first, unless they were overwritten."""
        struct.pack_into("<d", self._memory, POLL_OFFSET, time.time())
        count = max(self._number, self._count())  # a reader may see a partly written count
        numbers = range(max(self._number, count - self._slots), count)
        self._number = count
        return [message for n in numbers if (message := self._read(n))]

    def _read(self, number: int) -> FeedMessage | None:
        offset = HEADER.size + number % self._slots * (SLOT.size + self._size)
        found, length, kind, checksum = SLOT.unpack_from(self._memory, offset)
        if found != number + 1 or length > self._size:
            return None
        begin = offset + SLOT.size
        data = bytes(self._memory[begin : begin + length])
        return FeedMessage(number, kind, data) if _checksum(found, kind, data) == checksum else None

    def publish(self, kind: int, data: bytes) -> bool:
        """Write a message in place of the oldest; False if it is too large."""
        if len(data) > self._size:
            return False
        offset = HEADER.size + self._number % self._slots * (SLOT.size + self._size)
        SLOT.pack_into(self._memory, offset, 0, 0, 0, 0)  # invalid until it is complete
        self._memory[offset + SLOT.size : offset + SLOT.size + len(data)] = data
        self._number += 1
        SLOT.pack_into(self._memory, offset, self._number, len(data), kind, _checksum(self._number, kind, data))
        struct.pack_into("<Q", self._memory, COUNT_OFFSET, self._number)
        return True

    def close(self) -> None:
        """Unmap the memory; the file stays for its readers."""
        self._memory.close()

    def remove(self) -> None:
        """Remove the file when training ends, unless a new one has replaced it."""
        self.close()
        if self.is_current:
            self.path.unlink(missing_ok=True)


def _checksum(number: int, kind: int, data: bytes) -> int:
    """Checksum of number, kind and data; it covers the header because that may be replaced while it is read."""
    return zlib.crc32(data, zlib.crc32(struct.pack("<QI", number, kind)))
