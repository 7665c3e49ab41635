"""Access control: checks Host, Origin, token, role and size of every request before anything else reads it.

A page of another site must not reach this server through a visitor's browser: the Host must be one of the server's (a
name that an attacker points at 127.0.0.1 is not), and requests that change something or open a WebSocket must come from
its own page; what games alone may use is open to pages of configured origins too. Other users of the machine can reach
loopback too, so a token is required.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from townlet.web import tokens
from townlet.web.cors import ORIGIN, Sharing
from townlet.web.repeated_messages import RepeatedMessages
from townlet.web.tokens import ANONYMOUS, SAFE_METHODS, OneTimeCodes, Tokens

COOKIE: Final = "townlet_token"  # with the port appended: all ports of a host share cookies
WILDCARD_HOSTS: Final = ("0.0.0.0", "::")  # all addresses of the machine  # nosec B104
LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "::1")
MAX_LOGGED_ORIGINS: Final = 32  # refused origins that are logged separately
WS_FORBIDDEN: Final = 4403  # close code, if the server cannot refuse with an HTTP status
MAX_QUERY_FIELDS: Final = 20  # more are refused
MAX_BODY_BYTES: Final = 1 << 18

LOGGER = logging.getLogger(__name__)

RefusalBody = Callable[[str, int, str], Any]
"""(path, status, reason) → JSON body of a refusal; None: the reason as text."""

SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Refusal(NamedTuple):
    """Why a request is refused."""

    status: int
    reason: str


TOO_LARGE: Final = Refusal(413, f"a request may have at most {MAX_BODY_BYTES} bytes")


def no_body(path: str, status: int, reason: str) -> None:
    """Refusals as text."""


class Credential(NamedTuple):
    """The token of a request."""

    token: str
    from_cookie: bool = False  # it may be stale
    from_query: bool = False


class Guard:
    """ASGI middleware: refuses cross-site, oversized and unauthorized requests, and adds security headers.

    It sets `scope["identity"]` for the app: the identity of the token; None if none is valid and none is needed.
    """

    def __init__(
        self, app: ASGIApp, hosts: Iterable[str], valid_tokens: Tokens | None, access: tokens.Access, cookie: str,
        codes: OneTimeCodes, origins: Iterable[str] = (), allow_no_origin: bool = False,
        token_headers: Sequence[str] = (), refusal_body: RefusalBody = no_body,
    ) -> None:  # fmt: skip
        self._app, self._hosts, self._codes = app, {host.lower() for host in hosts}, codes
        self._tokens, self._access, self._cookie, self._throttle = valid_tokens, access, cookie, tokens.LoginThrottle()
        self._sharing = Sharing(origins, access, token_headers)
        self._allow_no_origin = allow_no_origin  # for programs, which send no Origin; browsers do
        self._token_headers, self._refusal_body = token_headers, refusal_body
        self._refused_origins = RepeatedMessages(MAX_LOGGED_ORIGINS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        credential = self._find_credential(scope, headers)
        refusal = self._check_site(scope, headers)
        preflight = None if refusal else self._sharing.preflight_headers(scope, headers)
        if preflight is None and refusal is None:
            refusal = self._check(scope, headers, credential)
        if scope["type"] == "websocket":
            await (_refuse(scope, refusal, receive, send) if refusal else self._app(scope, receive, send))
            return
        send = _add_headers(send, SECURITY_HEADERS | self._sharing.response_headers(scope, headers))
        identity = scope.get("identity")  # not set if the request was refused earlier
        opens_page = identity is not None and identity.role != tokens.GAME and identity != ANONYMOUS
        if refusal:
            await self._respond(refusal, scope, receive, send)
        elif preflight is not None:
            await Response(status_code=204, headers=preflight)(scope, receive, send)
        elif credential.from_query and scope["method"] in SAFE_METHODS and opens_page:
            await self._redirect(scope, credential.token)(scope, receive, send)
        else:
            await self._pass_on(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app once the body of the request is complete: it is bounded, and the client has not left."""
        body, complete = b"", False
        while not complete:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > MAX_BODY_BYTES:
                await self._respond(TOO_LARGE, scope, receive, send)
                return
            complete = not message.get("more_body", False)
        messages: list[Message] = [{"type": "http.request", "body": body}]

        async def receive_body() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, receive_body, send)

    async def _respond(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        body = self._refusal_body(scope["path"], refusal.status, refusal.reason)
        await _response(refusal, body)(scope, receive, send)

    def _check_site(self, scope: Scope, headers: Headers) -> Refusal | None:
        """Check Host and Origin."""
        hosts = headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        if host not in self._hosts:
            return Refusal(421, "this server does not answer to that Host")
        changes = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
        origins = [origin.lower() for origin in headers.getlist("origin")]
        scheme = {"ws": "http", "wss": "https"}.get(scope.get("scheme", "http"), scope.get("scheme", "http"))
        own = origins == [f"{scheme}://{host}"]
        shared = len(origins) == 1 and self._sharing.allows(scope, origins[0])
        allowed = own or shared if origins else self._allow_no_origin
        if (changes or origins) and not allowed:
            self._log_refused_origin(headers.get("origin", ""))
            return Refusal(403, "only this server's own page may do that: the Origin is missing or not the server's")
        return None

    def _check(self, scope: Scope, headers: Headers, credential: Credential) -> Refusal | None:
        """Check token, role and size."""
        if refusal := self._authorize(scope, credential):
            return refusal
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            return TOO_LARGE
        return None

    def _authorize(self, scope: Scope, credential: Credential) -> Refusal | None:
        """Set the identity of the token, and check whether its role may use this path."""
        scope["identity"] = None
        if self._tokens is None:
            scope["identity"] = ANONYMOUS
            return None
        identity, roles = None, self._access(scope.get("method", "WEBSOCKET"), scope["path"])
        if credential.token:
            identity = self._tokens.identify(credential.token)
            # A valid long token is not throttled; otherwise one client with a wrong token would lock out all others
            # of its address after a restart.
            address = str((scope.get("client") or [""])[0])
            certain = identity is not None and len(credential.token) >= tokens.UNGUESSABLE_LENGTH
            if not (certain or self._throttle.allows(address, credential.from_cookie, identity)):
                if roles is None:  # no token is needed
                    return None
                return Refusal(429, "too many wrong tokens from this address; wait a few seconds")
        scope["identity"] = identity
        if roles is None or (identity and identity.role in roles):
            return None
        needed = " or ".join(sorted(roles))
        if identity:
            return Refusal(403, f"this needs the token of the {needed}, but has that of the {identity.role}")
        wrong = "this token is not valid" if credential.token else "a token is needed"
        return Refusal(401, f"{wrong}: open the link that the server printed, or send the token of the {needed}")

    def _find_credential(self, scope: Scope, headers: Headers) -> Credential:
        """The token in the query, the header or the cookie, in this order; it is removed from the query."""
        query = scope.get("query_string", b"").decode("latin-1")
        if "token=" in query or "code=" in query:
            try:
                fields = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
            except ValueError:
                fields = []
            remaining = urlencode([(name, value) for name, value in fields if name not in ("token", "code")])
            scope["query_string"] = remaining.encode()  # so that logged requests contain no token
            query_fields = dict(reversed(fields))
            if self._tokens and self._codes.redeem(query_fields.get("code", "")):
                return Credential(self._tokens.first(tokens.OPERATOR) or "", from_query=True)
            if query_fields.get("token"):
                return Credential(query_fields["token"], from_query=True)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and bearer.strip():
            return Credential(bearer.strip())
        for name in self._token_headers:
            if key := headers.get(name, "").strip():
                return Credential(key)
        cookies = SimpleCookie()
        with suppress(CookieError):
            cookies.load(headers.get("cookie", ""))
        return Credential(cookies[self._cookie].value if self._cookie in cookies else "", from_cookie=True)

    def _log_refused_origin(self, origin: str) -> None:
        """Log a refused origin, since it may be the operator's own page."""
        if not origin or origin.lower() in self._sharing.origins:
            return
        if (times := self._refused_origins.count(origin)) is None:
            return
        name, fix = ascii(origin[:100])[1:-1], ""  # untrusted text
        if self._allow_no_origin and ORIGIN.fullmatch(origin):
            fix = f"; if it is yours, allow it with --origin {name}"
        elif self._allow_no_origin:
            fix = "; pages in a sandbox and files have no origin that can be allowed: serve the page over HTTP"
        LOGGER.warning("a page from %s was refused%s%s", name, times, fix)

    def _redirect(self, scope: Scope, token: str) -> Response:
        """Store the token in a cookie, and remove it from the address bar."""
        query, headers = scope["query_string"].decode(), Headers(scope=scope)
        location = "/" + quote(scope["path"].lstrip("/")) + (f"?{query}" if query else "")  # never another host
        response: Response = RedirectResponse(location, 303)
        if headers.get("sec-fetch-site") == "cross-site":  # a redirect would not carry the cookie: SameSite=Strict
            response = PlainTextResponse("", headers={"Refresh": f"0; url={location}"})
        response.headers["Cache-Control"] = "no-store"
        response.set_cookie(self._cookie, token, httponly=True, samesite="strict", path="/")
        return response


def role_of(connection: HTTPConnection) -> str:
    """The role of a request's token; without tokens everybody is an operator."""
    identity = connection.scope.get("identity") or ANONYMOUS
    return str(identity.role)


def allowed_hosts(host: str, port: int, names: Iterable[str] = ()) -> list[str]:
    """Valid Host headers: the bound address, and the usual local names if it can be reached locally."""
    allowed = {host, *names}
    if is_loopback(host) or host in WILDCARD_HOSTS:
        allowed |= {*LOOPBACK_HOSTS}
    if host in WILDCARD_HOSTS:
        allowed |= {*machine_names()}
    return [f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in sorted(allowed - {*WILDCARD_HOSTS})]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    return host in LOOPBACK_HOSTS


def machine_names() -> list[str]:
    """Names of this machine: its host name first, then its addresses."""
    name = socket.gethostname()
    names = dict.fromkeys([name])
    with suppress(OSError):
        names |= dict.fromkeys(str(address[4][0]) for address in socket.getaddrinfo(name, None))
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; selects the source address
        names[str(probe.getsockname()[0])] = None
    return list(names)


def _response(refusal: Refusal, body: Any = None) -> Response:
    headers = {401: {"WWW-Authenticate": 'Bearer realm="townlet"'}, 429: {"Retry-After": "5"}}.get(refusal.status)
    if body is not None:
        return JSONResponse(body, refusal.status, headers)
    return PlainTextResponse(f"{refusal.reason}\n", refusal.status, headers)


async def _refuse(scope: Scope, refusal: Refusal, receive: Receive, send: Send) -> None:
    """Refuse a WebSocket with an HTTP status and a reason if the server supports it, else with a close code."""
    if "websocket.http.response" in scope.get("extensions", {}):
        await _response(refusal)(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": WS_FORBIDDEN, "reason": refusal.reason})


def _add_headers(send: Send, added: Mapping[str, str]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in added.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
