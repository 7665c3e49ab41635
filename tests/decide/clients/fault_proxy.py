"""Proxy between a client and a service that injects faults at given messages."""

from __future__ import annotations

import asyncio
import http
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

HALF_FRAME = b"\x81\x7e\x01\x00" + b'{"type": "rank_'  # begins a text of 256 bytes
SHOWN_STATUSES = (401, 403)  # of the service; the client sees them, too


@dataclass
class Fault:
    """What happens at a message; messages and connections are counted from 1.

    At `request` the message is not forwarded; at `answer` it was, so the service has answered:

    - `refuse`: the handshake is refused with 503; `on` is `handshake`
    - `close`: a closing handshake with `code`
    - `cut`: the connection ends without one
    - `half`: it ends within the frame of the answer
    - `hold`: nothing is forwarded any longer, but the connection stays open
    - `delay`: the answer is delivered after `seconds`
    - `split`: the answer arrives in fragments, with a ping between them
    - `kill`: the service is killed and restarted
    """

    do: str
    on: str = "answer"
    number: int = 1
    connection: int = 1
    code: int = 1001
    seconds: float = 0.3


@dataclass
class FaultProxy:
    """One proxy for one vector."""

    service: str
    faults: list[Fault]
    restart: Callable[[], object]
    handshakes: int = 0
    address: str = ""
    _upstream: dict[ServerConnection, ClientConnection] = field(default_factory=dict)
    _numbers: dict[ServerConnection, int] = field(default_factory=dict)

    def fault(self, on: str, connection: int, number: int = 1) -> Fault | None:
        at = (on, connection, number)
        return next((fault for fault in self.faults if (fault.on, fault.connection, fault.number) == at), None)

    async def handshake(self, link: ServerConnection, request: Any) -> Any:
        """Connect to the service with the path and the token of the client, and pass on a refusal."""
        self.handshakes += 1
        if self.fault("handshake", self.handshakes):
            return link.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "not now")
        headers = {name: request.headers[name] for name in ("Authorization",) if name in request.headers}
        _, _, query = request.path.partition("?")
        try:
            url = f"{self.service}?{query}"
            upstream = await connect(url, additional_headers=headers, proxy=None, compression=None)
        except InvalidStatus as error:
            status = error.response.status_code
            return link.respond(http.HTTPStatus(status if status in SHOWN_STATUSES else 502), "refused")
        except OSError:
            return link.respond(http.HTTPStatus.BAD_GATEWAY, "the service does not answer")
        self._upstream[link], self._numbers[link] = upstream, self.handshakes
        return None

    async def exchange(self, link: ServerConnection) -> None:
        upstream, number = self._upstream[link], self._numbers[link]
        directions = [
            asyncio.create_task(self._forward("request", link, upstream, link, number)),
            asyncio.create_task(self._forward("answer", upstream, link, link, number)),
        ]
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        for task in directions:
            task.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        upstream.transport.abort()
        if link.close_code is None:
            link.transport.abort()

    async def _forward(self, on: str, source: Any, target: Any, link: ServerConnection, connection: int) -> None:
        number = 0
        try:
            async for text in source:
                number += 1
                fault = self.fault(on, connection, number)
                if fault is None:
                    await target.send(text)
                elif await self._inject(fault, link, text):
                    return
        except ConnectionClosed:
            return

    async def _inject(self, fault: Fault, link: ServerConnection, text: str) -> bool:
        """Returns whether the connection has ended."""
        if fault.do == "delay":
            await asyncio.sleep(fault.seconds)
            await link.send(text)
        elif fault.do == "split":
            middle = len(text) // 2

            async def parts() -> Any:
                yield text[:middle]
                await link.ping()
                yield text[middle:]

            await link.send(parts())
        elif fault.do == "hold":
            await asyncio.Event().wait()
        elif fault.do == "close":
            await link.close(fault.code)
        elif fault.do == "kill":
            await asyncio.to_thread(self.restart)
        elif fault.do == "half":
            link.transport.write(HALF_FRAME)
        else:
            assert fault.do == "cut", fault.do
        return fault.do in ("cut", "half", "close", "kill")


@contextmanager
def fault_proxy(service: str, faults: list[Fault], restart: Callable[[], object]) -> Iterator[FaultProxy]:
    """Run a proxy in a thread."""
    proxy, started = FaultProxy(service, faults, restart), threading.Event()
    runner, stop = asyncio.Runner(), asyncio.Event()

    async def run() -> None:
        options: dict[str, Any] = {"process_request": proxy.handshake, "max_size": None, "compression": None}
        async with serve(proxy.exchange, "127.0.0.1", 0, **options) as server:
            proxy.address = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
            started.set()
            await stop.wait()
            for link in list(server.all_connections):  # of clients that did not close
                link.transport.abort()

    def run_thread() -> None:
        with runner:
            runner.run(run())

    thread = threading.Thread(target=run_thread)
    thread.start()
    assert started.wait(20)
    yield proxy
    runner.get_loop().call_soon_threadsafe(stop.set)
    thread.join(20)
