"""Who may ask: every request passes here before anything else looks at it.

A page of somebody else's must not reach a server on this machine through a visitor's browser. So the Host must be one
of ours (a name that an attacker lets point to 127.0.0.1 is not), and whoever changes something or opens a WebSocket
must say that he comes from our own page, or from one that was named. Beyond this machine a token is asked for as well.
"""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE: Final = "townlet_token"
SAFE: Final = ("GET", "HEAD")
EVERYWHERE: Final = ("0.0.0.0", "::")  # addresses that stand for all of the machine
LOCAL: Final = ("127.0.0.1", "localhost", "::1")
TOLD: Final = 32  # origins whose refusal is told, once each
REFUSED: Final = 4403  # of a WebSocket; the browser is told 403, since it was never accepted

log = logging.getLogger(__name__)

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Refusal:
    """Why somebody is turned away."""

    status: int
    why: str


class Guard:
    """ASGI middleware: turns away what is foreign, too large or without the token, and adds the security headers."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str],
        token: str | None = None,
        largest: int = 1 << 18,
        origins: Iterable[str] = (),
        programs: bool = False,
    ) -> None:
        self._app, self._hosts, self._token, self._largest = app, {h.lower() for h in hosts}, token, largest
        self._origins = {origin.lower().rstrip("/") for origin in origins}  # of other pages that may come
        self._programs = programs  # whoever names no Origin at all is no browser, and may come
        self._turned_away: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._judge(scope, headers)
        if scope["type"] == "websocket":
            if refusal:
                await send({"type": "websocket.close", "code": REFUSED, "reason": refusal.why})
            else:
                await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        if refusal:
            await PlainTextResponse(f"{refusal.why}\n", refusal.status)(scope, receive, send)
        elif self._token and _asked(scope) == self._token:
            await self._welcome(scope)(scope, receive, send)
        else:
            await self._app(scope, _bounded(receive, self._largest), send)

    def _judge(self, scope: Scope, headers: Headers) -> Refusal | None:
        """The first reason to turn this request away."""
        hosts = headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        if host not in self._hosts:
            return Refusal(421, "this server does not answer to that Host")
        changes = scope["type"] == "websocket" or scope["method"] not in SAFE
        if (changes or "origin" in headers) and not self._welcome_from(scope, headers, host):
            self._tell_of(headers.get("origin", ""))
            return Refusal(403, "only this server's own page may do that: its Origin is missing or another")
        if self._token and not self._knows(scope, headers):
            return Refusal(401, "a token is needed: open the link that the server printed")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._largest:
            return Refusal(413, f"a request may have {self._largest} bytes")
        return None

    def _welcome_from(self, scope: Scope, headers: Headers, host: str) -> bool:
        """Whether whoever asks comes from where he may."""
        origins = [origin.lower() for origin in headers.getlist("origin")]
        if not origins:
            return self._programs
        return len(origins) == 1 and origins[0] in {f"{_scheme(scope)}://{host}", *self._origins}

    def _tell_of(self, origin: str) -> None:
        """Whoever runs the server hears once of a page that wanted to come: it may be his own."""
        if not origin or origin in self._turned_away or len(self._turned_away) >= TOLD:
            return
        self._turned_away.add(origin)
        named = ascii(origin[:100])[1:-1]  # it is a stranger's text
        fix = f"; if it is yours, name it with --origin {named}" if self._programs else ""
        log.warning("a page from %s was refused%s", named, fix)

    def _knows(self, scope: Scope, headers: Headers) -> bool:
        cookies = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            return False
        kept = cookies[COOKIE].value if COOKIE in cookies else ""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = (kept, _asked(scope), bearer if scheme.lower() == "bearer" else "")
        return any(secrets.compare_digest(g.encode(), (self._token or "").encode()) for g in given if g)

    def _welcome(self, scope: Scope) -> RedirectResponse:
        """Keep the token in a cookie, and take it out of the address bar."""
        response = RedirectResponse(scope["path"], 303)
        response.set_cookie(COOKIE, self._token or "", httponly=True, samesite="strict", path="/")
        return response


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(24)


def own_hosts(host: str, port: int, names: Iterable[str] = ()) -> list[str]:
    """What a browser may call this server: as it was bound, and on the machine itself by the usual names."""
    known = {host, *names}
    if is_local(host) or host in EVERYWHERE:
        known |= {*LOCAL}
    if host in EVERYWHERE:
        known |= {*machine_names()}
    return [f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in sorted(known - {*EVERYWHERE})]


def is_local(host: str) -> bool:
    """Whether only this machine can reach it."""
    return host in LOCAL


def machine_names() -> list[str]:
    """What others may call this machine: its name first, then its addresses."""
    name = socket.gethostname()
    found = dict.fromkeys([name])
    with suppress(OSError):
        found |= dict.fromkeys(str(address[4][0]) for address in socket.getaddrinfo(name, None))
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent: it only asks which address one would come from
        found[str(probe.getsockname()[0])] = None
    return list(found)


def _scheme(scope: Scope) -> str:
    scheme = str(scope.get("scheme", "http"))
    return {"ws": "http", "wss": "https"}.get(scheme, scheme)


def _asked(scope: Scope) -> str:
    """The token in the query of a link."""
    found = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=20)
    return str(found.get("token", [""])[0])


def _bounded(receive: Receive, largest: int) -> Receive:
    """A body that does not say how long it is may not be longer, either: it ends as if its sender had left."""
    seen = 0

    async def take() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        return {"type": "http.disconnect"} if seen > largest else message

    return take


def _with_headers(send: Send) -> Send:
    async def give(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return give
