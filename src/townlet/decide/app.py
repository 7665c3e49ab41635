"""The HTTP app: WebSockets of games and dashboards, statistics, operator actions, and access tokens."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from pydantic import Field

from townlet._version import __version__
from townlet.config.models import StrictModel
from townlet.decide.batcher import make_batcher
from townlet.decide.clock import ServiceClock
from townlet.decide.domain import Domain
from townlet.decide.domains import DOMAINS
from townlet.decide.envelope import add_schema
from townlet.decide.metrics import CONTENT_TYPE, as_prometheus
from townlet.decide.public_files import add_public_files, is_public_file
from townlet.decide.service import Service
from townlet.decide.service_loop import ServiceLoop
from townlet.decide.settings import DecideSettings
from townlet.decide.stats import ServiceStats
from townlet.decide.storage import TOKENS
from townlet.decide.storage.file import FileStorage
from townlet.decide.storage.folder import open_service_folder
from townlet.decide.storage.log import LogStopped
from townlet.decide.storage.serving_log import ServingChange
from townlet.decide.training_thread import Learning, NoLearning, TrainingThread
from townlet.decide.websocket import ConnectionLimits, GamePort, StatsFeed, serve_game
from townlet.errors import SourceLocation, TownletError
from townlet.runs import disk
from townlet.web import tokens
from townlet.web.errors import add_error_handlers
from townlet.web.limits import DescriptorBudget
from townlet.web.tokens import ANONYMOUS, OPERATOR, READERS, ROLES, Identity, Tokens

if TYPE_CHECKING:
    from townlet.decide.storage.postgres.processes import ProcessReports

STATIC: Final = Path(__file__).parents[1] / "live" / "static"  # the dashboard is stored with the other pages
TICK: Final = 1.0  # seconds between two periodic checks, and between two updates of a dashboard
HEALTH: Final = "/health"  # no token needed: load balancers have none
STATIC_PATH: Final = "/static/"  # public too
GAME_ROLES: Final = frozenset({tokens.GAME})


class OperatorAction(StrictModel):
    """Base class of operator actions; `reason` is stored in the history."""

    reason: str = Field("manual", max_length=500)


class SetGateOnly(OperatorAction):
    """Turn gate-only mode on or off."""

    on: bool


class PinVersion(OperatorAction):
    """Pin a version."""

    version: int


class RollBack(OperatorAction):
    """Roll back to a version, by default the previous one, and pin it if `pin` is set."""

    version: int | None = None
    pin: bool = False


def access(method: str, path: str, game_prefix: str | None = None) -> frozenset[str] | None:
    """Roles that may use a path, None for public paths: games use `/ws`, viewers read, operators read and change.

    Games also use the paths of their domain, which begin with `game_prefix`.
    """
    if game_prefix and path.startswith(game_prefix):
        return GAME_ROLES
    if method == "WEBSOCKET":
        return GAME_ROLES if path == "/ws" else READERS
    if method in ("GET", "HEAD") and (path == HEALTH or path.startswith(STATIC_PATH) or is_public_file(path)):
        return None
    if path == "/api/decide/schema":
        return READERS | GAME_ROLES
    return tokens.default_access(method, path)


def service_access(domain: Domain) -> dict[str, Any]:
    """Arguments of a server for the paths, the token headers and the refusals of this domain."""
    if (http := domain.http) is None:
        return {"access": access}

    def refusal_body(path: str, status: int, reason: str) -> dict[str, Any] | None:
        return http.error(status, reason) if path.startswith(http.prefix) else None

    roles = partial(access, game_prefix=http.prefix)
    return {"access": roles, "token_headers": http.token_headers, "refusal_body": refusal_body}


class ServiceTokens(NamedTuple):
    """The access tokens of a service, and their source."""

    tokens: Tokens
    source: str  # source of the operator token: a file name, or "the environment"
    new: bool = False  # whether they were just generated
    stored: bool = False  # whether the operator token is stored in the folder of the service


def load_service_tokens(folder: Path, token_file: Path | None) -> ServiceTokens:
    """The tokens in `token_file`; without one, those stored in the folder, overridden per role by the environment."""
    if token_file is not None:
        given = tokens.read_token_file(token_file)
        if OPERATOR not in given:
            where = SourceLocation(str(token_file))
            raise TownletError("the token file has no operator token", "add a line: operator: …", where)
        return ServiceTokens(Tokens(given), str(token_file))
    given = tokens.environment_tokens()
    if set(given) == set(ROLES):
        return ServiceTokens(Tokens(given), "the environment")
    path = folder / TOKENS
    open_service_folder(folder)
    new = False
    if not os.path.lexists(path):
        new = _create_token_file(path)
    merged = Tokens({**tokens.read_token_file(path, follow_links=False), **given}, SourceLocation(str(path)))
    stored = OPERATOR not in given
    return ServiceTokens(merged, str(path) if stored else "the environment", new, stored)


def _create_token_file(path: Path) -> bool:
    """Create tokens in a file readable by its owner only; False if another process created it first."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(json.dumps({role: tokens.new_token() for role in ROLES}, indent=2).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename, fails if the file exists
        disk.sync_folder(path.parent)
    except FileExistsError:
        return False
    except OSError as error:
        raise disk.describe_error(error, f"cannot write {path}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return True


def open_app(
    folder: Path, settings: DecideSettings, accept_data_loss: bool = False, descriptors: DescriptorBudget | None = None,
    log_every: int = 0,
) -> FastAPI:  # fmt: skip
    """The app of the service in a folder, recovered from its log; every so many training steps it logs a line."""
    storage = FileStorage(folder, DOMAINS[settings.domain], settings, accept_data_loss=accept_data_loss)
    return make_app(Service(storage), TrainingThread(storage, log_every), descriptors)


def open_shared_app(
    url: str, settings: DecideSettings, role: str, descriptors: DescriptorBudget | None = None, log_every: int = 0
) -> FastAPI:
    """The app of one process of a service whose storage is a database."""
    from townlet.decide.storage.postgres.decisions import PostgresStorage
    from townlet.decide.storage.postgres.elected_learner import ElectedLearner

    domain = DOMAINS[settings.domain]
    storage = PostgresStorage(url, domain, settings, ServiceClock(), role)
    if role == "decide":
        return make_app(Service(storage), NoLearning(), descriptors, storage.process_reports)
    learner = ElectedLearner(url, domain, settings, storage.clock, storage.process, log_every)
    storage.process_reports.learner_position = lambda: learner.position
    return make_app(Service(storage), learner, descriptors, storage.process_reports)


def make_app(
    service: Service, learning: Learning, descriptors: DescriptorBudget | None = None,
    reports: ProcessReports | None = None,
) -> FastAPI:  # fmt: skip
    """The app of a service, with connection limits that fit the budget of file descriptors."""
    limits = ConnectionLimits(descriptors)
    stats = ServiceStats(service, learning, limits)
    learning.on_change = stats.follow
    feed = StatsFeed(lambda: json.dumps({"type": "stats", **stats.as_json()}, separators=(",", ":")), TICK)

    def maintain() -> None:
        service.storage.maintain()
        if stats.batcher is not None:
            stats.batcher.release_unsynced()
        stats.update()

    maintenance = ServiceLoop("maintenance", maintain, TICK)
    stats.alarms.loops.append(maintenance)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.batcher = stats.batcher = make_batcher(service)
        service.warm_up()
        learning.start()
        if reports is not None:
            reports.status, reports.learner_status = stats.process_report, stats.learner_report
            reports.start()
        tasks = [asyncio.create_task(maintenance.run_in_event_loop()), asyncio.create_task(feed.run())]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        learning.stop()
        app.state.batcher.close()
        with suppress(LogStopped):  # reported by `log.problem`
            service.storage.close()

    app = FastAPI(title="Decision service", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    add_error_handlers(app, lambda error: 422)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    add_public_files(app)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "decide.html", headers={"Cache-Control": "no-cache"})

    @app.websocket("/ws")
    async def game(socket: WebSocket) -> None:
        async with limits.games.acquire(socket) as slot:
            if slot:
                await serve_game(socket, app.state.batcher, slot)

    @app.websocket("/ws/stats")
    async def dashboard(socket: WebSocket) -> None:
        async with limits.dashboards.acquire(socket) as slot:
            if slot:
                await feed.serve(socket)

    if service.domain.http:
        app.include_router(service.domain.http.router(GamePort(lambda: app.state.batcher)))
    _add_queries(app, service, stats)
    _add_operator_actions(app, service)
    return app


def _add_queries(app: FastAPI, service: Service, stats: ServiceStats) -> None:
    @app.get(HEALTH)
    async def health(request: Request) -> JSONResponse:
        """200 or 503, if decisions cannot be stored or operators not obeyed; viewers and operators see the reason."""
        problem = stats.alarms.problem()
        identity: Identity | None = request.scope.get("identity", ANONYMOUS)
        details = {"problem": problem} if identity and identity.role in READERS else {}
        return JSONResponse({"ok": problem is None, **details}, 503 if problem else 200)

    @app.get("/api/decide/me")
    async def me(request: Request) -> dict[str, Any]:
        """Role and name of the access token."""
        identity: Identity = request.scope.get("identity", ANONYMOUS)  # None occurs only on public paths
        return {"role": identity.role, "name": identity.name}

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        """All numbers in the Prometheus text format."""
        return PlainTextResponse(as_prometheus(stats.as_json()), media_type=CONTENT_TYPE)

    @app.get("/api/decide/stats")
    async def all_stats() -> dict[str, Any]:
        """Everything that the dashboard shows."""
        return stats.as_json()

    @app.get("/api/decide/versions")
    async def versions() -> dict[str, Any]:
        """Stored versions, and the history of serving changes with their reasons."""
        return service.versions.overview()

    @app.get("/api/decide/schema")
    async def schema() -> dict[str, Any]:
        """JSON Schema of every message of `/ws`."""
        return add_schema(service.domain.schema())


def _add_operator_actions(app: FastAPI, service: Service) -> None:
    versions = service.versions

    async def run(change: Callable[..., ServingChange | None], *arguments: Any) -> dict[str, Any]:
        """Apply a change in another thread, because it blocks on the disk; returns the versions after it."""
        await asyncio.to_thread(change, *arguments)
        return versions.overview()

    @app.post("/api/decide/pin")
    async def pin(action: PinVersion, request: Request) -> dict[str, Any]:
        """Pin a version."""
        return await run(versions.pin, action.version, _reason(action, request))

    @app.post("/api/decide/unpin")
    async def unpin(action: OperatorAction, request: Request) -> dict[str, Any]:
        """Unpin, so that new versions may be promoted again."""
        return await run(versions.unpin, _reason(action, request))

    @app.post("/api/decide/rollback")
    async def roll_back(action: RollBack, request: Request) -> dict[str, Any]:
        """Roll back; unless `pin` is set, the next promotion may replace the version again."""

        def change() -> ServingChange:
            if versions.pinned is not None:
                raise TownletError(f"version {versions.pinned} is pinned, so nothing was rolled back", "unpin it first")
            reason = _reason(action, request)
            rolled_back = versions.roll_back(reason, to=action.version)
            if action.pin and rolled_back.applied:
                return versions.pin(rolled_back.version, reason)
            return rolled_back

        return await run(change)

    @app.post("/api/decide/gate-only")
    async def gate_only(action: SetGateOnly, request: Request) -> dict[str, Any]:
        """Turn gate-only mode on or off: while it is on, even after a restart, no network decides."""
        return await run(versions.set_gate_only, action.on, _reason(action, request))


def _reason(action: OperatorAction, request: Request) -> str:
    """The reason, with the name of the operator if the token has a name."""
    identity: Identity = request.scope.get("identity", ANONYMOUS)
    named = identity.name not in (identity.role, ANONYMOUS.name)
    return f"{action.reason} ({identity.name})" if named else action.reason
