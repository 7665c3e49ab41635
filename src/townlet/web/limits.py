"""Limits that the connections of one server share: descriptors, work per loop iteration, connections and rates."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect

TARGET_DESCRIPTORS: Final = 1 << 16  # requested soft limit; the hard limit may be lower
RESERVED_DESCRIPTORS: Final = 64  # for the log, versions, checkpoints and databases
MAX_BACKLOG: Final = 2048  # connections that wait in the kernel to be accepted
MAX_HTTP_CONNECTIONS: Final = 1024
DESCRIPTOR_REMEDY: Final = "raise the limit of open files (ulimit -n, or LimitNOFILE= in systemd) and start again"

ITERATION_SECONDS: Final = 0.003  # of work on input in one iteration of the event loop, for all connections together
ITERATION_MESSAGES: Final = 16  # of clients that send without waiting for answers, for all of them together
MAX_INPUT_BYTES: Final = 128 << 20  # of incomplete messages, for all connections together

TRY_AGAIN_LATER: Final = 1013  # close code of a WebSocket
MAX_CACHED: Final = 64  # responses

T = TypeVar("T")


class DescriptorBudget(NamedTuple):
    """Shares of the process's file descriptors, so that connections never use up those of files."""

    limit: int  # of the process
    backlog: int  # connections that the kernel may accept ahead: the loop takes all of them in one iteration
    http: int
    websockets: int

    @property
    def app_websockets(self) -> int:
        """WebSockets for the application; the rest are being refused with a reason, which takes a moment to send."""
        return self.websockets - self.websockets // 16


def allocate_descriptors(limit: int, used: int) -> DescriptorBudget:
    """Divide `limit` descriptors, of which `used` are already open."""
    available = max(limit - used - RESERVED_DESCRIPTORS, 16)
    backlog, http = min(MAX_BACKLOG, available // 8), min(MAX_HTTP_CONNECTIONS, available // 8)
    return DescriptorBudget(limit, backlog, http, available - backlog - http)


def raise_descriptor_limit(target: int = TARGET_DESCRIPTORS) -> DescriptorBudget:
    """Raise the soft limit of open files up to `target` if allowed, and divide it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = target if hard == resource.RLIM_INFINITY else min(hard, target)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        with suppress(ValueError, OSError):  # some systems allow less than their hard limit: the soft limit stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = RESERVED_DESCRIPTORS
    with suppress(OSError):  # a link to /proc/self/fd on Linux
        used = len(os.listdir("/dev/fd"))
    return allocate_descriptors(target if soft == resource.RLIM_INFINITY else soft, used)


class Evictable(Protocol):
    """A connection that can be closed in favor of others."""

    def evict(self) -> None:
        """Close the connection: it has kept the server waiting for longer than all others."""


class ConnectionLimiter:
    """Admits connections and schedules their input. A flood on one connection delays only that one."""

    def __init__(self, max_http: int, max_websockets: int, max_input_bytes: int = MAX_INPUT_BYTES) -> None:
        self._max_http, self._max_websockets, self._max_input_bytes = max_http, max_websockets, max_input_bytes
        self._work: deque[Callable[[], None]] = deque()
        self._turns: deque[asyncio.Future[None]] = deque()
        self._scheduled = False
        self._http: set[Evictable] = set()
        self._idle: dict[Evictable, None] = {}  # HTTP connections without a complete request, the oldest first
        self.websockets: set[Evictable] = set()
        self._buffered: dict[Evictable, int] = {}  # bytes of incomplete messages, the oldest first
        self._buffered_bytes = 0

    def schedule(self, work: Callable[[], None]) -> None:
        """Run a piece of work in one of the next iterations of the loop, in the order of the calls."""
        self._work.append(work)
        self._wake()

    async def wait_turn(self) -> None:
        """Wait for a turn to handle a message, in the order of the calls."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        self._wake()
        await turn

    def _wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        until = time.perf_counter() + ITERATION_SECONDS
        while self._work and time.perf_counter() < until:
            self._work.popleft()()
        for _ in range(min(ITERATION_MESSAGES, len(self._turns))):
            turn = self._turns.popleft()
            if not turn.done():  # otherwise the connection is closed
                turn.set_result(None)
        self._scheduled = False
        if self._work or self._turns:
            self._wake()

    def admit(self, connection: Evictable) -> bool:
        """Admit an HTTP connection; at the limit, evict the one that has waited longest without a request."""
        if len(self._http) >= self._max_http:
            if not self._idle:
                return False
            oldest = next(iter(self._idle))
            self.remove(oldest)
            oldest.evict()
        self._http.add(connection)
        self._idle[connection] = None
        return True

    def request_complete(self, connection: Evictable) -> None:
        """Protect a connection from eviction until its response is complete."""
        self._idle.pop(connection, None)

    def response_complete(self, connection: Evictable) -> None:
        """Make a connection evictable again: it waits for the next request."""
        if connection in self._http:
            self._idle[connection] = None

    def remove(self, connection: Evictable) -> None:
        """Remove a connection that is closed or no longer an HTTP connection."""
        self._http.discard(connection)
        self._idle.pop(connection, None)

    @property
    def websockets_full(self) -> bool:
        return len(self.websockets) >= self._max_websockets

    def remove_websocket(self, connection: Evictable) -> None:
        self.websockets.discard(connection)
        self.set_buffered(connection, 0)

    def set_buffered(self, connection: Evictable, size: int) -> None:
        """Set a connection's bytes of incomplete messages; beyond the budget, evict the oldest of such connections."""
        self._buffered_bytes += size - self._buffered.get(connection, 0)
        if size:
            self._buffered[connection] = size  # keeps its position, and so its age
        else:
            self._buffered.pop(connection, None)
        while self._buffered_bytes > self._max_input_bytes:
            oldest = next(iter(self._buffered))
            self._buffered_bytes -= self._buffered.pop(oldest)
            oldest.evict()


class WebSocketLimit:
    """Limits open WebSockets of one kind; further ones are closed with 1013 (try again later) and a reason."""

    def __init__(self, limit: int, reason: str) -> None:
        self.limit, self._reason = limit, reason
        self._open: set[WebSocket] = set()
        self.refused = 0  # in total

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def acquire(self, socket: WebSocket) -> AsyncIterator[bool]:
        """Count a socket inside the block; yields False, with the socket closed, if the limit is reached."""
        if len(self._open) >= self.limit:
            self.refused += 1
            with suppress(WebSocketDisconnect, RuntimeError):  # already closed
                await socket.accept()  # without it a browser reports 403, as for a wrong token
                await socket.close(TRY_AGAIN_LATER, self._reason)
            yield False
            return
        self._open.add(socket)
        try:
            yield True
        finally:
            self._open.discard(socket)


class TokenBucket:
    """Rate limiter: `rate` units a second in the long run, and `burst` at once.

    It stores the time at which it will be full again (generic cell rate algorithm): one number, and one addition per
    unit, since every message of a game takes one.
    """

    __slots__ = ("_burst", "_clock", "_full_at", "_interval", "_limit")

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval, self._burst, self._clock = 1 / rate, burst, clock
        self._limit = (burst - 1 + 1e-6) / rate  # seconds until full while exactly one unit is left
        self._full_at = clock()

    def level(self) -> float:
        return self._burst - max(0.0, self._full_at - self._clock()) / self._interval

    def take(self) -> bool:
        now, full_at = self._clock(), self._full_at
        if full_at < now:
            full_at = now
        elif full_at - now > self._limit:
            return False
        self._full_at = full_at + self._interval
        return True


class SingleFlightCache(Generic[T]):
    """Caches values for some seconds; concurrent requests for a missing value wait for one computation."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._values, self._lock = seconds, dict[Hashable, tuple[float, T]](), threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The cached value, or a new one; a failure is not cached."""
        with self._lock:
            cached = self._values.get(key)
            if cached is None or time.monotonic() - cached[0] > self._seconds:
                self._values.pop(key, None)
                self._values[key] = cached = time.monotonic(), compute()
                if len(self._values) > MAX_CACHED:
                    del self._values[next(iter(self._values))]
            return cached[1]
