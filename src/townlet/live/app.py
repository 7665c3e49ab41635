"""The FastAPI application: static page, HTTP API, and the WebSocket that streams all changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import ValidationError

from townlet._version import __version__
from townlet.config.models import first_error
from townlet.errors import TownletError
from townlet.live import protocol
from townlet.live.api import api_router, episode_router
from townlet.live.hub import Hub
from townlet.live.lessons import lessons_router
from townlet.live.messages import MAX_MESSAGE_BYTES
from townlet.live.protocol_page import json_schema, protocol_page
from townlet.live.rollout_worker import TooManyRollouts
from townlet.live.sharing_routes import sharing_router
from townlet.live.tournament import Tournaments, tournament_router
from townlet.live.training_jobs import TrainingJobs, training_router
from townlet.live.viewer import Viewer
from townlet.live.watched_run import NotFound
from townlet.web.errors import add_error_handlers
from townlet.web.guard import role_of
from townlet.web.limits import TokenBucket
from townlet.web.mailbox import run_until_first
from townlet.web.shares import WebSocketLimit

STATIC: Final = Path(__file__).parent / "static"
MAX_VIEWERS: Final = 2000
MAX_MESSAGE_RATE: Final = 40  # messages per second from one client; further ones are refused
TOO_LARGE: Final = 1009  # WebSocket close code
LOGGER: Final = logging.getLogger(__name__)


def make_app(
    hub: Hub, worlds: Path = Path("worlds"), viewers: int = MAX_VIEWERS, join_link: str | None = None
) -> FastAPI:
    """The application for a hub, for at most `viewers` pages; worlds saved in the page go to the folder `worlds`.

    `join_link` is the read-only link, which the page shows as a QR code.
    """
    jobs, tournaments = TrainingJobs(hub.root, worlds), Tournaments(hub.root)
    slots = WebSocketLimit(min(viewers, MAX_VIEWERS), "too many pages are open; this page retries automatically")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        updates = asyncio.create_task(hub.run())
        yield
        hub.close()
        tournaments.close()
        await asyncio.to_thread(jobs.close)
        updates.cancel()
        with suppress(asyncio.CancelledError):
            await updates

    app = FastAPI(title="Townlet", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    add_error_handlers(app, _status_of)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.include_router(api_router(hub, worlds))
    app.include_router(episode_router(hub))
    app.include_router(training_router(jobs))
    app.include_router(tournament_router(tournaments))
    app.include_router(sharing_router(join_link))
    app.include_router(lessons_router())

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    @app.get("/docs/protocol", include_in_schema=False)
    async def reference() -> HTMLResponse:
        return HTMLResponse(protocol_page())

    @app.get("/docs/protocol.json", include_in_schema=False)
    async def schema() -> JSONResponse:
        return JSONResponse(json_schema())

    @app.get("/api/me", include_in_schema=False)
    async def me(request: Request) -> JSONResponse:
        return JSONResponse({"role": role_of(request)})

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> JSONResponse:
        return JSONResponse({"viewers": hub.viewer_count, "tasks": len(asyncio.all_tasks())})

    @app.websocket("/ws")
    async def websocket(socket: WebSocket) -> None:
        async with slots.acquire(socket) as slot:
            if slot:
                await _serve_viewer(socket, hub)

    return app


def _status_of(error: TownletError) -> int:
    if isinstance(error, NotFound):
        return 404
    return 429 if isinstance(error, TooManyRollouts) else 400


async def _serve_viewer(socket: WebSocket, hub: Hub) -> None:
    await socket.accept()
    viewer = Viewer(hub)
    viewer.send(protocol.Hello(version=__version__, run=hub.first, program=hub.program, role=role_of(socket)))
    try:
        await run_until_first(viewer.mailbox.deliver(socket.send_text), _receive_messages(socket, viewer))
    finally:
        viewer.leave()
    with suppress(RuntimeError, WebSocketDisconnect):
        await socket.close()


async def _receive_messages(socket: WebSocket, viewer: Viewer) -> None:
    """Handle messages one after another; invalid ones are answered with an error."""
    rate_limit = TokenBucket(MAX_MESSAGE_RATE, MAX_MESSAGE_RATE)
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if not rate_limit.take():
            viewer.send(protocol.Error(what="too many messages", fix=f"send at most {MAX_MESSAGE_RATE} per second"))
            await asyncio.sleep(0.1)
            continue
        text = message.get("text")
        if text is None:
            viewer.send(protocol.Error(what="the message was binary", fix="send JSON as text"))
        elif len(text) > MAX_MESSAGE_BYTES:
            await socket.close(TOO_LARGE)
            return
        else:
            await _handle_message(text, viewer)


async def _handle_message(text: str, viewer: Viewer) -> None:
    """Handle a message; whatever goes wrong is answered with an error, and the connection stays open."""
    try:
        message = protocol.CLIENT_MESSAGE.validate_json(text)
    except ValidationError as error:
        viewer.send(protocol.Error(what=first_error(error.errors(), "message"), fix="see /docs/protocol"))
        return
    await viewer.receive(message)
