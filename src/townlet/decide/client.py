"""A client for games in Python: it reconnects by itself, and what was not answered is said again.

    async with Client("ws://127.0.0.1:8780/ws", os.environ["TOWNLET_GAME_TOKEN"]) as service:
        decision = await service.say({"type": "observation_data", ...})
        await service.say({"type": "spawn_result", "decisionId": decision["decisionId"], "success": True})

Saying something twice does no harm: the same observation gets the same answer, and a report counts once.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0  # seconds between attempts to connect
IN_FLIGHT: Final = 32  # messages on their way; the service reads no more than twice as many ahead
FAREWELL: Final = 1.0  # seconds in which a service may say goodbye too
LARGEST: Final = 1 << 20  # bytes of an answer
REFUSALS: Final = {  # of a handshake; a server that turns a socket away says 403 whatever the reason is
    401: "the token is missing or wrong",
    403: "the token is not a game's, or this Origin is not allowed",
    421: "the server does not accept this host name",
    429: "too many wrong tokens came from this address",
    404: "nothing listens under this path; the usual one is /ws",
}
FOR_GOOD: Final = (401, 403, 421)  # a retry does not help
FULL: Final = 1013  # of a link that is closed: too many games, try again later


class NoAnswer(ConnectionError):
    """No answer came in time; what was said may or may not have been heard, and may be said again."""


class InFlight(NamedTuple):
    """A message on its way, and who waits for the answer."""

    text: str
    answer: asyncio.Future[dict[str, Any]]


class Client:
    """One conversation with a service, over as many connections as it takes. Answers come in the order of messages."""

    def __init__(self, url: str, token: str | None = None, patience: float = 60.0, client: str | None = None) -> None:
        """`client` is the key of the owner of territories; a game that restarts with the same key keeps them."""
        self.url, self._patience = url, patience
        self.client = client or secrets.token_urlsafe(12)
        self._full_url = f"{url}{'&' if '?' in url else '?'}client={quote(self.client)}"
        self._address = url.partition("?")[0]  # to be told: what follows may be a token
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._waiting: deque[InFlight] = deque()  # not sent yet, oldest first
        self._sent: deque[InFlight] = deque()  # sent and not answered
        self._room = asyncio.Semaphore(IN_FLIGHT)
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""  # why the last attempt to connect failed; "" while there is a connection
        self.refused = False  # by the service itself, so that waiting does not help
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._stay_connected())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave; whoever still waits for an answer is told."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for said in (*self._sent, *self._waiting):
            if not said.answer.done():
                said.answer.set_exception(NoAnswer("the conversation was ended before the answer came"))

    async def say(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a message, however often the connection breaks; raises Lost when it takes too long."""
        async with self._room:
            if self.refused:
                raise self._refusal()
            said = InFlight(json.dumps(message, separators=(",", ":"), allow_nan=False), asyncio.Future())
            self._waiting.append(said)
            self._news.set()
            try:
                return await asyncio.wait_for(said.answer, self._patience)
            except TimeoutError:
                raise NoAnswer(self._why(f"no answer from {self._address} for {self._patience:g} s")) from None

    async def _stay_connected(self) -> None:
        wait, full = FIRST_WAIT, False
        while True:
            try:
                socket = await connect(
                    self._full_url, additional_headers=self._headers, max_size=LARGEST, close_timeout=FAREWELL,
                    compression=None, proxy=None,
                )  # fmt: skip
                self.connections += 1
                if not full:  # else it may be so still, and waits go on growing
                    wait, self._trouble = FIRST_WAIT, ""
                try:
                    await self._converse(socket)
                finally:
                    await _leave(socket)
            except (OSError, WebSocketException, TimeoutError) as error:
                self._trouble, full = _told(error), _closed_with(error) == FULL
                # Whom it let in before, it turns away for a while only.
                if isinstance(error, InvalidStatus) and error.response.status_code in FOR_GOOD and not self.connections:
                    self._give_up()
                    return
            # Those who were thrown out together should not all come back at the same moment.
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, LONGEST_WAIT)

    def _why(self, what: str) -> str:
        return f"{what}: {self._trouble}" if self._trouble else what

    def _refusal(self) -> NoAnswer:
        return NoAnswer(self._why(f"{self._address} refuses the connection"))

    def _give_up(self) -> None:
        """The service does not let us in, and will not in a minute: all who wait are told now."""
        self.refused = True
        for said in (*self._sent, *self._waiting):
            if not said.answer.done():
                said.answer.set_exception(self._refusal())

    async def _converse(self, socket: ClientConnection) -> None:
        """Until the connection breaks. What was sent and not answered goes first, in its order."""
        self._waiting.extendleft(reversed([said for said in self._sent if not said.answer.done()]))
        self._sent.clear()
        self._news.set()
        speaking = asyncio.create_task(self._speak(socket))
        try:
            async for text in socket:
                self._trouble = ""  # also where it was full before
                answer = self._sent.popleft().answer
                if not answer.done():  # else nobody waits for it any more
                    answer.set_result(json.loads(text))
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)

    async def _speak(self, socket: ClientConnection) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                said = self._waiting.popleft()
                if said.answer.done():
                    continue
                self._sent.append(said)
                await socket.send(said.text)


async def _leave(socket: ClientConnection) -> None:
    try:
        await socket.close()
    finally:  # who is not given the time for a farewell leaves without it, and leaves nothing open
        socket.transport.abort()


def _told(error: Exception) -> str:
    """What went wrong with an attempt to connect, in words."""
    if isinstance(error, InvalidStatus):
        status, said = error.response.status_code, (error.response.body or b"")[:200].decode(errors="replace").strip()
        what = f"{status}, {REFUSALS[status]}" if status in REFUSALS else f"the server answered {status}"
        return f"{what} ({said})" if said and said.isprintable() else what
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, ConnectionClosed) and error.rcvd and error.rcvd.reason:
        return error.rcvd.reason
    return str(error)


def _closed_with(error: Exception) -> int | None:
    """The code with which the service has ended a connection; None where it has not."""
    return error.rcvd.code if isinstance(error, ConnectionClosed) and error.rcvd else None
