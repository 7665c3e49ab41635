"""What waits for one client: of what moves only the latest, of what happened a bounded row of letters.

A client that reads slowly or not at all costs one mailbox and nobody's time: posting never waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

LETTERS: Final = 64  # events that may wait; older ones are dropped
PATIENCE: Final = 20.0  # seconds that one message may take to leave before the client counts as gone


class Stuck(Exception):
    """The client has read nothing for too long."""


class Mailbox:
    """The messages for one client, as text that is ready to be sent."""

    def __init__(self, letters: int = LETTERS) -> None:
        self._latest: dict[Hashable, str] = {}
        self._letters: deque[str] = deque(maxlen=letters)
        self._news = asyncio.Event()
        self.dropped = 0  # messages that were replaced or pushed out before they could be sent

    def post(self, key: Hashable, text: str) -> None:
        """Something that moves: replaces what waits under the same key."""
        self.dropped += key in self._latest
        self._latest[key] = text
        self._news.set()

    def tell(self, text: str) -> None:
        """Something that happened: sent in order, as long as there is room."""
        self.dropped += len(self._letters) == self._letters.maxlen
        self._letters.append(text)
        self._news.set()

    async def deliver(self, send: Callable[[str], Awaitable[None]], patience: float = PATIENCE) -> None:
        """Send what comes, for ever; raises Stuck when a message does not leave in time."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._letters or self._latest:
                text = self._letters.popleft() if self._letters else self._latest.pop(next(iter(self._latest)))
                try:
                    await asyncio.wait_for(send(text), patience)
                except TimeoutError:
                    raise Stuck from None
