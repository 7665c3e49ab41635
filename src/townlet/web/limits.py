"""Limits of a server: file descriptors, connections, work per loop iteration and message rates; and a small cache."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

TARGET_DESCRIPTORS: Final = 1 << 16  # requested soft limit; the hard limit may be lower
RESERVED_DESCRIPTORS: Final = 64  # for the log, versions, checkpoints and databases
ASSUMED_OPEN: Final = 64  # descriptors in use, where the system does not list them
MIN_DESCRIPTORS: Final = 16  # for connections, however low the limit is
MAX_BACKLOG: Final = 2048  # connections that wait in the kernel to be accepted
MAX_HTTP_CONNECTIONS: Final = 1024
MAX_HTTP_BURST: Final = 4096  # while those beyond MAX_HTTP_CONNECTIONS have just been opened
BURST_SECONDS: Final = 2.0  # time in which a new connection should have sent its request
DESCRIPTOR_REMEDY: Final = "raise the open-file limit (ulimit -n, or LimitNOFILE= in systemd) and restart"

# Per iteration of the event loop, over all connections:
PARSE_SECONDS: Final = 0.003  # time budget for parsing input
QUEUED_MESSAGES: Final = 16  # handled messages from clients that do not wait for replies
MAX_INPUT_BYTES: Final = 128 << 20  # incomplete messages of all connections

MAX_CACHE_ENTRIES: Final = 64

T = TypeVar("T")


class DescriptorBudget(NamedTuple):
    """Shares of the process's file descriptors, so that connections cannot exhaust those needed for files."""

    limit: int  # soft limit of the process
    backlog: int  # listen backlog; the loop may accept all of it in one iteration, so each needs a descriptor
    http: int
    websockets: int

    @property
    def app_websockets(self) -> int:
        """WebSockets for the application; 1/16 is kept for those being refused, open until the close frame is sent."""
        return self.websockets - self.websockets // 16


def allocate_descriptors(limit: int, used: int) -> DescriptorBudget:
    """Divide `limit` descriptors, of which `used` are already open."""
    available = max(limit - used - RESERVED_DESCRIPTORS, MIN_DESCRIPTORS)
    backlog, http = min(MAX_BACKLOG, available // 8), min(MAX_HTTP_BURST, available // 8)
    return DescriptorBudget(limit, backlog, http, available - backlog - http)


def raise_descriptor_limit(target: int = TARGET_DESCRIPTORS) -> DescriptorBudget:
    """Raise the soft open-file limit to `target`, or as far as the hard limit allows, and divide it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = target if hard == resource.RLIM_INFINITY else min(hard, target)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        with suppress(ValueError, OSError):  # some systems allow less than their hard limit; keep the soft limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = ASSUMED_OPEN
    with suppress(OSError):  # on Linux a link to /proc/self/fd
        used = len(os.listdir("/dev/fd"))
    return allocate_descriptors(target if soft == resource.RLIM_INFINITY else soft, used)


class Evictable(Protocol):
    """A connection that can be closed in favor of others."""

    def evict(self) -> None:
        """Close the connection, to free its slot or its buffered bytes."""


class ConnectionPool:
    """At most `limit` connections: at the limit, the one that has been idle longest is evicted for a new one.

    Up to `burst` are open for a moment, so that many that are opened at once can send their requests.
    """

    def __init__(self, limit: int, burst: int = 0) -> None:
        self._limit, self._burst = limit, max(burst, limit)
        self._open: set[Evictable] = set()
        self._idle: dict[Evictable, float] = {}  # times since which they are idle, the longest idle one first

    def admit(self, connection: Evictable) -> bool:
        """Admit a connection, which is idle at first; False if the limit is reached and no other one is idle."""
        now = time.monotonic()
        while len(self._open) >= self._limit and self._idle:
            oldest, since = next(iter(self._idle.items()))
            if now < since + BURST_SECONDS and len(self._open) < self._burst:
                break
            self.remove(oldest)
            oldest.evict()
        if len(self._open) >= self._limit and not self._idle:
            return False
        self._open.add(connection)
        self._idle[connection] = now
        return True

    def mark_busy(self, connection: Evictable) -> None:
        """Protect a connection from eviction."""
        self._idle.pop(connection, None)

    def mark_idle(self, connection: Evictable) -> None:
        """Make a connection evictable."""
        if connection in self._open:
            self._idle[connection] = time.monotonic()

    def remove(self, connection: Evictable) -> None:
        """Remove a connection that was closed or upgraded to a WebSocket."""
        self._open.discard(connection)
        self._idle.pop(connection, None)


class ConnectionLimiter:
    """Admits connections and schedules their input in order, one piece each, so that a flood delays only its sender."""

    def __init__(self, max_http: int, max_websockets: int, max_input_bytes: int = MAX_INPUT_BYTES) -> None:
        self.http = ConnectionPool(min(max_http, MAX_HTTP_CONNECTIONS), max_http)  # idle: without a complete request
        self.websockets = ConnectionPool(max_websockets)  # idle: closed, and waiting for the client to close too
        self._max_input_bytes = max_input_bytes
        self._parse_jobs: deque[Callable[[], None]] = deque()
        self._turns: deque[asyncio.Future[None]] = deque()  # to handle a parsed message
        self._scheduled = False
        self._buffered: dict[Evictable, int] = {}  # bytes of incomplete messages, the oldest first
        self._buffered_bytes = 0

    def schedule(self, parse: Callable[[], None]) -> None:
        """Call `parse` in one of the next iterations of the loop, in the order of these calls."""
        self._parse_jobs.append(parse)
        self._wake()

    async def wait_turn(self) -> None:
        """Wait for a turn to handle a message; turns are given in the order of the calls."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        self._wake()
        await turn

    def _wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        deadline = time.perf_counter() + PARSE_SECONDS
        while self._parse_jobs and time.perf_counter() < deadline:
            self._parse_jobs.popleft()()
        for _ in range(min(QUEUED_MESSAGES, len(self._turns))):
            turn = self._turns.popleft()
            if not turn.done():  # cancelled if the connection was closed meanwhile
                turn.set_result(None)
        self._scheduled = False
        if self._parse_jobs or self._turns:
            self._wake()

    def set_buffered(self, connection: Evictable, size: int) -> None:
        """Set a connection's bytes of incomplete messages; above the limit, evict those incomplete for longest."""
        self._buffered_bytes += size - self._buffered.get(connection, 0)
        if size:
            self._buffered[connection] = size  # the key keeps its position, which is the order of age
        else:
            self._buffered.pop(connection, None)
        while self._buffered_bytes > self._max_input_bytes:
            oldest = next(iter(self._buffered))
            self._buffered_bytes -= self._buffered.pop(oldest)
            oldest.evict()


class TokenBucket:
    """Rate limiter: `rate` units per second in the long run, and up to `burst` at once.

    `take` runs for every message of a game, so the bucket stores only the time at which it will be full again (generic
    cell rate algorithm): one number, and one addition per unit.
    """

    __slots__ = ("_burst", "_clock", "_full_at", "_interval", "_max_refill")

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval, self._burst, self._clock = 1 / rate, burst, clock
        self._max_refill = (burst - 1 + 1e-6) / rate  # seconds until full if one unit is left; 1e-6 absorbs rounding
        self._full_at = clock()

    def level(self) -> float:
        """Units that can be taken now."""
        return self._burst - max(0.0, self._full_at - self._clock()) / self._interval

    def take(self) -> bool:
        """Take one unit; False if none is left."""
        now, full_at = self._clock(), self._full_at
        if full_at < now:
            full_at = now
        elif full_at - now > self._max_refill:
            return False
        self._full_at = full_at + self._interval
        return True


class SingleFlightCache(Generic[T]):
    """Caches values for some seconds. One value is computed at a time; meanwhile all other calls of `get` wait."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._lock = seconds, threading.Lock()
        self._values: dict[Hashable, tuple[float, T]] = {}  # times of computation and values, the oldest first

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The cached value, or a new one; a failure is not cached."""
        with self._lock:
            cached = self._values.get(key)
            if cached is None or time.monotonic() - cached[0] > self._seconds:
                self._values.pop(key, None)  # the new value is inserted last
                cached = self._values[key] = (time.monotonic(), compute())
                if len(self._values) > MAX_CACHE_ENTRIES:
                    del self._values[next(iter(self._values))]
            return cached[1]
