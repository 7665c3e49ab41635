"""HTTP deadlines end with the upgrade: a WebSocket may stay open."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.sync.client import connect

from townlet.web import protocols
from townlet.web.server import Server


async def count(socket: WebSocket) -> None:
    await socket.accept()
    for number in range(100):
        await socket.send_text(str(number))
        await asyncio.sleep(0.05)


def test_a_websocket_outlives_the_deadlines_of_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(protocols, "BODY_SECONDS", 0.5)
    server = Server("127.0.0.1", 0, None)
    thread = threading.Thread(target=server.run, args=(Starlette(routes=[WebSocketRoute("/ws", count)]),), daemon=True)
    thread.start()
    try:
        with connect(f"ws://{server.address}/ws", additional_headers={"Origin": f"http://{server.address}"}) as link:
            begun, found = time.monotonic(), []
            while time.monotonic() < begun + 1.5:
                found.append(int(link.recv(10)))
        assert found == list(range(len(found)))
    finally:
        server.stop()
        thread.join(10)
