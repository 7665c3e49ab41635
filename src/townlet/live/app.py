"""The server: pages, what they ask for once, and the conversation in which everything that moves is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import ValidationError
from starlette.requests import HTTPConnection

from townlet import __version__
from townlet.errors import ConfigError, TownletError
from townlet.live.api import api_router, episode_router
from townlet.live.hub import Hub
from townlet.live.protocol import CLIENT_MESSAGE, MAX_MESSAGE_BYTES, EditWorld, Error, Hello, json_schema, protocol_page
from townlet.live.rollout_worker import TooManyRollouts
from townlet.live.viewer import Viewer
from townlet.live.watched_run import NotFound
from townlet.live.world_view import check_world
from townlet.web.limits import WebSocketLimit
from townlet.web.mailbox import SendTimeout
from townlet.web.tokens import ANONYMOUS, Identity

STATIC: Final = Path(__file__).parent / "static"
MAX_VIEWERS: Final = 2000  # pages at once
MAX_MESSAGE_RATE: Final = 40  # messages a second from one page; more are refused one by one
TOO_LARGE: Final = 1009  # too large


def make_app(house: Hub, worlds: Path = Path("worlds"), viewers: int = MAX_VIEWERS) -> FastAPI:
    """The whole server for the runs below one folder; worlds that a page saves go into another."""
    slots = WebSocketLimit(min(viewers, MAX_VIEWERS), "too many pages are open; this one tries again later")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        conductor = asyncio.create_task(house.run())
        yield
        house.studio.close()
        conductor.cancel()
        with suppress(asyncio.CancelledError):
            await conductor

    app = FastAPI(title="Townlet", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_exception_handler(TownletError, _error_response)
    app.add_exception_handler(ConfigError, _error_response)
    _add_pages(app, house)
    app.include_router(api_router(house, worlds))
    app.include_router(episode_router(house))

    @app.websocket("/ws")
    async def talk(socket: WebSocket) -> None:
        async with slots.acquire(socket) as taken:
            if taken:
                await _serve_viewer(socket, house)

    return app


def _add_pages(app: FastAPI, house: Hub) -> None:
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    @app.get("/docs/protocol", include_in_schema=False)
    async def protocol() -> HTMLResponse:
        return HTMLResponse(protocol_page())

    @app.get("/docs/protocol.json", include_in_schema=False)
    async def schema() -> JSONResponse:
        return JSONResponse(json_schema())

    @app.get("/api/me", include_in_schema=False)
    async def me(request: Request) -> JSONResponse:
        return JSONResponse({"role": _role(request)})

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> JSONResponse:
        return JSONResponse({"viewers": house.present, "tasks": len(asyncio.all_tasks())})


def _role(request: HTTPConnection) -> str:
    """The role of the request's token, as found by the guard."""
    identity: Identity = request.scope.get("identity", ANONYMOUS)
    return identity.role


async def _error_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, TownletError)
    first = error.diagnostics[0]
    status = 404 if isinstance(error, NotFound) else 429 if isinstance(error, TooManyRollouts) else 400
    return JSONResponse({"what": first.what, "fix": first.fix}, status)


async def _serve_viewer(socket: WebSocket, house: Hub) -> None:
    """One conversation, until either side has enough."""
    await socket.accept()
    viewer = Viewer(house)
    viewer.say(Hello(version=__version__, run=house.first, program=house.program, role=_role(socket)))
    parts = (
        viewer.mailbox.deliver(socket.send_text),
        viewer.mailbox.enforce_timeout(),
        _receive_messages(socket, viewer),
    )
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            with suppress(WebSocketDisconnect, SendTimeout, RuntimeError):
                task.result()
    finally:
        viewer.leave()
        for task in tasks:
            task.cancel()
        with suppress(RuntimeError, WebSocketDisconnect):
            await socket.close()


async def _receive_messages(socket: WebSocket, viewer: Viewer) -> None:
    """What the page says, one message after the other; what is wrong is answered, and it may go on."""
    allowance, then = float(MAX_MESSAGE_RATE), asyncio.get_running_loop().time()
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        text = message.get("text")
        now = asyncio.get_running_loop().time()
        allowance, then = min(MAX_MESSAGE_RATE, allowance + MAX_MESSAGE_RATE * (now - then)), now
        if allowance < 1:
            viewer.say(Error(what="too many messages at once", fix=f"send at most {MAX_MESSAGE_RATE} a second"))
            await asyncio.sleep(0.1)
            continue
        allowance -= 1
        if text is None:
            viewer.say(Error(what="this was binary", fix="send JSON as text"))
        elif len(text) > MAX_MESSAGE_BYTES:
            await socket.close(TOO_LARGE)
            return
        else:
            await _handle_message(text, viewer)


async def _handle_message(text: str, viewer: Viewer) -> None:
    try:
        message = CLIENT_MESSAGE.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        viewer.say(Error(what=f"{where or 'message'}: {first['msg']}", fix="see /docs/protocol"))
        return
    if isinstance(message, EditWorld):  # takes a while, in which nobody else should wait
        viewer.edit(message, await asyncio.to_thread(check_world, message.text))
    else:
        viewer.receive(message)
