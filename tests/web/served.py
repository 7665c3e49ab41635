"""An app on a real server, in the event loop of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp
from websockets.asyncio.client import ClientConnection, connect

from townlet.web.server import Server
from townlet.web.tokens import Tokens


@asynccontextmanager
async def served(
    app: ASGIApp, tokens: Tokens | None = None, descriptors: dict[str, int] | None = None, **options: Any
) -> AsyncIterator[Server]:
    """A server for programs, with fewer descriptors if given, while the block runs."""
    server = Server("127.0.0.1", 0, tokens, allow_no_origin=True, **options)
    server.descriptors = server.descriptors._replace(**(descriptors or {}))
    serving = asyncio.create_task(server.serve(app))
    while server._server is None or not server._server.started:
        await asyncio.sleep(0.01)
    try:
        yield server
    finally:
        server.stop()
        await serving


def dial(server: Server, token: str = "", address: str = "127.0.0.1", path: str = "/ws", **headers: str) -> connect:
    """A WebSocket from one of the loopback addresses."""
    if token:
        headers["Authorization"] = f"Bearer {token}"
    url = f"ws://{server.address}{path}"
    return connect(url, additional_headers=headers, local_addr=(address, 0), proxy=None)


async def ends(connection: ClientConnection) -> tuple[int, str]:
    """Code and reason with which the server closes a connection."""
    async with asyncio.timeout(10):
        await connection.wait_closed()
    return connection.close_code or 0, connection.close_reason or ""


def handshake(server: Server) -> bytes:
    """The request that opens a WebSocket."""
    head = f"GET /ws HTTP/1.1\r\nHost: {server.address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    return f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n\r\n".encode()


async def exchange(server: Server, *data: bytes) -> bytes:
    """What the server sends on a raw connection, until it closes or is silent for a while."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    received = b""
    try:
        for part in data:
            writer.write(part)
            await writer.drain()
        while chunk := await asyncio.wait_for(reader.read(65536), 1.0):
            received += chunk
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
    return received
