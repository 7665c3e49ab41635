"""A thousand WebSocket clients in one process, which measure the delay of frames."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from dataclasses import dataclass, field
from functools import partial

PING, PONG = 0x89, b"\x8a"
SENT = re.compile(rb'"sent":([0-9.]+)\}$')


@dataclass
class Ages:
    """Measurements of all reading clients."""

    frames: list[float] = field(default_factory=list)  # delay of every frame in seconds
    counts: dict[int, int] = field(default_factory=dict)  # row overviews by client: sent at every tick


class Client(asyncio.Protocol):
    """One client that watches training; a stuck one reads nothing after the handshake."""

    def __init__(self, number: int, port: int, ask: dict[str, object], ages: Ages, stuck: bool) -> None:
        self._number, self._port, self._ask, self._ages, self._stuck = number, port, ask, ages, stuck
        self._bytes = bytearray()
        self._greeted = False
        self.open = asyncio.get_running_loop().create_future()
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nOrigin: http://127.0.0.1:{self._port}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )

    def connection_lost(self, error: Exception | None) -> None:
        for waits in (self.open, self.closed):
            if not waits.done():
                waits.set_result(False)

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        if not self._greeted:
            if (end := self._bytes.find(b"\r\n\r\n")) < 0:
                return
            assert self._bytes.startswith(b"HTTP/1.1 101"), bytes(self._bytes[:80])
            del self._bytes[: end + 4]
            self._greeted = True
            self.transport.write(masked(json.dumps(self._ask).encode()))
            self.open.set_result(True)
            if self._stuck:
                self.transport.pause_reading()
                return
        self._read()

    def _read(self) -> None:
        """Parse all complete messages."""
        found, at = self._bytes, 0
        while len(found) - at >= 2:
            size, begin = found[at + 1], at + 2
            if size == 126:
                size, begin = int.from_bytes(found[at + 2 : at + 4]), at + 4
            elif size == 127:
                size, begin = int.from_bytes(found[at + 2 : at + 10]), at + 10
            if len(found) < begin + size:
                break
            if found[begin : begin + 15] == b'{"type":"frame"' and (sent := SENT.search(found, begin, begin + size)):
                self._ages.frames.append(time.time() - float(sent[1]))
            elif found[at] == PING:  # unanswered pings close the connection
                self.transport.write(masked(bytes(found[begin : begin + size]), PONG))
            elif found[begin : begin + 23] == b'{"type":"rows_overview"':
                self._ages.counts[self._number] = self._ages.counts.get(self._number, 0) + 1
            at = begin + size
        del found[:at]


def masked(text: bytes, kind: bytes = b"\x81") -> bytes:
    """A masked WebSocket frame."""
    key = os.urandom(4)
    size = bytes([0x80 | len(text)]) if len(text) < 126 else bytes([0x80 | 126]) + len(text).to_bytes(2)
    return kind + size + key + bytes(byte ^ key[k % 4] for k, byte in enumerate(text))


async def crowd(port: int, ask: dict[str, object], many: int, stuck: int, seconds: float) -> tuple[Ages, list[Client]]:
    """Watch with `many` clients for `seconds`; the first `stuck` read nothing. Connections stay open."""
    loop, ages, clients = asyncio.get_running_loop(), Ages(), list[Client]()
    for number in range(many):
        _, client = await loop.create_connection(
            partial(Client, number, port, ask, ages, number < stuck), "127.0.0.1", port
        )
        clients.append(client)
        if number % 50 == 49:
            await asyncio.gather(*(one.open for one in clients[-50:]))
    await asyncio.gather(*(client.open for client in clients))
    await asyncio.sleep(2)  # let all subscriptions settle
    ages.frames.clear()
    ages.counts.clear()
    await asyncio.sleep(seconds)
    return ages, clients


async def come_and_go(port: int, ask: dict[str, object], times: int, together: int = 50) -> None:
    """Connect, subscribe and leave; half of the clients without a close frame."""
    loop, unheard = asyncio.get_running_loop(), Ages()
    for first in range(0, times, together):
        made = [
            await loop.create_connection(lambda: Client(0, port, ask, unheard, False), "127.0.0.1", port)
            for _ in range(min(together, times - first))
        ]
        await asyncio.gather(*(client.open for _, client in made))
        for number, (transport, _) in enumerate(made):
            if number % 2:
                transport.write(b"\x88\x80" + os.urandom(4))  # close frame
                transport.close()
            else:
                transport.abort()
        await asyncio.gather(*(client.closed for _, client in made))
