"""Statistics for dashboards: serialised once a second, whatever the number of dashboards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from fastapi import WebSocket, WebSocketDisconnect

from townlet.web.limits import SingleFlightCache
from townlet.web.mailbox import Mailbox, SendTimeout

logger = logging.getLogger(__name__)
TOGETHER: Final = 16  # dashboards in one batch, about 1 ms of work
PAUSE: Final = 0.005  # seconds between two batches: answers to games come first


class StatsFeed:
    """Broadcasts the newest statistics; a dashboard that reads slowly misses some and delays no other."""

    def __init__(self, text: Callable[[], str], every: float) -> None:
        self._text, self._every = text, every
        self._latest = SingleFlightCache[str](every / 2)
        self._mailboxes: set[Mailbox] = set()

    async def run(self) -> None:
        """Send to all dashboards, once per interval."""
        while True:
            await asyncio.sleep(self._every)
            try:
                await self._broadcast()
            except Exception:  # the next interval tries again
                logger.exception("cannot send statistics to the dashboards")

    async def _broadcast(self) -> None:
        for place, mailbox in enumerate(list(self._mailboxes)):
            mailbox.post_latest("stats", self._newest())
            if place % TOGETHER == TOGETHER - 1:
                await asyncio.sleep(PAUSE)

    async def serve(self, socket: WebSocket) -> None:
        """Send to one dashboard until it disconnects or stops reading."""
        await socket.accept()
        mailbox = Mailbox()
        mailbox.post_latest("stats", self._newest())
        self._mailboxes.add(mailbox)
        tasks = [asyncio.create_task(part) for part in (mailbox.deliver(socket.send_text), mailbox.enforce_timeout())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                with suppress(WebSocketDisconnect, RuntimeError, SendTimeout):
                    task.result()
        finally:
            self._mailboxes.discard(mailbox)
            for task in tasks:
                task.cancel()

    def _newest(self) -> str:
        return self._latest.get("stats", self._text)
