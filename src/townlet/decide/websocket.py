"""WebSocket connections: games, dashboards, and the limits of both."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from fastapi import WebSocket, WebSocketDisconnect
from fastapi.responses import PlainTextResponse
from pydantic_core import from_json, to_json

from townlet.decide import MAX_GAMES, envelope
from townlet.decide.batcher import Batcher
from townlet.decide.fair_queue import FutureReply
from townlet.decide.service import error_message
from townlet.decide.territories import CLIENT_KEY
from townlet.decide.tracing import Mark, MessageTrace, no_mark, trace_message
from townlet.web.limits import DescriptorBudget, SingleFlightCache, TokenBucket
from townlet.web.mailbox import DISCONNECTED, Mailbox, run_until_first
from townlet.web.shares import Slot, WebSocketLimit

logger = logging.getLogger(__name__)
MAX_DASHBOARDS: Final = 256
SOCKETS_PER_DASHBOARD: Final = 16  # at most one in 16 WebSockets may be a dashboard
# Messages of one game that may await their reply; further ones are not read. `territories.MAX_ANSWERS` is larger by 2.
MAX_IN_FLIGHT: Final = 64
RATE_LIMITED: Final = error_message("RATE_LIMITED", "limits.messages_per_second is exceeded; send fewer messages")

BROADCAST_BATCH: Final = 16  # dashboards per batch, about 1 ms of work
BROADCAST_PAUSE: Final = 0.005  # seconds between two batches, so that replies to games are not delayed


class QueuedReply(NamedTuple):
    """A reply that may not be known yet."""

    future: FutureReply
    enveloped: bool  # whether it is sent in an envelope
    trace: MessageTrace | None = None


Replies = asyncio.Queue[QueuedReply]


class ConnectionLimits:
    """Limits on connections of games and dashboards, within the process's limit on file descriptors."""

    def __init__(self, descriptors: DescriptorBudget | None = None) -> None:
        available = descriptors.app_websockets if descriptors else MAX_GAMES + MAX_DASHBOARDS
        dashboards = min(MAX_DASHBOARDS, available // SOCKETS_PER_DASHBOARD)
        games = min(MAX_GAMES, available - dashboards)
        self.games = WebSocketLimit(games, "too many games are connected")
        self.dashboards = WebSocketLimit(dashboards, "too many dashboards are open; retrying")
        self.limited_by_descriptors = games < MAX_GAMES
        self.descriptor_limit = descriptors.limit if descriptors else 0


async def serve_game(socket: WebSocket, batcher: Batcher, slot: Slot) -> None:
    """Serve one game until it disconnects or stops reading."""
    client_key = socket.query_params.get("client")
    if client_key is not None and not CLIENT_KEY.fullmatch(client_key):
        what = f"the query parameter `client` must match {CLIENT_KEY.pattern}\n"
        await socket.send_denial_response(PlainTextResponse(what, 400))
        return
    await socket.accept()
    replies: Replies = asyncio.Queue(MAX_IN_FLIGHT)
    with batcher.service.clients.connect(slot.token.name, client_key) as (owner, rate_limit):
        await run_until_first(_receive(socket, replies, batcher, owner, rate_limit, slot), _send(socket, replies))


async def _receive(
    socket: WebSocket, replies: Replies, batcher: Batcher, owner: str, rate_limit: TokenBucket, slot: Slot
) -> None:
    enveloped = False  # as the last message that could be read: the form of errors about one that could not
    while True:
        frame = await socket.receive()
        if frame["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(frame.get("code", 1005))
        slot.last_message = time.monotonic()
        text = frame.get("text")
        if text is None:
            reply = error_message("INVALID_MESSAGE", "messages must be text frames, this one is binary")
            queued = QueuedReply(_completed(reply), enveloped)
        elif not rate_limit.take():
            queued = QueuedReply(_completed(RATE_LIMITED), enveloped)
        else:
            queued = _dispatch(text, batcher, owner, enveloped)
        enveloped = queued.enveloped
        await replies.put(queued)


async def _send(socket: WebSocket, replies: Replies) -> None:
    while True:
        future, enveloped, trace = await replies.get()  # replies are sent in the order of the messages
        reply = await future
        sent = envelope.wrap(reply) if enveloped else reply
        await socket.send_text(to_json(sent).decode())  # `LimitedWebSocket` aborts if the client does not read
        if trace is not None:
            trace.end(reply)


def _dispatch(text: str, batcher: Batcher, owner: str, enveloped: bool) -> QueuedReply:
    """The future reply to a message; it is in an envelope if the message is, else as the one before."""
    try:
        message = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        reply = error_message("INVALID_JSON", f"this is not JSON: {error}"[:200])
        return QueuedReply(_completed(reply), enveloped)
    if not isinstance(message, dict):
        what = "a message must be a JSON object with a `type`"
        return QueuedReply(_completed(error_message("INVALID_MESSAGE", what)), enveloped)
    if enveloped := envelope.is_enveloped(message):
        try:
            message = envelope.unwrap(message)
        except ValueError as error:
            return QueuedReply(_completed(error_message("INVALID_MESSAGE", str(error))), True)
    future, trace = _answer(message, len(text), batcher, owner)
    return QueuedReply(future, enveloped, trace)


def _answer(
    message: Mapping[str, Any], size: int, batcher: Batcher, owner: str
) -> tuple[FutureReply, MessageTrace | None]:
    """The future reply to a message, of this size as JSON, and its trace, if traces are on."""
    trace = trace_message(str(message.get("type"))[:40], size)
    if trace is None:
        return _submit(message, size, batcher, owner, no_mark), None
    future = _submit(message, size, batcher, owner, trace.mark)
    future.add_done_callback(lambda _: trace.mark("commit"))  # called before the waiting task continues
    return future, trace


def _submit(message: Mapping[str, Any], size: int, batcher: Batcher, owner: str, mark: Mark) -> FutureReply:
    message_type = message.get("type")
    if message_type == "ping":
        return _completed({"type": "pong"})
    domain = batcher.service.domain
    if message_type == domain.observation_type:
        return batcher.submit(message, size, owner, mark)
    if message_type in domain.report_types:
        return batcher.report(message, size, owner, mark)
    known = ", ".join((domain.observation_type, *domain.report_types, "ping"))
    return _completed(error_message("UNKNOWN_TYPE", f"unknown message type {str(message_type)[:40]!r}; known: {known}"))


class GamePort:
    """Answers messages that arrive by HTTP as if they came over a WebSocket of the same client."""

    def __init__(self, batcher: Callable[[], Batcher]) -> None:
        self._batcher = batcher

    async def send(self, message: Mapping[str, Any], size: int, token_name: str, key: str) -> dict[str, Any]:
        """The reply to a message, of this size as JSON, from the client with this token name and key."""
        batcher = self._batcher()
        with batcher.service.clients.connect(token_name, key) as (owner, rate_limit):
            if not rate_limit.take():
                return RATE_LIMITED
            future, trace = _answer(message, size, batcher, owner)
            reply = await future
            if trace is not None:
                trace.end(reply)
            return reply


def _completed(reply: dict[str, Any]) -> FutureReply:
    future: FutureReply = asyncio.get_running_loop().create_future()
    future.set_result(reply)
    return future


class StatsFeed:
    """Broadcasts statistics, serialized once per interval; a slow dashboard misses updates without delaying others."""

    def __init__(self, serialize: Callable[[], str], interval: float) -> None:
        self._serialize, self._interval = serialize, interval
        self._cache = SingleFlightCache[str](interval / 2)  # expires before the next broadcast
        self._mailboxes: set[Mailbox] = set()

    async def run(self) -> None:
        """Send to all dashboards, once per interval."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                for index, mailbox in enumerate(list(self._mailboxes), 1):
                    mailbox.post_latest("stats", self._stats_text())
                    if index % BROADCAST_BATCH == 0:
                        await asyncio.sleep(BROADCAST_PAUSE)
            except Exception:  # try again at the next interval
                logger.exception("cannot send statistics to the dashboards")

    async def serve(self, socket: WebSocket) -> None:
        """Send to one dashboard until it disconnects or stops reading."""
        await socket.accept()
        mailbox = Mailbox()
        mailbox.post_latest("stats", self._stats_text())
        self._mailboxes.add(mailbox)
        try:
            with suppress(*DISCONNECTED):
                await mailbox.deliver(socket.send_text)
        finally:
            self._mailboxes.discard(mailbox)

    def _stats_text(self) -> str:
        return self._cache.get("stats", self._serialize)
