"""What the connections of one server share: work per turn of the event loop, bytes not yet read, HTTP connections."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

TURN: Final = 0.003  # seconds of work on input in one turn of the event loop, for all connections together
MESSAGES: Final = 16  # of clients that send without waiting for answers, in one turn for all of them together
INPUT: Final = 128 << 20  # bytes of incomplete messages of all connections together


class Droppable(Protocol):
    """A connection that can be closed in favour of others."""

    def drop(self) -> None:
        """Close it: it has kept the server waiting for longer than all others."""


class Intake:
    """Input of all connections of a server, within limits. A flood on one connection delays that one only."""

    def __init__(self, requests: int, sockets: int, input_bytes: int = INPUT) -> None:
        self._most, self._most_sockets, self._most_bytes = requests, sockets, input_bytes
        self._work: deque[Callable[[], None]] = deque()
        self._turns: deque[asyncio.Future[None]] = deque()
        self._scheduled = False
        self._requests: set[Droppable] = set()  # HTTP connections
        self._waiting: dict[Droppable, None] = {}  # those without a complete request, the longest waiting first
        self._sockets: set[Droppable] = set()
        self._held: dict[Droppable, int] = {}  # bytes of incomplete messages, the oldest first
        self._bytes = 0

    def later(self, work: Callable[[], None]) -> None:
        """Run a piece of work in one of the next turns of the loop, in the order of the calls."""
        self._work.append(work)
        self._schedule()

    async def turn(self) -> None:
        """Wait for a turn to handle a message, behind others that wait for theirs."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        self._schedule()
        await turn

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        until = time.perf_counter() + TURN
        while self._work and time.perf_counter() < until:
            self._work.popleft()()
        for _ in range(min(MESSAGES, len(self._turns))):
            turn = self._turns.popleft()
            if not turn.done():  # else the connection is gone
                turn.set_result(None)
        self._scheduled = False
        if self._work or self._turns:
            self._schedule()

    def admit(self, connection: Droppable) -> bool:
        """Admit an HTTP connection; at the limit, close the one that has waited longest without a request."""
        if len(self._requests) >= self._most:
            if not self._waiting:
                return False
            longest = next(iter(self._waiting))
            self.leave(longest)
            longest.drop()
        self._requests.add(connection)
        self._waiting[connection] = None
        return True

    def requested(self, connection: Droppable) -> None:
        """Note that its request is complete."""
        self._waiting.pop(connection, None)

    def answered(self, connection: Droppable) -> None:
        """Note that its response is complete: it waits for the next request."""
        if connection in self._requests:
            self._waiting[connection] = None

    def leave(self, connection: Droppable) -> None:
        """Remove it: it is closed or no longer an HTTP connection."""
        self._requests.discard(connection)
        self._waiting.pop(connection, None)

    @property
    def full(self) -> bool:
        """Whether no further WebSocket can be opened."""
        return len(self._sockets) >= self._most_sockets

    def opened(self, socket: Droppable) -> None:
        """Count a new WebSocket."""
        self._sockets.add(socket)

    def closed(self, socket: Droppable) -> None:
        """Remove a closed WebSocket."""
        self._sockets.discard(socket)
        self.hold(socket, 0)

    def hold(self, connection: Droppable, size: int) -> None:
        """Set its bytes of incomplete messages; beyond the budget the connection with the oldest one is closed."""
        self._bytes += size - self._held.get(connection, 0)
        if size:
            self._held[connection] = size  # keeps its place, and so its age
        else:
            self._held.pop(connection, None)
        while self._bytes > self._most_bytes:
            oldest = next(iter(self._held))
            self._bytes -= self._held.pop(oldest)
            oldest.drop()
