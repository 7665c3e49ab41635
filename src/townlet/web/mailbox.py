"""What waits for one client: of what moves only the latest, of what happened a bounded row of letters.

A client that reads slowly or not at all costs one mailbox and nobody's time: posting never waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

MAX_EVENTS: Final = 64  # events that may wait; older ones are dropped
MAX_BYTES: Final = 4 << 20  # bytes of all messages that may wait; the newest event may be larger by itself
SEND_TIMEOUT: Final = 20.0  # seconds that one message may take to leave before the client counts as gone


class SendTimeout(Exception):
    """The client has read nothing for too long."""


class Mailbox:
    """The messages for one client in the order they leave, as text that is ready to be sent."""

    def __init__(self, letters: int = MAX_EVENTS) -> None:
        self._waiting: dict[Hashable, tuple[str, ...]] = {}  # in order; letters have numbers for keys
        self._letters: deque[int] = deque()
        self._most, self._count = letters, 0
        self._bytes = 0  # of the messages that wait
        self._news = asyncio.Event()
        self._sending: float | None = None  # since when
        self.dropped = 0  # messages that were replaced or pushed out before they could be sent

    def post_latest(self, key: Hashable, text: str) -> None:
        """Something that moves: takes the place of what waits under the same key, behind all else that waits."""
        if key in self._waiting:
            self._take(key)
            self.dropped += 1
        self._put(key, (text,))

    def is_pending(self, key: Hashable) -> bool:
        """Whether what was posted under this key last is still here."""
        return key in self._waiting

    def post_event(self, *texts: str) -> None:
        """Something that happened, one letter of any number of messages: only when too many wait, the oldest goes."""
        if not texts:
            return
        size = sum(map(len, texts))
        while self._letters and (len(self._letters) == self._most or self._bytes + size > MAX_BYTES):
            self._take(self._letters.popleft())
            self.dropped += 1
        self._count += 1
        self._letters.append(self._count)
        self._put(self._count, texts)

    def _put(self, key: Hashable, texts: tuple[str, ...]) -> None:
        self._waiting[key] = texts
        self._bytes += sum(map(len, texts))
        self._news.set()

    def _take(self, key: Hashable) -> tuple[str, ...]:
        texts = self._waiting.pop(key)
        self._bytes -= sum(map(len, texts))
        return texts

    async def enforce_timeout(self, patience: float = SEND_TIMEOUT) -> None:
        """For ever, beside `deliver`: raises Stuck when what is being sent does not leave in time."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(patience / 4)
            if self._sending is not None and clock() - self._sending > patience:
                raise SendTimeout

    async def deliver(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Send what comes, for ever."""
        clock = asyncio.get_running_loop().time
        while True:
            await self._news.wait()
            self._news.clear()
            self._sending = clock()
            while self._waiting:
                key = next(iter(self._waiting))
                texts = self._take(key)
                if self._letters and self._letters[0] == key:
                    self._letters.popleft()
                for text in texts:
                    await send(text)
                self._sending = clock()
            self._sending = None
