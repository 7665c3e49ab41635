"""A conversation with one game: what it sends is answered in the order it was sent, and never more than it can take."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from fastapi import WebSocket, WebSocketDisconnect

from townlet.decide.desk import Desk
from townlet.decide.service import problem

IN_FLIGHT: Final = 64  # messages of one game that may wait for their answers; then it must wait, too
PATIENCE: Final = 20.0  # seconds in which a game must take an answer

Promise = asyncio.Future[dict[str, Any]]


async def talk(socket: WebSocket, desk: Desk) -> None:
    """Until the game leaves."""
    await socket.accept()
    answers: asyncio.Queue[Promise | None] = asyncio.Queue(IN_FLIGHT)
    speaking = asyncio.create_task(_speak(socket, answers))
    try:
        while not speaking.done():
            text = await socket.receive_text()
            await answers.put(_heard(text, desk))
    except (WebSocketDisconnect, KeyError, RuntimeError):
        pass  # it left, or sent bytes where text belongs
    finally:
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)


async def _speak(socket: WebSocket, answers: asyncio.Queue[Promise | None]) -> None:
    while (promise := await answers.get()) is not None:
        reply = await promise
        await asyncio.wait_for(socket.send_text(json.dumps(reply, separators=(",", ":"), allow_nan=False)), PATIENCE)


def _heard(text: str, desk: Desk) -> Promise:
    """The answer to one message, now or later."""
    try:
        message = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        return _at_once(problem("INVALID_JSON", f"this is not JSON: {error}"[:200]))
    if not isinstance(message, dict):
        return _at_once(problem("INVALID_MESSAGE", "a message is a JSON object with a `type`"))
    kind = message.get("type")
    if kind == "ping":
        return _at_once({"type": "pong"})
    domain = desk.service.domain
    if kind == domain.observation:
        return desk.ask(message)
    if kind == domain.report:
        return desk.told(desk.service.report(message))
    known = f"{domain.observation}, {domain.report}, ping"
    return _at_once(problem("UNKNOWN_TYPE", f"no message is of the type {str(kind)[:40]!r}; known: {known}"))


def _at_once(reply: dict[str, Any]) -> Promise:
    promise: Promise = asyncio.get_running_loop().create_future()
    promise.set_result(reply)
    return promise


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number that JSON knows")
