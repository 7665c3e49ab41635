"""A conversation with one game: what it sends is answered in the order it was sent, and never more than it can take."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fastapi import WebSocket, WebSocketDisconnect
from fastapi.responses import PlainTextResponse

from townlet.decide.batcher import Batcher
from townlet.decide.clients import KEY, GameConnection
from townlet.decide.json import parsed, written
from townlet.decide.service import error_message

# Messages of one game that may wait for their answers; then it must wait, too. A territory remembers as many.
IN_FLIGHT: Final = 64
LEFT: Final = (WebSocketDisconnect, RuntimeError)  # the game left, or was dropped

Promise = asyncio.Future[dict[str, Any]]


async def serve_game(socket: WebSocket, desk: Batcher, token_name: str) -> None:
    """Serve one game until it disconnects or stops reading. `token_name` is the name of its access token."""
    key = socket.query_params.get("client")
    if key is not None and not KEY.fullmatch(key):
        what = f"the query parameter `client` must match {KEY.pattern}\n"
        await socket.send_denial_response(PlainTextResponse(what, 400))
        return
    await socket.accept()
    with desk.service.clients.connect(token_name, key) as client:
        await _converse(socket, desk, client)


async def _converse(socket: WebSocket, desk: Batcher, client: GameConnection) -> None:
    answers: asyncio.Queue[Promise] = asyncio.Queue(IN_FLIGHT)
    both = [asyncio.create_task(_listen(socket, answers, desk, client)), asyncio.create_task(_speak(socket, answers))]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()
        ends = await asyncio.gather(*both, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception) and not isinstance(end, LEFT):
            raise end


async def _listen(socket: WebSocket, answers: asyncio.Queue[Promise], desk: Batcher, client: GameConnection) -> None:
    while True:
        frame = await socket.receive()
        if frame["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(frame.get("code", 1005))
        text = frame.get("text")
        wrong = error_message("INVALID_MESSAGE", "a message is text, and this one is bytes")
        await answers.put(_at_once(wrong) if text is None else _heard(text, desk, client))


async def _speak(socket: WebSocket, answers: asyncio.Queue[Promise]) -> None:
    while True:
        reply = await (await answers.get())
        await socket.send_text(written(reply).decode())  # the server drops a client that does not read


def _heard(text: str, desk: Batcher, client: GameConnection) -> Promise:
    """The answer to one message, now or later."""
    if not client.messages.take():
        return _at_once(
            error_message("RATE_LIMITED", "more messages than limits.messages_per_second; send fewer, or later")
        )
    try:
        message = parsed(text)
    except ValueError as error:
        return _at_once(error_message("INVALID_JSON", f"this is not JSON: {error}"[:200]))
    if not isinstance(message, dict):
        return _at_once(error_message("INVALID_MESSAGE", "a message is a JSON object with a `type`"))
    kind = message.get("type")
    if kind == "ping":
        return _at_once({"type": "pong"})
    domain = desk.service.domain
    if kind == domain.observation_type:
        return desk.ask(message, len(text), client.owner)
    if kind == domain.report_type:
        return desk.told(desk.service.report(message, client.owner))
    known = f"{domain.observation_type}, {domain.report_type}, ping"
    return _at_once(error_message("UNKNOWN_TYPE", f"no message is of the type {str(kind)[:40]!r}; known: {known}"))


def _at_once(reply: dict[str, Any]) -> Promise:
    promise: Promise = asyncio.get_running_loop().create_future()
    promise.set_result(reply)
    return promise
