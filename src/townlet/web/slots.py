"""WebSockets of one kind, up to a limit: beyond it one is closed with 1013 (try again later) and a reason."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect

BUSY: Final = 1013  # close code: try again later


class Slots:
    """Counts open WebSockets of one kind."""

    def __init__(self, most: int, reason: str) -> None:
        self.most, self._reason = most, reason
        self._taken: set[WebSocket] = set()
        self.refused = 0  # ever

    def __len__(self) -> int:
        return len(self._taken)

    @asynccontextmanager
    async def take(self, socket: WebSocket) -> AsyncIterator[bool]:
        """Hold a slot inside the block; False where none was free, and the socket is closed then."""
        if len(self._taken) >= self.most:
            self.refused += 1
            with suppress(WebSocketDisconnect, RuntimeError):  # gone already
                await socket.accept()  # without it a browser sees 403, as if the token were wrong
                await socket.close(BUSY, self._reason)
            yield False
            return
        self._taken.add(socket)
        try:
            yield True
        finally:
            self._taken.discard(socket)
