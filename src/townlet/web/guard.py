"""Checks every request before anything else reads it: Host, Origin, token, role and size.

A page of another site must not reach this server through a visitor's browser: the Host must be one of ours (a name
that an attacker points at 127.0.0.1 is not), and requests that change something or open a WebSocket must come from our
own page or from an origin that was named. Other users of this machine can reach loopback too, so a token is required.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from townlet.web.limits import LoginThrottle
from townlet.web.tokens import (
    ANONYMOUS,
    GAME,
    OPERATOR,
    SAFE_METHODS,
    UNGUESSABLE_LENGTH,
    Access,
    Identity,
    OneTimeCodes,
    Tokens,
    default_access,
)

COOKIE: Final = "townlet_token"  # and the port: cookies of one host are shared by all of its ports
WILDCARD_HOSTS: Final = ("0.0.0.0", "::")  # addresses that stand for all of the machine
LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "::1")
MAX_LOGGED_ORIGINS: Final = 32  # origins whose refusal is told, once each
WS_FORBIDDEN: Final = 4403  # of a WebSocket, where the server cannot refuse it with an HTTP status
MAX_QUERY_FIELDS: Final = 20  # of a query; more are refused

LOGGER = logging.getLogger(__name__)

SECURITY_HEADERS: Final = {
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
    """Why a request is refused."""

    status: int
    why: str


class Credential(NamedTuple):
    """A token as it came with a request."""

    token: str
    kept: bool = False  # in a cookie, and so perhaps an old one
    asked: bool = False  # in the query of a link


class Guard:
    """ASGI middleware: refuses what is foreign, too large or not permitted, and adds the security headers.

    `scope["identity"]` is the identity behind the token for everything below, None where no token is needed.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str],
        tokens: Tokens | None,
        access: Access = default_access,
        cookie: str = COOKIE,
        codes: OneTimeCodes | None = None,
        largest: int = 1 << 18,
        origins: Iterable[str] = (),
        allow_no_origin: bool = False,
    ) -> None:
        self._app, self._hosts, self._largest = app, {h.lower() for h in hosts}, largest
        self._tokens, self._access, self._cookie, self._guesses = tokens, access, cookie, LoginThrottle()
        self._codes = codes or OneTimeCodes()
        self._origins = {origin.lower().rstrip("/") for origin in origins}  # of other pages that may come
        self._allow_no_origin = allow_no_origin  # whoever names no Origin at all is no browser, and may come
        self._turned_away: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        offered = self._offered(scope, headers)
        refusal = self._judge(scope, headers, offered)
        if scope["type"] == "websocket":
            await (_refuse(scope, refusal, receive, send) if refusal else self._app(scope, receive, send))
            return
        send = _add_headers(send)
        if refusal:
            await _response(refusal)(scope, receive, send)
        elif offered.asked and scope["method"] in SAFE_METHODS and _has_page(scope["identity"]):
            await self._redirect(scope, offered.token)(scope, receive, send)
        else:
            await self._app(scope, _limit_body(receive, self._largest), send)

    def _judge(self, scope: Scope, headers: Headers, offered: Credential) -> Refusal | None:
        """The first reason to refuse this request."""
        hosts = headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        if host not in self._hosts:
            return Refusal(421, "this server does not answer to that Host")
        changes = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
        if (changes or "origin" in headers) and not self._welcome_from(scope, headers, host):
            self._tell_of(headers.get("origin", ""))
            return Refusal(403, "only this server's own page may do that: its Origin is missing or another")
        if refusal := self._unauthorized(scope, offered):
            return refusal
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._largest:
            return Refusal(413, f"a request may have {self._largest} bytes")
        return None

    def _unauthorized(self, scope: Scope, offered: Credential) -> Refusal | None:
        """Find the identity behind the token, and see whether its role may use this path."""
        scope["identity"] = None
        if self._tokens is None:
            scope["identity"] = ANONYMOUS
            return None
        identity, roles = None, self._access(scope.get("method", "WEBSOCKET"), scope["path"])
        if offered.token:
            identity = self._tokens.find(offered.token)
            # Otherwise one client with a wrong token keeps out all others of its address after a restart.
            sure = identity is not None and len(offered.token) >= UNGUESSABLE_LENGTH
            if not (sure or self._guesses.judge(_address(scope), offered.kept, identity)):
                if roles is None:  # as without a token
                    return None
                return Refusal(429, "too many wrong tokens came from this address: wait a few seconds")
        scope["identity"] = identity
        if roles is None or (identity and identity.role in roles):
            return None
        needed = " or ".join(sorted(roles))
        if identity:
            return Refusal(403, f"this needs the token of the {needed}, but has that of the {identity.role}")
        wrong = "this token is not valid" if offered.token else "a token is needed"
        return Refusal(401, f"{wrong}: open the link that the server printed, or send the token of the {needed}")

    def _offered(self, scope: Scope, headers: Headers) -> Credential:
        """The token in the query, the header or the cookie, whichever is found first; it is removed from the query."""
        query = scope.get("query_string", b"").decode("latin-1")
        if "token=" in query or "code=" in query:
            try:
                fields = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
            except ValueError:
                fields = []
            left = urlencode([(name, value) for name, value in fields if name not in ("token", "code")])
            scope["query_string"] = left.encode()  # what is logged of a request shows no token
            given = dict(reversed(fields))
            if self._tokens and self._codes.redeem(given.get("code", "")):
                return Credential(self._tokens.first(OPERATOR) or "", asked=True)
            if given.get("token"):
                return Credential(given["token"], asked=True)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and bearer.strip():
            return Credential(bearer.strip())
        cookies = SimpleCookie()
        with suppress(CookieError):
            cookies.load(headers.get("cookie", ""))
        return Credential(cookies[self._cookie].value if self._cookie in cookies else "", kept=True)

    def _welcome_from(self, scope: Scope, headers: Headers, host: str) -> bool:
        """Whether whoever asks comes from where he may."""
        origins = [origin.lower() for origin in headers.getlist("origin")]
        if not origins:
            return self._allow_no_origin
        return len(origins) == 1 and origins[0] in {f"{_scheme(scope)}://{host}", *self._origins}

    def _tell_of(self, origin: str) -> None:
        """Whoever runs the server hears once of a page that wanted to come: it may be his own."""
        if not origin or origin in self._turned_away or len(self._turned_away) >= MAX_LOGGED_ORIGINS:
            return
        self._turned_away.add(origin)
        named = ascii(origin[:100])[1:-1]  # it is a stranger's text
        fix = f"; if it is yours, name it with --origin {named}" if self._allow_no_origin else ""
        LOGGER.warning("a page from %s was refused%s", named, fix)

    def _redirect(self, scope: Scope, token: str) -> Response:
        """Keep the token in a cookie, and take it out of the address bar."""
        query, headers = scope["query_string"].decode(), Headers(scope=scope)
        place = "/" + quote(scope["path"].lstrip("/")) + (f"?{query}" if query else "")  # never another host's
        response: Response = RedirectResponse(place, 303)
        if headers.get("sec-fetch-site") == "cross-site":  # a redirect would not carry the cookie: SameSite=Strict
            response = PlainTextResponse("", headers={"Refresh": f"0; url={place}"})
        response.headers["Cache-Control"] = "no-store"
        response.set_cookie(self._cookie, token, httponly=True, samesite="strict", path="/")
        return response


def allowed_hosts(host: str, port: int, names: Iterable[str] = ()) -> list[str]:
    """What a browser may call this server: as it was bound, and on the machine itself by the usual names."""
    known = {host, *names}
    if is_loopback(host) or host in WILDCARD_HOSTS:
        known |= {*LOOPBACK_HOSTS}
    if host in WILDCARD_HOSTS:
        known |= {*machine_names()}
    return [f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in sorted(known - {*WILDCARD_HOSTS})]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    return host in LOOPBACK_HOSTS


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


def _has_page(identity: Identity | None) -> bool:
    return identity is not None and identity.role != GAME and identity != ANONYMOUS


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _response(refusal: Refusal) -> Response:
    headers = {401: {"WWW-Authenticate": 'Bearer realm="townlet"'}, 429: {"Retry-After": "5"}}.get(refusal.status)
    return PlainTextResponse(f"{refusal.why}\n", refusal.status, headers)


async def _refuse(scope: Scope, refusal: Refusal, receive: Receive, send: Send) -> None:
    """Refuse a WebSocket with a status and a reason that its client can read, where the server can send them."""
    if "websocket.http.response" in scope.get("extensions", {}):
        await _response(refusal)(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": WS_FORBIDDEN, "reason": refusal.why})


def _limit_body(receive: Receive, largest: int) -> Receive:
    """A body that does not say how long it is may not be longer, either: it ends as if its sender had left."""
    seen = 0

    async def take() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        return {"type": "http.disconnect"} if seen > largest else message

    return take


def _add_headers(send: Send) -> Send:
    async def give(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return give
