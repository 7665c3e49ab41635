"""Python client for games: reconnects automatically and resends unanswered messages.

    async with Client("ws://127.0.0.1:8780/ws", os.environ["TOWNLET_GAME_TOKEN"]) as client:
        decision = await client.request({"type": "observation_data", ...})
        await client.request({"type": "spawn_result", "decisionId": decision["decisionId"], "success": True})

Resending is safe: the same observation gets the same reply, and a report counts once. `SyncClient` in
`townlet.decide.sync_client` is the same for a game without asyncio.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

FIRST_DELAY, MAX_DELAY = 0.05, 5.0  # seconds between attempts to connect, doubled after each failure
MAX_UNANSWERED: Final = 32  # messages in flight; the service reads at most twice as many
MAX_WAITING: Final = 1000  # messages in the queue; further ones are refused
CLOSE_TIMEOUT: Final = 1.0  # seconds for the closing handshake
MAX_MESSAGE: Final = 1 << 17  # bytes; the service closes the connection of a longer one
MAX_ANSWER: Final = 1 << 20  # bytes
STATUS_TEXTS: Final = {  # why a handshake was refused; some servers answer 403 for any reason
    401: "the token is missing or wrong",
    403: "the token is not a game's, or this Origin is not allowed",
    421: "the server does not accept this host name",
    429: "too many wrong tokens from this address",
    404: "there is no service at this path; the usual one is /ws",
}
PERMANENT: Final = (401, 403, 421)  # statuses after which a retry does not help
TRY_AGAIN_LATER: Final = 1013  # close code: too many games
CLOSED: Final = "the client is closed"


class NoAnswer(ConnectionError):
    """No answer arrived in time. The service may have received the message; it is safe to send it again."""


class InvalidAnswer(ConnectionError):
    """What arrived is not an answer of a decision service."""


@dataclass(eq=False, slots=True)
class PendingRequest:
    """A message without an answer."""

    text: str
    answer: asyncio.Future[dict[str, Any]]
    socket: ClientConnection | None = None  # on which it was last sent


class Client:
    """A session with a service, over as many connections as needed. Answers arrive in the order of the messages.

    Args:
        url: the WebSocket of the service, such as `"ws://127.0.0.1:8780/ws"`.
        token: the token of the role `game`.
        timeout: seconds to wait for an answer.
        client: the key that owns territories: a game that restarts with the same key keeps them. Random by default.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 60.0, client: str | None = None) -> None:
        self.url, self._timeout = url, timeout
        self.client = client or secrets.token_urlsafe(12)
        self._full_url = f"{url}{'&' if '?' in url else '?'}client={quote(self.client)}"
        self._address = url.partition("?")[0]  # for messages: the query may contain a token
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._waiting: deque[PendingRequest] = deque()  # not sent yet, oldest first
        self._sent: deque[PendingRequest] = deque()  # sent and not answered
        self._wake = asyncio.Event()
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._problem = ""  # why the last attempt to connect failed; "" while connected
        self.refused = False  # whether the service has refused the connection permanently
        self.connections = 0  # number of connections so far

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._stay_connected())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect; unanswered requests raise NoAnswer."""
        self._closed = True
        self._fail_all(CLOSED)
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _fail_all(self, reason: str) -> None:
        for request in (*self._sent, *self._waiting):
            if not request.answer.done():
                request.answer.set_exception(NoAnswer(reason))

    async def request(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message and return its answer, across reconnects; raises NoAnswer after the timeout."""
        text = json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        if (size := len(text.encode())) > MAX_MESSAGE:
            raise ValueError(f"the message has {size} bytes; the service accepts {MAX_MESSAGE}")
        if self._closed or self.refused:
            raise NoAnswer(CLOSED if self._closed else self._refusal())
        if len(self._waiting) >= MAX_WAITING:  # drop those that timed out
            self._waiting = deque(other for other in self._waiting if not other.answer.done())
        if len(self._waiting) >= MAX_WAITING:
            raise NoAnswer(f"{MAX_WAITING} messages are waiting; send fewer")
        request = PendingRequest(text, asyncio.Future())
        self._waiting.append(request)
        self._wake.set()
        try:
            return await asyncio.wait_for(request.answer, self._timeout)
        except TimeoutError:
            if request.socket:  # a connection without answers is probably dead, so reconnect
                request.socket.transport.abort()
            what = f"no answer from {self._address} for {self._timeout:g} s"
            raise NoAnswer(self._with_problem(what)) from None

    async def _stay_connected(self) -> None:
        delay, full = FIRST_DELAY, False
        while True:
            try:
                socket = await connect(
                    self._full_url, additional_headers=self._headers, max_size=MAX_ANSWER, close_timeout=CLOSE_TIMEOUT,
                    compression=None, proxy=None,
                )  # fmt: skip
                self.connections += 1
                if not full:  # otherwise the delays continue to grow, since the service may still be full
                    delay, self._problem = FIRST_DELAY, ""
                try:
                    await self._run(socket)
                finally:
                    try:
                        await socket.close()
                    finally:  # even if the closing handshake was canceled
                        socket.transport.abort()
            except (OSError, WebSocketException, TimeoutError) as error:
                closed = error.rcvd if isinstance(error, ConnectionClosed) else None
                self._problem, full = _describe(error), closed is not None and closed.code == TRY_AGAIN_LATER
                status = error.response.status_code if isinstance(error, InvalidStatus) else None
                if status in PERMANENT and not self.connections:  # once connected, a refusal is temporary
                    self.refused = True
                    self._fail_all(self._refusal())
                    return
            # Random, so that clients that were disconnected together do not all reconnect at once.
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # nosec B311: jitter, not a secret
            delay = min(2 * delay, MAX_DELAY)

    def _with_problem(self, what: str) -> str:
        return f"{what}: {self._problem}" if self._problem else what

    def _refusal(self) -> str:
        return self._with_problem(f"{self._address} refuses the connection")

    async def _run(self, socket: ClientConnection) -> None:
        """Exchange messages until the connection breaks; unanswered messages are resent first, in order."""
        self._waiting.extendleft(reversed([request for request in self._sent if not request.answer.done()]))
        self._sent.clear()
        self._wake.set()
        sender = asyncio.create_task(self._send(socket))
        try:
            async for text in socket:
                answer = _parse(text)
                if not self._sent:
                    raise InvalidAnswer("it sent an answer without a request")
                self._problem = ""
                request = self._sent.popleft()
                if not request.answer.done():  # otherwise the request timed out
                    request.answer.set_result(answer)
                self._wake.set()
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def _send(self, socket: ClientConnection) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting and len(self._sent) < MAX_UNANSWERED:
                request = self._waiting.popleft()
                if not request.answer.done():
                    request.socket = socket
                    self._sent.append(request)
                    await socket.send(request.text)


def _parse(text: str | bytes) -> dict[str, Any]:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise InvalidAnswer("its answer is not a JSON object, so it is not a decision service")
    return answer


def _describe(error: Exception) -> str:
    if isinstance(error, InvalidStatus):
        status, body = error.response.status_code, (error.response.body or b"")[:200].decode(errors="replace").strip()
        what = f"{status}, {STATUS_TEXTS[status]}" if status in STATUS_TEXTS else f"the server answered {status}"
        return f"{what} ({body})" if body and body.isprintable() else what
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, ConnectionClosed) and error.rcvd and error.rcvd.reason:
        return error.rcvd.reason
    return str(error)
