"""File descriptors of a server: the limit of the process raised, and shares of it for each kind of connection."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import resource
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect

from townlet.web.tokens import Identity

TARGET_DESCRIPTORS: Final = 1 << 16  # descriptors that are asked for; the hard limit may allow fewer
RESERVED_DESCRIPTORS: Final = 64  # kept free for the log, versions, checkpoints and databases
MAX_BACKLOG: Final = 2048  # connections that may wait in the kernel to be accepted
MAX_HTTP_CONNECTIONS: Final = 1024  # HTTP connections at once
DESCRIPTOR_REMEDY: Final = (
    "raise the limit of open files (ulimit -n, or LimitNOFILE= of a systemd unit) and start again"
)


class DescriptorBudget(NamedTuple):
    """How the descriptors of a process are shared out, so that connections never use up those of files."""

    limit: int  # of the process
    backlog: int  # connections that the kernel may accept ahead: the loop takes all of them in one turn
    http: int  # HTTP connections
    websockets: int  # WebSockets

    @property
    def app_websockets(self) -> int:
        """WebSockets for the application; the others are being refused, with a reason that takes a moment to send."""
        return self.websockets - self.websockets // 16


def allocate_descriptors(limit: int, used: int) -> DescriptorBudget:
    """Shares of `limit` descriptors, of which `used` are open already."""
    room = max(limit - used - RESERVED_DESCRIPTORS, 16)
    backlog, requests = min(MAX_BACKLOG, room // 8), min(MAX_HTTP_CONNECTIONS, room // 8)
    return DescriptorBudget(limit, backlog, requests, room - backlog - requests)


def raise_descriptor_limit(enough: int = TARGET_DESCRIPTORS) -> DescriptorBudget:
    """Raise the soft limit of open files as far as is useful and allowed, and share it out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = enough if hard == resource.RLIM_INFINITY else min(hard, enough)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # some systems allow less than they say: the soft limit holds then
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return allocate_descriptors(enough if soft == resource.RLIM_INFINITY else soft, _count_open())


def _count_open() -> int:
    """Descriptors that this process has open."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return len(os.listdir(folder))
    return RESERVED_DESCRIPTORS


ITERATION_SECONDS: Final = 0.003  # seconds of work on input in one turn of the event loop, for all connections together
ITERATION_MESSAGES: Final = 16  # of clients that send without waiting for answers, in one turn for all of them together
MAX_INPUT_BYTES: Final = 128 << 20  # bytes of incomplete messages of all connections together


class Evictable(Protocol):
    """A connection that can be closed in favour of others."""

    def drop(self) -> None:
        """Close it: it has kept the server waiting for longer than all others."""


class ConnectionLimiter:
    """Input of all connections of a server, within limits. A flood on one connection delays that one only."""

    def __init__(self, requests: int, sockets: int, input_bytes: int = MAX_INPUT_BYTES) -> None:
        self._most, self._most_sockets, self._most_bytes = requests, sockets, input_bytes
        self._work: deque[Callable[[], None]] = deque()
        self._turns: deque[asyncio.Future[None]] = deque()
        self._scheduled = False
        self._requests: set[Evictable] = set()  # HTTP connections
        self._waiting: dict[Evictable, None] = {}  # those without a complete request, the longest waiting first
        self._sockets: set[Evictable] = set()
        self._held: dict[Evictable, int] = {}  # bytes of incomplete messages, the oldest first
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
        until = time.perf_counter() + ITERATION_SECONDS
        while self._work and time.perf_counter() < until:
            self._work.popleft()()
        for _ in range(min(ITERATION_MESSAGES, len(self._turns))):
            turn = self._turns.popleft()
            if not turn.done():  # else the connection is gone
                turn.set_result(None)
        self._scheduled = False
        if self._work or self._turns:
            self._schedule()

    def admit(self, connection: Evictable) -> bool:
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

    def requested(self, connection: Evictable) -> None:
        """Note that its request is complete."""
        self._waiting.pop(connection, None)

    def answered(self, connection: Evictable) -> None:
        """Note that its response is complete: it waits for the next request."""
        if connection in self._requests:
            self._waiting[connection] = None

    def leave(self, connection: Evictable) -> None:
        """Remove it: it is closed or no longer an HTTP connection."""
        self._requests.discard(connection)
        self._waiting.pop(connection, None)

    @property
    def full(self) -> bool:
        """Whether no further WebSocket can be opened."""
        return len(self._sockets) >= self._most_sockets

    def opened(self, socket: Evictable) -> None:
        """Count a new WebSocket."""
        self._sockets.add(socket)

    def closed(self, socket: Evictable) -> None:
        """Remove a closed WebSocket."""
        self._sockets.discard(socket)
        self.hold(socket, 0)

    def hold(self, connection: Evictable, size: int) -> None:
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


TRY_AGAIN_LATER: Final = 1013  # close code: try again later


class WebSocketLimit:
    """Counts open WebSockets of one kind."""

    def __init__(self, most: int, reason: str) -> None:
        self.most, self._reason = most, reason
        self._taken: set[WebSocket] = set()
        self.refused = 0  # ever

    def __len__(self) -> int:
        return len(self._taken)

    @asynccontextmanager
    async def acquire(self, socket: WebSocket) -> AsyncIterator[bool]:
        """Hold a slot inside the block; False where none was free, and the socket is closed then."""
        if len(self._taken) >= self.most:
            self.refused += 1
            with suppress(WebSocketDisconnect, RuntimeError):  # gone already
                await socket.accept()  # without it a browser sees 403, as if the token were wrong
                await socket.close(TRY_AGAIN_LATER, self._reason)
            yield False
            return
        self._taken.add(socket)
        try:
            yield True
        finally:
            self._taken.discard(socket)


MAX_GUESSES: Final = 10  # wrong tokens of an address before it has to wait
GUESS_SECONDS: Final = 1.0  # seconds until it may try one more
MAX_ADDRESSES: Final = 4096  # that are remembered; the longest silent is forgotten first


class TokenBucket:
    """Grants `rate` units a second in the long run, and `burst` at once.

    It keeps the moment at which it will be full again (the generic cell rate algorithm): one number, and one addition
    for each unit, since every message of a game takes one.
    """

    __slots__ = ("_burst", "_clock", "_full", "_interval", "_limit")

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval, self._burst, self._clock = 1 / rate, burst, clock
        self._limit = (burst - 1 + 1e-6) / rate  # seconds from full that are left where one unit is
        self._full = clock()

    def level(self) -> float:
        """Units that are left now."""
        return self._burst - max(0.0, self._full - self._clock()) / self._interval

    def take(self) -> bool:
        """Take a unit if there is one."""
        now, full = self._clock(), self._full
        if full < now:
            full = now
        elif full - now > self._limit:
            return False
        self._full = full + self._interval
        return True


class _AddressState:
    """State of one address."""

    def __init__(self, clock: Callable[[], float]) -> None:
        # Stale cookies of a page that reconnects on its own must not keep out the link that replaces them.
        self.guesses = {kept: TokenBucket(1 / GUESS_SECONDS, MAX_GUESSES, clock) for kept in (True, False)}
        self.accepted: set[Identity] = set()


class LoginThrottle:
    """Slows down attempts to guess a token: an address may send a few wrong ones, then one a second.

    An identity that was accepted from an address stays accepted there, else a neighbour (or another process, on
    loopback) could lock out the operator by guessing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._addresses: OrderedDict[str, _AddressState] = OrderedDict()

    def judge(self, address: str, kept: bool, found: Identity | None) -> bool:
        """Whether the result of this attempt may be used; `kept` tells a cookie from a token that was written out."""
        if found is None or (known := self._addresses.get(_network(address))) is None or found not in known.accepted:
            return self._attempt(self._address(address), kept, found)
        return True

    def _attempt(self, known: _AddressState, kept: bool, found: Identity | None) -> bool:
        bucket = known.guesses[kept]
        if found is None:
            return bucket.take()
        if bucket.level() < 1 - 1e-6:
            return False
        known.accepted.add(found)
        return True

    def _address(self, address: str) -> _AddressState:
        network = _network(address)
        known = self._addresses.setdefault(network, _AddressState(self._clock))
        self._addresses.move_to_end(network)
        while len(self._addresses) > MAX_ADDRESSES:
            self._addresses.popitem(last=False)
        return known


def _network(address: str) -> str:
    """The /64 network of an IPv6 address, since one subscriber has all of it; other addresses unchanged."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network(f"{address.partition('%')[0]}/64", strict=False))
    except ValueError:
        return address


T = TypeVar("T")
MAX_CACHED: Final = 64  # answers that are remembered


class SingleFlightCache(Generic[T]):
    """What a question was answered with is good for some seconds, for everybody; two who ask at once wait for one."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._known, self._lock = seconds, dict[Hashable, tuple[float, T]](), threading.Lock()

    def get(self, question: Hashable, answer: Callable[[], T]) -> T:
        """The answer from memory, or a new one; a failure is not remembered."""
        with self._lock:
            found = self._known.get(question)
            if found is None or time.monotonic() - found[0] > self._seconds:
                self._known.pop(question, None)
                self._known[question] = found = time.monotonic(), answer()
                if len(self._known) > MAX_CACHED:
                    del self._known[next(iter(self._known))]
            return found[1]
