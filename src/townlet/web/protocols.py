"""uvicorn's protocols with limits on time, frames, and work per iteration of the event loop.

No other module uses internals of uvicorn's protocol classes or of their parsers.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from townlet.errors import TownletError
from townlet.web.limits import ConnectionLimiter, TokenBucket

HEADER_SECONDS: Final = 10.0  # time limit for the header of a request, from the opening of the connection
BODY_SECONDS: Final = 30.0  # time limit for the body of a request
READ_SECONDS: Final = 20.0  # time limit for a client to read from a response that fills its buffer
SLICE_BYTES: Final = 2048  # input of a WebSocket that is parsed at once: 341 empty frames, about 3 ms
MAX_FRAMES: Final = 64  # per message
CONTROL_BURST: Final = 64  # pings and pongs that a client may send at once
CONTROL_RATE: Final = 16.0  # pings and pongs per second in the long run
CLOSE_SECONDS: Final = 2.0  # time limit for a client to read the close reason and to close
INVALID_TEXT, POLICY_VIOLATION, MESSAGE_TOO_BIG, TRY_AGAIN_LATER = 1007, 1008, 1009, 1013  # close codes
ADDED_METHODS: Final = {"evict"}  # public methods that override nothing

TIMEOUT_TEXT: Final = b"the request did not arrive in time\n"
BUSY_TEXT: Final = b"too many connections; try again later\n"


# Line ends without CR, and headers continued on a second line.
AMBIGUOUS_HEAD: Final = re.compile(rb"(?<!\r)\n|\n[ \t]")
BODY_LENGTHS: Final = {b"content-length", b"transfer-encoding"}


class StrictParser(h11.Connection):
    """Refuses requests that h11 accepts, but that a proxy may divide at other places."""

    def next_event(self) -> Any:
        """The next event; raises `RemoteProtocolError` for a request that is invalid or ambiguous."""
        if self.their_state is h11.IDLE:
            head, _, _ = self.trailing_data[0].partition(b"\r\n\r\n")
            if AMBIGUOUS_HEAD.search(head):
                raise h11.RemoteProtocolError("ambiguous line ends")
        event = super().next_event()
        if isinstance(event, h11.Request) and {name for name, _ in event.headers} >= BODY_LENGTHS:
            raise h11.RemoteProtocolError("two lengths of the body")
        return event


class LimitedHTTP(H11Protocol):
    """HTTP/1.1 with deadlines for headers, bodies and reading responses, and a limit on connections."""

    def __init__(self, *, limiter: ConnectionLimiter, **options: Any) -> None:
        super().__init__(**options)
        self.conn = StrictParser(h11.SERVER)
        self._limiter = limiter
        self._request_deadline: asyncio.TimerHandle | None = None
        self._read_deadline: asyncio.TimerHandle | None = None  # for a client that does not read its response
        self._close_deadline: asyncio.TimerHandle | None = None  # for the last bytes before the connection is closed
        self._client_state: Any = None  # the parser's state of the client at the last call of `_update_deadline`
        self._upgraded = False  # the connection counts as a WebSocket

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._limiter.http.admit(self):
            self._update_deadline()
        else:
            self._respond_and_close(503, BUSY_TEXT)

    def connection_lost(self, exc: Exception | None) -> None:
        self._release_http()
        self._limiter.websockets.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._client_state = None
        self._limiter.http.mark_idle(self)
        self._update_deadline()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Schedule the handshake, which costs more than a request. Its request is complete: no deadline is left."""
        if not self._limiter.websockets.admit(self):
            self._respond_and_close(503, BUSY_TEXT)
            return
        self._limiter.websockets.mark_busy(self)
        self._upgraded = True
        self._release_http()
        self.connections.discard(self)
        self.transport.pause_reading()
        self._limiter.schedule(partial(self._upgrade, event))

    def _upgrade(self, event: h11.Request) -> None:
        """Hand the connection over to the WebSocket protocol."""
        self._limiter.websockets.remove(self)
        if not self.transport.is_closing():
            self.transport.resume_reading()
            super().handle_websocket_upgrade(event)

    def _update_deadline(self) -> None:
        state = self.conn.their_state
        if self.transport.is_closing():
            self._limit_closing()
        if self._upgraded or state is self._client_state or self.transport.is_closing():
            return
        self._client_state = state
        if self._request_deadline:
            self._request_deadline.cancel()
        seconds = {h11.IDLE: HEADER_SECONDS, h11.SEND_BODY: BODY_SECONDS}.get(state)
        self._request_deadline = self.loop.call_later(seconds, self._time_out) if seconds else None
        if seconds is None:
            self._limiter.http.mark_busy(self)

    def _limit_closing(self) -> None:
        """Limit the time for the client to read the remaining data; the connection stays open until then."""
        if self._close_deadline is None and not self._upgraded:
            self._close_deadline = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, as uvicorn does, and limit the time for it."""
        super().timeout_keep_alive_handler()
        self._limit_closing()

    def _time_out(self) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._respond_and_close(408, TIMEOUT_TEXT)
        else:  # the response began before the request was complete
            self.transport.abort()

    def evict(self) -> None:
        """Close the connection, to free its slot."""
        self._respond_and_close(408, BUSY_TEXT)

    def _respond_and_close(self, status: int, text: bytes) -> None:
        reason = {408: b"Request Timeout", 503: b"Service Unavailable"}[status]
        head = b"HTTP/1.1 %d %b\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n" % (status, reason)
        if not self.transport.is_closing():
            self.transport.write(head + b"content-length: %d\r\n\r\n" % len(text) + text)
            self.transport.close()
        self._limit_closing()

    def _release_http(self) -> None:
        self._limiter.http.remove(self)
        for timer in (self._request_deadline, self._read_deadline, self._close_deadline):
            if timer:
                timer.cancel()

    def pause_writing(self) -> None:
        """Start the deadline for a client that does not read."""
        super().pause_writing()
        self._read_deadline = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        if self._read_deadline:
            self._read_deadline.cancel()
        super().resume_writing()


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that is parsed in slices, with limits on the frames of a message and on pings and pongs."""

    def __init__(self, *, limiter: ConnectionLimiter, **options: Any) -> None:
        super().__init__(**options)
        self._limiter = limiter
        self._unparsed = bytearray()
        self._scheduled = self._refused = False
        self._control = TokenBucket(CONTROL_RATE, CONTROL_BURST)
        self._read_deadline: asyncio.TimerHandle | None = None  # for a client that does not read
        self.close_timeout = CLOSE_SECONDS

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._limiter.websockets.admit(self)  # in the place of the handshake
        self._limiter.websockets.mark_busy(self)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Parse a slice now and the rest in later iterations of the event loop; reading is paused meanwhile."""
        if self._refused or self.transport.is_closing():
            return
        if self._unparsed or self._scheduled or len(data) > SLICE_BYTES:
            self._unparsed += data
            self.transport.pause_reading()
            self._schedule_parsing()
        else:
            super().data_received(data)
        self._count_buffered()

    def _schedule_parsing(self) -> None:
        """Continue parsing once the application has received what was parsed."""
        if self._unparsed and not (self._scheduled or self.read_paused):
            self._scheduled = True
            self._limiter.schedule(self._parse)

    def _parse(self) -> None:
        self._scheduled = False
        if self._refused or self.transport.is_closing():
            return
        data = bytes(self._unparsed[:SLICE_BYTES])
        del self._unparsed[:SLICE_BYTES]
        super().data_received(data)
        self._count_buffered()
        if self._unparsed:
            self._schedule_parsing()
        elif not (self.read_paused or self.transport.is_closing()):
            self.transport.resume_reading()

    async def receive(self) -> Any:
        """The next message; clients that send the next one before the reply take turns."""
        if not self.queue.empty() and self.handshake_complete:
            await self._limiter.wait_turn()
        message = await super().receive()
        if self._unparsed and not self.transport.is_closing():
            self.transport.pause_reading()
            self._schedule_parsing()
        return message

    async def send(self, message: Any) -> None:
        """Mark a refused handshake as complete, otherwise uvicorn logs it as an error, and a closed socket as idle."""
        await super().send(message)
        if self.close_sent:
            self.handshake_complete = True
            self._limiter.websockets.mark_idle(self)

    def pause_writing(self) -> None:
        """Start the deadline for a client that does not read."""
        super().pause_writing()
        self._limit_reading()

    def resume_writing(self) -> None:
        if self._read_deadline:
            self._read_deadline.cancel()
        super().resume_writing()

    async def run_asgi(self) -> None:
        """Run the app, then limit the time for the client to read the remaining data."""
        await super().run_asgi()
        self._limit_reading()

    def _limit_reading(self) -> None:
        if self._read_deadline:
            self._read_deadline.cancel()
        if not self.disconnected:
            self._read_deadline = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def _count_buffered(self) -> None:
        unparsed = 0 if self._refused else len(self._unparsed) + len(self.conn.reader.buffer)
        self._limiter.set_buffered(self, unparsed + sum(map(len, self.frames)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._unparsed.clear()
        self._limiter.websockets.remove(self)
        self._limiter.set_buffered(self, 0)
        if self._read_deadline:
            self._read_deadline.cancel()
        super().connection_lost(exc)

    def send_receive_event_to_app(self) -> None:
        """Pass a message to the app. Text that is not UTF-8 is refused here: uvicorn would log a traceback."""
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self._refuse(INVALID_TEXT, "text must be UTF-8")
                return
        super().send_receive_event_to_app()

    def handle_cont(self, event: Frame) -> None:
        """Handle a continuation frame; a message with too many frames is refused."""
        if len(self.frames) >= MAX_FRAMES:
            self._refuse(MESSAGE_TOO_BIG, f"a message may have at most {MAX_FRAMES} frames")
        if not self._refused:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        if self._control_allowed():
            super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        if self._control_allowed():
            super().handle_pong(event)

    def _control_allowed(self) -> bool:
        if not self._control.take():
            self._refuse(POLICY_VIOLATION, f"more than {CONTROL_RATE:g} pings or pongs per second")
        return not self._refused

    def evict(self) -> None:
        """Close the connection, to free its buffered bytes; if it is being closed, abort it, to free its slot."""
        if self.close_sent:
            self.transport.abort()
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
        self._limiter.websockets.mark_idle(self)
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(CLOSE_SECONDS, self.transport.close)


def check_uvicorn(*protocols: type) -> None:
    """Refuse a release of uvicorn without a method that these classes override: their limits would not apply."""
    for protocol in protocols:
        (base,) = protocol.__bases__
        methods = {name for name, value in vars(protocol).items() if callable(value) and not name.startswith("_")}
        if missing := sorted(methods - ADDED_METHODS - {*dir(base)}):
            what = f"this release of uvicorn has no {base.__name__}.{missing[0]}, on which limits of the server rely"
            raise TownletError(what, "install the versions that this release of Townlet requires")
