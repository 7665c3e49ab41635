"""HTTP and WebSocket connections at their edges: ambiguous requests, many handshakes, what is logged, and uvicorn."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from townlet.errors import TownletError
from townlet.web import limits
from townlet.web.guard import MAX_BODY_BYTES
from townlet.web.protocols import LimitedHTTP, LimitedWebSocket, check_uvicorn
from townlet.web.server import Server
from web.served import dial, ends, exchange, handshake, served


async def hello(socket: WebSocket) -> None:
    await socket.accept()
    async for text in socket.iter_text():
        await socket.send_text(text)


async def length(request: StarletteRequest) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


def app() -> Starlette:
    return Starlette(routes=[WebSocketRoute("/ws", hello), Route("/{path:path}", length, methods=["GET", "POST"])])


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nHost: %b\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: %b\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\nHost: %b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: %b\n\n",
        b"GET / HTTP/1.1\r\nHost: %b\r\nX-Folded: a\r\n b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: %b\r\n\tX-Folded: a\r\n\r\n",
    ],
)
def test_an_ambiguous_request_is_refused_and_ends_the_connection(head: bytes) -> None:
    """A proxy in front might take the following bytes for another request than this server does."""

    async def attack() -> bytes:
        async with served(app()) as server:
            host = server.address.encode()
            following = b"GET /following HTTP/1.1\r\nHost: %b\r\n\r\n" % host
            fine = await exchange(server, following + following)
            assert fine.count(b"HTTP/1.1 200") == 2
            return await exchange(server, following + head % host + following, following)

    answer = asyncio.run(attack())
    assert answer.count(b"HTTP/1.1 200") == 1
    assert answer.count(b"HTTP/1.1 400") == 1
    assert answer.count(b"HTTP/1.1") == 2


def test_handshakes_at_once_are_all_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than there may be HTTP connections: none is closed as idle while it waits for its turn."""
    monkeypatch.setattr(limits, "MAX_HTTP_CONNECTIONS", 16)
    monkeypatch.setattr(limits, "BURST_SECONDS", 60.0)

    async def attack() -> set[bytes]:
        async with served(app()) as server:

            async def status() -> bytes:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(handshake(server))
                line = await reader.readline()
                writer.close()
                return line

            return set(await asyncio.gather(*(status() for _ in range(600))))

    assert asyncio.run(attack()) == {b"HTTP/1.1 101 Switching Protocols\r\n"}


def test_a_chunked_body_beyond_the_limit_is_answered_with_413() -> None:
    async def post(size: int) -> bytes:
        async with served(app()) as server:
            head = b"POST / HTTP/1.1\r\nHost: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % server.address.encode()
            return await exchange(server, head, b"%x\r\n%b\r\n0\r\n\r\n" % (size, b"x" * size))

    assert b"HTTP/1.1 200" in asyncio.run(post(MAX_BODY_BYTES))
    assert asyncio.run(post(MAX_BODY_BYTES + 1)).startswith(b"HTTP/1.1 413")


def test_clients_cannot_flood_the_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invalid text, aborted bodies and requests that are not HTTP: a few short lines however often they are sent."""
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "filters", [])  # of servers of other tests that still run
    times = 12

    async def invalid_text(server: Server) -> None:
        async with dial(server) as link:
            await link.send(b"\xff\xfe", text=True)
            assert await ends(link) == (1007, "text must be UTF-8")

    async def attack() -> None:
        async with served(app(), log_config=None) as server:
            await asyncio.gather(*(invalid_text(server) for _ in range(times)))
            for _ in range(times):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"POST / HTTP/1.1\r\nHost: %b\r\nContent-Length: 9\r\n\r\nx" % server.address.encode())
                await writer.drain()
                writer.close()
                assert b" 400 " in await exchange(server, b"this is not HTTP\r\n\r\n")

    with caplog.at_level(logging.WARNING):
        asyncio.run(attack())
    lines = [record.getMessage() for record in caplog.records if record.name.startswith(("uvicorn", "townlet"))]
    assert "Traceback" not in caplog.text
    assert lines == [f"Invalid HTTP request received.{more}" for more in ("", " (10 times)")]


def test_an_error_of_the_server_is_logged_with_its_place_but_not_each_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "filters", [])  # of servers of other tests that still run
    broken = FastAPI()

    @broken.get("/{name}")
    def fail(name: str, request: Request) -> str:
        if name == "key":
            raise KeyError(name)
        return str(int(name))

    async def attack() -> None:
        async with served(broken, log_config=None) as server:
            for path in [b"key", *[b"number%d" % turn for turn in range(30)]]:
                line = b"GET /%b HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"
                assert b" 500 " in await exchange(server, line % (path, server.address.encode()))

    with caplog.at_level(logging.WARNING):
        asyncio.run(attack())
    assert [record.exc_info is not None for record in caplog.records] == [True] * 3
    assert "KeyError" in caplog.text
    assert caplog.text.count("ValueError") == 2
    assert "(10 times)" in caplog.text


def test_uvicorn_has_every_method_that_the_limits_override() -> None:
    check_uvicorn(LimitedHTTP, LimitedWebSocket)
    for protocol, method in ((LimitedHTTP, "timeout_keep_alive_handler"), (LimitedWebSocket, "handle_cont")):
        (base,) = protocol.__bases__
        other = type(base.__name__, (), {name: None for name in public(base) if name != method})
        renamed = type(protocol.__name__, (other,), public(protocol))
        with pytest.raises(TownletError, match=f"this release of uvicorn has no {base.__name__}.{method}"):
            check_uvicorn(renamed)


def public(protocol: type) -> dict[str, Any]:
    return {name: getattr(protocol, name) for name in dir(protocol) if not name.startswith("_")}
