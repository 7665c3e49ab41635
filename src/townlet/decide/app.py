"""The server: the conversation with games, what can be asked about the service, and what an operator may do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles

import townlet
from townlet.config.models import StrictModel
from townlet.decide.batcher import Batcher
from townlet.decide.domains import DOMAINS
from townlet.decide.figures import ServiceStats, as_prometheus
from townlet.decide.room import ConnectionLimits
from townlet.decide.service import Service
from townlet.decide.settings import DecideSettings
from townlet.decide.stats_feed import StatsFeed
from townlet.decide.storage.log import LogStopped
from townlet.decide.storage.serving_log import ServingChange
from townlet.decide.training_thread import TrainingThread
from townlet.decide.websocket import serve_game
from townlet.errors import TownletError
from townlet.web.limits import DescriptorBudget
from townlet.web.tokens import ANONYMOUS, READERS, Identity

STATIC: Final = Path(townlet.__file__).parent / "live" / "static"  # the dashboard lies with the other pages
CLIENT: Final = Path(__file__).parent / "static" / "client.js"  # for games in a browser
TICK: Final = 1.0  # seconds between looks at what waits, at the trainer, and between two pushes to a dashboard


class Why(StrictModel):
    """An operator's reason."""

    reason: str = "by hand"


class GateOnly(Why):
    """Whether the gate decides alone."""

    on: bool


class Pin(Why):
    """Hold this version, whatever is learned."""

    version: int


class Back(Why):
    """Go back to a version, or to the one before, and stay there where it is held."""

    version: int | None = None
    hold: bool = False


def open_app(
    folder: Path, settings: DecideSettings, accept_data_loss: bool = False, descriptors: DescriptorBudget | None = None
) -> FastAPI:
    """The server for the service in a folder, which goes on where it was."""
    service = Service(folder, DOMAINS[settings.domain], settings, accept_data_loss=accept_data_loss)
    return make_app(service, TrainingThread(service), descriptors)


def make_app(service: Service, rounds: TrainingThread, descriptors: DescriptorBudget | None = None) -> FastAPI:
    """The server for one service; `descriptors` are the shares of file descriptors that it may use."""
    room = ConnectionLimits(descriptors)
    figures = ServiceStats(service, rounds, room)
    feed = StatsFeed(lambda: json.dumps({"type": "stats", **figures.whole()}, separators=(",", ":")), TICK)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.batcher = figures.batcher = Batcher(service)
        rounds.begin()
        service.warm_up()
        tasks = [asyncio.create_task(_tick(service, rounds, figures)), asyncio.create_task(feed.run())]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        rounds.stop()
        with suppress(LogStopped):  # `log.problem` tells it to whoever takes leave
            service.close()

    app = FastAPI(
        title="Townlet decides", version=townlet.__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.add_exception_handler(TownletError, _explained)

    @app.websocket("/ws")
    async def game(socket: WebSocket) -> None:
        async with room.games.acquire(socket) as taken:
            if taken:
                await serve_game(socket, app.state.batcher, _name(socket))

    @app.websocket("/ws/stats")
    async def stats(socket: WebSocket) -> None:
        async with room.dashboards.acquire(socket) as taken:
            if taken:
                await feed.serve(socket)

    _questions(app, service, figures)
    _dashboard(app)
    _operator(app, service)
    return app


async def _tick(service: Service, rounds: TrainingThread, figures: ServiceStats) -> None:
    while True:
        figures.look()
        await asyncio.sleep(TICK)
        service.log.check_stall()
        service.expire()
        rounds.ensure()
        if figures.batcher is not None:
            figures.batcher.give_up()


def _questions(app: FastAPI, service: Service, figures: ServiceStats) -> None:
    @app.get("/health")
    async def health(request: Request) -> JSONResponse:
        """200 while decisions are logged, 503 while the log cannot be written; with the reason for readers only."""
        whole, identity = service.log.problem is None, _identity(request)
        details = {"problem": service.log.problem} if identity and identity.role in READERS else {}
        return JSONResponse({"ok": whole, **details}, 200 if whole else 503)

    @app.get("/api/decide/me")
    async def me(request: Request) -> dict[str, Any]:
        """The role and the name of the token that was sent."""
        identity = _identity(request)
        assert identity is not None  # the guard refuses a request without one
        return {"role": identity.role, "name": identity.name}

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        """All numbers for Prometheus."""
        return PlainTextResponse(as_prometheus(figures.whole()), media_type="text/plain; version=0.0.4")

    @app.get("/api/decide/stats")
    async def stats() -> dict[str, Any]:
        """Everything that the dashboard shows."""
        return figures.whole()

    @app.get("/api/decide/versions")
    async def versions() -> dict[str, Any]:
        """Every version that is kept, and why which served when."""
        return service.versions.overview()

    @app.get("/api/decide/schema")
    async def schema() -> dict[str, Any]:
        """JSON Schema of every message of `/ws`."""
        return service.domain.schema()


def _name(socket: WebSocket) -> str:
    """The name of the game's access token."""
    identity: Identity = socket.scope.get("identity", ANONYMOUS)
    return identity.name


def _identity(request: Request) -> Identity | None:
    """The identity of the request's token, as found by the guard; None without a token."""
    found: Identity | None = request.scope.get("identity", ANONYMOUS)
    return found


def _dashboard(app: FastAPI) -> None:
    """The page, and the client for games in a browser."""
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "decide.html", headers={"Cache-Control": "no-cache"})

    @app.get("/client.js", include_in_schema=False)
    async def client() -> FileResponse:
        return FileResponse(CLIENT, media_type="text/javascript")


def _operator(app: FastAPI, service: Service) -> None:
    async def changed(change: Callable[[], ServingChange | None]) -> dict[str, Any]:
        """Made beside the loop, since it waits for the disk."""
        await asyncio.to_thread(change)
        return service.versions.overview()

    @app.post("/api/decide/pin")
    async def pin(asked: Pin, request: Request) -> dict[str, Any]:
        """Hold a version."""
        return await changed(lambda: service.versions.pin(asked.version, _signed(asked, request)))

    @app.post("/api/decide/unpin")
    async def unpin(asked: Why, request: Request) -> dict[str, Any]:
        """Let versions follow each other again."""
        return await changed(lambda: service.versions.unpin(_signed(asked, request)))

    @app.post("/api/decide/rollback")
    async def roll_back(asked: Back, request: Request) -> dict[str, Any]:
        """Go back to the version that served before, and hold it if asked to: else the next promotion replaces it."""

        def back() -> ServingChange:
            if (pinned := service.versions.pinned) is not None:
                raise TownletError(f"version {pinned} is pinned, and nothing was rolled back", "unpin it first")
            change = service.versions.roll_back(_signed(asked, request), to=asked.version)
            if not (asked.hold and change.served):
                return change
            return service.versions.pin(change.version, _signed(asked, request))

        return await changed(back)

    @app.post("/api/decide/gate-only")
    async def gate_only(asked: GateOnly, request: Request) -> dict[str, Any]:
        """The kill switch: no network decides until it is put back, also after a restart."""
        return await changed(lambda: service.versions.set_gate_only(asked.on, _signed(asked, request)))


def _signed(asked: Why, request: Request) -> str:
    """The reason, with the name of the operator where operators have names."""
    identity = _identity(request)
    named = identity is not None and identity.name not in (identity.role, ANONYMOUS.name)
    return f"{asked.reason} ({identity.name})" if identity and named else asked.reason


async def _explained(_: Request, error: Exception) -> Response:
    first = error.diagnostics[0] if isinstance(error, TownletError) else None
    told = {"what": first.what, "fix": first.fix} if first else {}
    return JSONResponse({"error": str(error), **told}, 422)
