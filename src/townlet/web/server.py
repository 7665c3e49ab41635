"""Runs an ASGI app with uvicorn: socket, links with tokens, access control, and shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import LOGGING_CONFIG

from townlet.errors import TownletError
from townlet.web.cors import check_origin
from townlet.web.guard import (
    COOKIE,
    WILDCARD_HOSTS,
    Guard,
    RefusalBody,
    allowed_hosts,
    is_loopback,
    machine_names,
    no_body,
)
from townlet.web.limits import ConnectionLimiter, raise_descriptor_limit
from townlet.web.protocols import LimitedHTTP, LimitedWebSocket, check_uvicorn
from townlet.web.repeated_messages import RepeatedMessages
from townlet.web.tokens import OPERATOR, Access, OneTimeCodes, Tokens, default_access

ACCEPTS_PER_ITERATION: Final = 64  # connections accepted per iteration of the event loop
PROXIES_VARIABLE: Final = "FORWARDED_ALLOW_IPS"  # addresses of proxies, whose X-Forwarded-For and -Proto are used
PORTS_TRIED: Final = 20  # from the default port upwards, if none is requested
SWITCH_INTERVAL: Final = 5e-4  # seconds between thread switches: answers must not wait for training or computations
MAX_MESSAGE_BYTES: Final = 1 << 17  # from a client; for a larger message uvicorn closes with 1009


class Server:
    """A server whose port is bound at construction, so that its link is known before there is an app.

    With port None it is the first free one from `default_port` on; a port that is given is taken or refused.
    """

    def __init__(
        self, host: str, port: int | None, tokens: Tokens | None, names: Iterable[str] = (),
        origins: Iterable[str] = (), allow_no_origin: bool = False, access: Access = default_access,
        token_headers: Sequence[str] = (), refusal_body: RefusalBody = no_body,
        log_config: dict[str, Any] | None = LOGGING_CONFIG, default_port: int = 0,
    ) -> None:  # fmt: skip
        if tokens is None and not is_loopback(host):
            what = f"without a token, anyone who can reach {host} could operate this server"
            raise TownletError(what, "leave out --no-token, or leave out --host")
        origins = [check_origin(origin) for origin in origins]
        self.descriptors = raise_descriptor_limit()
        ports = range(default_port, default_port + PORTS_TRIED) if port is None else (port,)
        self._socket = _bind(host, ports, self.descriptors.backlog)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self.tokens, self._codes, self._stopped = tokens, OneTimeCodes(), False
        self._guard = partial(
            Guard, hosts=allowed_hosts(host, self.port, names), valid_tokens=tokens, access=access,
            cookie=f"{COOKIE}_{self.port}", codes=self._codes, origins=origins, allow_no_origin=allow_no_origin,
            token_headers=token_headers, refusal_body=refusal_body,
        )  # fmt: skip
        self._log_config = log_config  # None: the program has configured its logs
        self._server: uvicorn.Server | None = None

    @property
    def address(self) -> str:
        """Host and port as a client writes them."""
        name = self.host if self.host not in WILDCARD_HOSTS else machine_names()[-1]
        return f"[{name}]:{self.port}" if ":" in name else f"{name}:{self.port}"

    def link(self, role: str = OPERATOR) -> str:
        """The address of the page, with the token of a role."""
        token = self.tokens.first(role) if self.tokens else None
        return f"http://{self.address}/" + (f"?token={token}" if token else "")

    def one_time_link(self) -> str:
        """Single-use link to the operator's page, for a browser that is started immediately."""
        return f"http://{self.address}/" + (f"?code={self._codes.new()}" if self.tokens else "")

    async def serve(self, app: ASGIApp, should_stop: Callable[[], bool] | None = None) -> None:
        """Serve until `stop` is called or `should_stop` returns True."""
        check_uvicorn(LimitedHTTP, LimitedWebSocket)
        limiter = ConnectionLimiter(self.descriptors.http, self.descriptors.websockets)
        http: Any = partial(LimitedHTTP, limiter=limiter)  # uvicorn creates one for each connection
        websocket: Any = partial(LimitedWebSocket, limiter=limiter)
        proxies = os.environ.get(PROXIES_VARIABLE, "")
        config = uvicorn.Config(
            self._guard(app), http=http, ws=websocket, backlog=self.descriptors.backlog, log_level="warning",
            log_config=self._log_config, access_log=False, server_header=False, ws_max_size=MAX_MESSAGE_BYTES,
            ws_per_message_deflate=False, timeout_graceful_shutdown=2,
            proxy_headers=bool(proxies), forwarded_allow_ips=proxies,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        uvicorn_log, repeated = logging.getLogger("uvicorn.error"), RepeatedMessages()
        uvicorn_log.addFilter(repeated)
        watch = asyncio.create_task(self._watch(should_stop))
        # uvloop accepts one connection per listening descriptor and iteration, so a flood would fill the backlog.
        accepts = min(ACCEPTS_PER_ITERATION, self.descriptors.backlog // 2)
        listening = [self._socket, *(self._socket.dup() for _ in range(accepts - 1))]
        try:
            await self._server.serve(sockets=listening)
        finally:
            watch.cancel()
            uvicorn_log.removeFilter(repeated)
        for connection in list(self._server.server_state.connections):  # not closed in time
            if (transport := getattr(connection, "transport", None)) is not None:
                transport.abort()
        await asyncio.sleep(0)  # connections are aborted in the next iteration of the loop

    async def _watch(self, should_stop: Callable[[], bool] | None) -> None:
        while not (self._stopped or (should_stop and should_stop())):
            await asyncio.sleep(0.2)
        assert self._server is not None
        self._server.should_exit = True

    def run(self, app: ASGIApp, should_stop: Callable[[], bool] | None = None) -> None:
        """Serve as the main program: Ctrl-C, SIGTERM and the end of its terminal (SIGHUP) stop it without an error."""
        sys.setswitchinterval(SWITCH_INTERVAL)
        logging.getLogger("asyncio").setLevel(logging.ERROR)  # otherwise it warns of every viewer that disconnects
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn would raise them again after shutdown
                signal.signal(number, lambda *_: self.stop())
            if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it
                signal.signal(signal.SIGHUP, lambda *_: self.stop())
        with asyncio.Runner(loop_factory=uvicorn.Config(app).get_loop_factory()) as runner:  # uvloop if installed
            runner.run(self.serve(app, should_stop))

    def stop(self) -> None:
        """Stop serving and close open connections."""
        self._stopped = True

    def close(self) -> None:
        """Release the port; needed only if `serve` was never called."""
        self._socket.close()


def _bind(host: str, ports: Sequence[int], backlog: int) -> socket.socket:
    """A socket that listens on the first of these ports that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in ports:
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
            bound.listen(backlog)  # a browser that opens the link early waits instead of being refused
            return bound
        except OSError as error:
            bound.close()
            last_error = error
    what = f"cannot listen on {host}:{ports[0]}: {last_error.strerror}"
    raise TownletError(what, "choose another port with --port")
