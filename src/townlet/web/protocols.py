"""uvicorn's protocols with limits on time, frames, and work in one turn of the event loop.

The only module that knows attributes of uvicorn's protocol classes and of the parsers behind them.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from townlet.web.limits import ConnectionLimiter, TokenBucket

HEADER_SECONDS: Final = 10.0  # seconds for the header of a request, from the opening of the connection on
BODY_SECONDS: Final = 30.0  # seconds for the body of a request
READ_SECONDS: Final = 20.0  # seconds in which a client must read some of a response that fills its buffer
SLICE_BYTES: Final = 2048  # bytes of a WebSocket that are parsed at once: 341 empty frames, about 3 ms
MAX_FRAMES: Final = 64  # of a message
CONTROL_BURST: Final = 64  # pings and pongs of a client at once
CONTROL_RATE: Final = 16.0  # and in a second
CLOSE_SECONDS: Final = 2.0  # seconds for a client to read the close reason and to close
POLICY_VIOLATION, MESSAGE_TOO_BIG, TRY_AGAIN_LATER = (
    1008,
    1009,
    1013,
)  # close codes: policy violation, message too big, try again later

TIMEOUT_TEXT: Final = b"the request did not arrive in time\n"
BUSY_TEXT: Final = b"too many connections; try again later\n"


class LimitedHTTP(H11Protocol):
    """HTTP/1.1 with a deadline for headers, bodies and readers, and a limit on connections."""

    def __init__(self, *, intake: ConnectionLimiter, **rest: Any) -> None:
        super().__init__(**rest)
        self._intake = intake
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None  # deadline of a client that does not read its response
        self._ending: asyncio.TimerHandle | None = None  # the same of the last bytes before the connection is closed
        self._state: Any = None  # of the client, as the parser knows it
        self._delayed: bytearray | None = None  # an upgrade whose turn has not come
        self._upgraded = False  # the transport belongs to a WebSocket now

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline of the first header."""
        super().connection_made(transport)
        if self._intake.admit(self):
            self._follow()
        else:
            self._end(503, BUSY_TEXT)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all deadlines."""
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Requests are parsed at once; handshakes of WebSockets, which cost more, take turns."""
        if self._delayed is not None:
            self._delayed += data
        elif b"websocket" in data and self.conn.their_state is h11.IDLE:
            self._delayed = bytearray(data)
            self._intake.later(self._upgrade)
        else:
            self._parse(data)

    def _upgrade(self) -> None:
        data, self._delayed = self._delayed, None
        if data and not self.transport.is_closing():
            self._parse(bytes(data))

    def _parse(self, data: bytes) -> None:
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        """Start the deadline of the next header."""
        super().on_response_complete()
        self._state = None
        self._intake.answered(self)
        self._follow()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over to the WebSocket protocol."""
        if self._intake.full:
            self._end(503, BUSY_TEXT)
            return
        self._leave()
        self._upgraded = True
        super().handle_websocket_upgrade(event)

    def _follow(self) -> None:
        """Set the deadline of what the client has to send next."""
        state = self.conn.their_state
        if self.transport.is_closing():
            self._expect_end()
        if self._upgraded or state is self._state or self.transport.is_closing():
            return
        self._state = state
        if self._deadline:
            self._deadline.cancel()
        seconds = {h11.IDLE: HEADER_SECONDS, h11.SEND_BODY: BODY_SECONDS}.get(state)
        self._deadline = self.loop.call_later(seconds, self._late) if seconds else None
        if seconds is None:
            self._intake.requested(self)

    def _expect_end(self) -> None:
        """Limit the time in which the client must read the rest, since the connection stays open until then."""
        if self._ending is None and not self._upgraded:
            self._ending = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection without a further request, as uvicorn does, within the same time."""
        super().timeout_keep_alive_handler()
        self._expect_end()

    def _late(self) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._end(408, TIMEOUT_TEXT)
        else:  # a response has begun before the request was complete
            self.transport.abort()

    def drop(self) -> None:
        """Make room for another connection."""
        self._end(408, BUSY_TEXT)

    def _end(self, status: int, text: bytes) -> None:
        """Send a status with a reason, and close; no response has begun."""
        reason = {408: b"Request Timeout", 503: b"Service Unavailable"}[status]
        head = b"HTTP/1.1 %d %b\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n" % (status, reason)
        if not self.transport.is_closing():
            self.transport.write(head + b"content-length: %d\r\n\r\n" % len(text) + text)
            self.transport.close()
        self._expect_end()

    def _leave(self) -> None:
        self._intake.leave(self)
        for timer in (self._deadline, self._unread, self._ending):
            if timer:
                timer.cancel()

    def pause_writing(self) -> None:
        """Start the deadline of a client that does not read."""
        super().pause_writing()
        self._unread = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the deadline: the client reads."""
        if self._unread:
            self._unread.cancel()
        super().resume_writing()


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that is parsed in slices, with a limit on frames of a message and on pings and pongs."""

    def __init__(self, *, intake: ConnectionLimiter, **rest: Any) -> None:
        super().__init__(**rest)
        self._intake = intake
        self._unparsed = bytearray()
        self._scheduled = self._refused = False
        self._control = TokenBucket(CONTROL_RATE, CONTROL_BURST)
        self._unread: asyncio.TimerHandle | None = None  # deadline of a client that does not read
        self.close_timeout = CLOSE_SECONDS

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it against the limit on WebSockets."""
        self._intake.opened(self)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Parse a slice now and the rest in later turns of the event loop; reading is paused meanwhile."""
        if self._refused or self.transport.is_closing():
            return
        if self._unparsed or self._scheduled or len(data) > SLICE_BYTES:
            self._unparsed += data
            self.transport.pause_reading()
            self._continue()
        else:
            super().data_received(data)
        self._account()

    def _continue(self) -> None:
        """Continue parsing once the application has received what was parsed."""
        if self._unparsed and not (self._scheduled or self.read_paused):
            self._scheduled = True
            self._intake.later(self._parse)

    def _parse(self) -> None:
        self._scheduled = False
        if self._refused or self.transport.is_closing():
            return
        data = bytes(self._unparsed[:SLICE_BYTES])
        del self._unparsed[:SLICE_BYTES]
        super().data_received(data)
        self._account()
        if self._unparsed:
            self._continue()
        elif not (self.read_paused or self.transport.is_closing()):
            self.transport.resume_reading()

    async def receive(self) -> Any:
        """The next message; a client that sends without waiting for answers takes turns with others of the kind."""
        if not self.queue.empty() and self.handshake_complete:
            await self._intake.turn()
        message = await super().receive()
        if self._unparsed and not self.transport.is_closing():
            self.transport.pause_reading()
            self._continue()
        return message

    async def send(self, message: Any) -> None:
        """A handshake that was refused with a status is complete, too: uvicorn would log each as an error."""
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True

    def pause_writing(self) -> None:
        """Start the deadline of a client that does not read."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Stop the deadline: the client reads."""
        if self._unread:
            self._unread.cancel()
        super().resume_writing()

    async def run_asgi(self) -> None:
        """Limit the time in which the client must read the rest, since the connection stays open until then."""
        await super().run_asgi()
        self._expect_reading()

    def _expect_reading(self) -> None:
        if self._unread:
            self._unread.cancel()
        if not self.disconnected:
            self._unread = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def _account(self) -> None:
        """Count the bytes of an incomplete message towards the budget of the server."""
        held = 0 if self._refused else len(self._unparsed) + len(self.conn.reader.buffer)
        self._intake.hold(self, held + sum(map(len, self.frames)))

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back its share of descriptors and bytes."""
        self._unparsed.clear()
        self._intake.closed(self)
        if self._unread:
            self._unread.cancel()
        super().connection_lost(exc)

    def handle_cont(self, event: Frame) -> None:
        """Count a continuation frame; a message with too many is refused."""
        if len(self.frames) >= MAX_FRAMES:
            self._refuse(MESSAGE_TOO_BIG, f"a message may have at most {MAX_FRAMES} frames")
        if not self._refused:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        """Answer a ping, unless there are too many."""
        if self._control_allowed():
            super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        """Count a pong like a ping."""
        if self._control_allowed():
            super().handle_pong(event)

    def _control_allowed(self) -> bool:
        if not self._control.take():
            self._refuse(POLICY_VIOLATION, f"more than {CONTROL_RATE:g} pings or pongs a second")
        return not self._refused

    def drop(self) -> None:
        """Make room for the messages of others."""
        self._refuse(TRY_AGAIN_LATER, "too much unread input; send less at once, and try again later")

    def _refuse(self, code: int, reason: str) -> None:
        """Close with a reason. Further input is discarded, so that the client can read the reason."""
        if self._refused or self.close_sent or self.transport.is_closing():
            return
        self._refused = True
        self._unparsed.clear()
        self.frames = []
        self.conn.fail(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(CLOSE_SECONDS, self.transport.close)
