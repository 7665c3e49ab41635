"""Flood one server, as a separate program: sending must not slow down what is measured.

`flooder.py KIND URL COUNT SECONDS` prints `ready` once the flood has started, and JSON counts at the end.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

EMPTY = b"\x00\x80abcd"  # a continuation frame without content, masked
FLOODS = {  # the first bytes, and the bytes that are repeated
    "continuations": (b"\x01\x80abcd", EMPTY * 10_000),
    "pings": (b"", b"\x89\x80abcd" * 10_000),
    "pongs": (b"", b"\x8a\x80abcd" * 10_000),
    "messages": (b"", b"\x81\x81abcd\x1b" * 10_000),
}


class Flooder:
    """One kind of flood, over many connections."""

    def __init__(self, kind: str, url: str, count: int, seconds: float) -> None:
        self.kind, self.parts, self.count, self.seen = kind, urlsplit(url), count, Counter[str]()
        self.until = time.monotonic() + seconds
        self.present = self.territories = 0

    async def run(self) -> None:
        """Run until the time is over; closed connections are opened again."""
        do = {"headers": self.send_header_slowly, "sockets": self.stay_open}
        do["observations"] = self.observe
        work = do.get(self.kind, self.send_endlessly)
        tasks = [asyncio.create_task(self.reconnect(work, place)) for place in range(self.count)]
        limit = time.monotonic() + 20
        while self.present < 0.9 * self.count and time.monotonic() < min(limit, self.until):
            await asyncio.sleep(0.05)
        print("ready", flush=True)
        await asyncio.sleep(max(0.0, self.until - time.monotonic()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        print(json.dumps(self.seen), flush=True)

    async def reconnect(
        self, work: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], n: int
    ) -> None:
        await asyncio.sleep(n * 0.0005)
        while time.monotonic() < self.until:
            writer = None
            try:
                reader, writer = await asyncio.open_connection(self.parts.hostname, self.parts.port)
                self.seen["opened"] += 1
                self.present += 1
                await work(reader, writer)
            except (OSError, EOFError, asyncio.IncompleteReadError):
                self.seen["broken"] += 1
            finally:
                if writer is not None:
                    self.present -= 1
                    writer.transport.abort()
            await asyncio.sleep(1.0)

    async def send_header_slowly(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send one byte a second, without an end."""
        writer.write(b"GET /health HTTP/1.1\r\n")
        ended = asyncio.create_task(reader.read(4096))
        ended.add_done_callback(lambda task: task.cancelled() or task.exception())
        while not ended.done():
            writer.write(b"X")
            await asyncio.wait([ended], timeout=1.0)
        self.seen[(await ended)[9:12].decode() or "closed"] += 1

    async def handshake(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        host, path = f"{self.parts.hostname}:{self.parts.port}", f"{self.parts.path}?{self.parts.query}"
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        answer = await reader.readuntil(b"\r\n\r\n")
        self.seen[answer[9:12].decode()] += 1
        return answer.startswith(b"HTTP/1.1 101")

    async def stay_open(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Keep a WebSocket open that only reads and answers pings."""
        if not await self.handshake(reader, writer):
            return
        while True:
            head = await reader.readexactly(2)
            size = head[1] & 127
            if size > 125:
                size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8))
            data = await reader.readexactly(size)
            if head[0] == 0x88:
                self.seen[f"close {int.from_bytes(data[:2])} {data[2:].decode()}"] += 1
                return
            if head[0] == 0x89:
                writer.write(bytes([0x8A, 0x80 | size, 0, 0, 0, 0]) + data)

    async def send_endlessly(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send frames as fast as possible until the server closes."""
        if not await self.handshake(reader, writer):
            return
        first, rest = FLOODS[self.kind]
        writer.write(first)
        closed = asyncio.create_task(self._closing(reader))
        closed.add_done_callback(lambda task: task.cancelled() or task.exception())
        while not closed.done() and time.monotonic() < self.until:
            writer.write(rest)
            drained = asyncio.create_task(writer.drain())
            await asyncio.wait([drained, closed], return_when=asyncio.FIRST_COMPLETED)
            drained.cancel()
            self.seen["kilobytes"] += len(rest) // 1000
        self.seen[await closed] += 1

    async def observe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send the largest observations of a hive, each of a new territory, up to 16 unanswered."""
        if not await self.handshake(reader, writer):
            return
        ahead = asyncio.Semaphore(16)
        reading = asyncio.create_task(self._count_answers(reader, ahead))
        reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        while time.monotonic() < self.until:
            await ahead.acquire()
            self.territories += 1
            writer.write(framed(json.dumps(largest(1.0, f"flood {id(self)} {self.territories}"))))
            await writer.drain()
        await reading

    async def _count_answers(self, reader: asyncio.StreamReader, ahead: asyncio.Semaphore) -> None:
        while True:
            head = await reader.readexactly(2)
            size = head[1] & 127
            data = await reader.readexactly(int.from_bytes(await reader.readexactly(2)) if size == 126 else size)
            kind = json.loads(data)
            self.seen[kind.get("code", kind["type"])] += 1
            ahead.release()

    async def _closing(self, reader: asyncio.StreamReader) -> str:
        """The code and reason with which the server ends it; what else it sends is small."""
        while data := await reader.read(4096):
            if (place := data.rfind(b"\x88")) >= 0 and place + 4 <= len(data):
                return (
                    f"close {int.from_bytes(data[place + 2 : place + 4])} {data[place + 4 :].decode(errors='replace')}"
                )
        return "closed"


def largest(timestamp: float, territory: str) -> dict[str, object]:
    """An observation of a hive with as many units as there may be."""
    parasites = [{"chunkId": 399, "type": "combat"}] * 255
    return {
        "type": "observation_data", "timestamp": timestamp, "territoryId": territory, "hiveChunk": 399,
        "miningWorkers": [399] * 255, "workersPresent": [398] * 255, "parasitesStart": parasites,
        "parasitesEnd": parasites, "protectors": [{"x": 19.123456789012345, "z": 19.5, "chunkId": 399}] * 255,
        "queenEnergy": {"current": 50.0, "max": 100.0}, "playerEnergy": {"start": 1.5, "end": 2.5},
        "playerMinerals": {"start": 1.5, "end": 2.5},
    }  # fmt: skip


def framed(text: str) -> bytes:
    """A message of less than 64 KiB as clients send it; a mask of zeros leaves it as it is."""
    return b"\x81\xfe" + len(text).to_bytes(2) + bytes(4) + text.encode()


if __name__ == "__main__":
    asyncio.run(Flooder(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])).run())
