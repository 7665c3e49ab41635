"""Outgoing messages of one client: for each state only the latest message, and a bounded queue of events.

Posting never blocks, so a client that reads slowly or not at all costs one mailbox and delays no other client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Final

from starlette.websockets import WebSocketDisconnect

MAX_EVENTS: Final = 64  # in the queue; the oldest ones beyond it are dropped
MAX_BYTES: Final = 4 << 20  # in the queue; the newest event alone may be larger
SEND_TIMEOUT: Final = 20.0  # seconds to send one event or state, after which the client counts as disconnected

DISCONNECTED: Final = (WebSocketDisconnect, RuntimeError, TimeoutError)  # the client left or does not read


class Mailbox:
    """Queue of encoded messages for one client."""

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        self._pending: dict[Hashable, tuple[str, ...]] = {}  # in order; the keys of events are their numbers
        self._events: deque[int] = deque()  # numbers of pending events
        self._max_events, self._event_count = max_events, 0
        self._bytes = 0  # of pending messages
        self._posted = asyncio.Event()

    def post_latest(self, key: Hashable, text: str) -> None:
        """Post a state: replaces the pending message with the same key, and moves to the end of the queue."""
        if key in self._pending:
            self._take(key)
        self._put(key, (text,))

    def is_pending(self, key: Hashable) -> bool:
        """Whether the last state with this key has not been sent yet."""
        return key in self._pending

    def post_event(self, *texts: str) -> None:
        """Post an event of any number of messages; if too many are pending, the oldest is dropped."""
        if not texts:
            return
        size = sum(map(len, texts))
        while self._events and (len(self._events) == self._max_events or self._bytes + size > MAX_BYTES):
            self._take(self._events.popleft())
        self._event_count += 1
        self._events.append(self._event_count)
        self._put(self._event_count, texts)

    def _put(self, key: Hashable, texts: tuple[str, ...]) -> None:
        self._pending[key] = texts
        self._bytes += sum(map(len, texts))
        self._posted.set()

    def _take(self, key: Hashable) -> tuple[str, ...]:
        texts = self._pending.pop(key)
        self._bytes -= sum(map(len, texts))
        return texts

    async def deliver(self, send: Callable[[str], Awaitable[None]], timeout: float = SEND_TIMEOUT) -> None:
        """Send messages as they are posted, until cancelled; raises TimeoutError if one is not sent in time."""
        while True:
            await self._posted.wait()
            self._posted.clear()
            while self._pending:
                key = next(iter(self._pending))
                texts = self._take(key)
                if self._events and self._events[0] == key:
                    self._events.popleft()
                async with asyncio.timeout(timeout):
                    for text in texts:
                        await send(text)


async def run_until_first(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run coroutines until one of them ends, and cancel the others; raises errors other than a disconnected client."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, DISCONNECTED):
            raise result
