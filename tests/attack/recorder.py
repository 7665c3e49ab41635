"""Clients that play with a service and record every message and reply, with times."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from attack.history import History, Message, Operation
from townlet.decide.client import Client, NoAnswer
from townlet.decide.domain import SimulatedGame

PAUSE = 0.02  # seconds between two observations of a client
RETRY = 0.2  # seconds before a refused message is sent again
PATIENCE = 120.0  # seconds for one answer
REPEATED = 0.1  # fraction of observations and reports that are sent again although they were answered
ABANDONED = 0.3  # fraction of messages that MinimalConnection does not resend after a broken connection
LATER = ("OVERLOADED", "RATE_LIMITED", "LOG_STOPPED")
REMEMBERED = 20  # observations that may be repeated


class Connection(Protocol):
    """Connection of one client."""

    async def say(self, message: Message) -> Message | None:
        """The reply; None if it is unknown whether the message arrived."""

    async def close(self) -> None:
        """Close the connection."""


class TownletConnection:
    """The client that ships with Townlet: it reconnects and sends unanswered messages again."""

    def __init__(self, client: Client) -> None:
        self._client, self._begun = client, False

    async def say(self, message: Message) -> Message | None:
        if not self._begun:
            await self._client.__aenter__()
            self._begun = True
        try:
            return await self._client.request(message)
        except NoAnswer:
            return None

    async def close(self) -> None:
        await self._client.close()


class MinimalConnection:
    """A minimal client: one message at a time; after a broken connection it may or may not resend it."""

    def __init__(self, url: str, chance: random.Random) -> None:
        self._url, self._chance = url, chance
        self._socket: ClientConnection | None = None

    async def say(self, message: Message) -> Message | None:
        text, until = json.dumps(message), time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                if self._socket is None:
                    self._socket = await connect(self._url, compression=None, proxy=None, close_timeout=1)
                await self._socket.send(text)
                async with asyncio.timeout(PATIENCE):
                    return dict(json.loads(await self._socket.recv()))
            except (OSError, WebSocketException, TimeoutError):
                await self.close()
                if self._chance.random() < ABANDONED:
                    return None
                await asyncio.sleep(RETRY)
        return None

    async def close(self) -> None:
        if self._socket is not None:
            socket, self._socket = self._socket, None
            with suppress(OSError, WebSocketException):
                await socket.close()


class Player:
    """Plays one game, sometimes repeats messages, and records everything."""

    def __init__(
        self, number: int, connection: Connection, game: SimulatedGame, history: History, chance: random.Random
    ) -> None:
        self._number, self._connection, self._game = number, connection, game
        self._history, self._chance = history, chance
        self._asked: list[Message] = []

    async def play(self, stop: Callable[[], bool]) -> None:
        """Play until `stop` returns True."""
        while not stop():
            message = self._game.observe()
            reply = await self._send_until_accepted(message, stop)
            self._asked = [*self._asked, message][-REMEMBERED:]
            reports = self._game.apply(reply) if reply and reply["type"] != "error" else []
            for report in [*reports, *self._game.advance()]:
                await self._send_until_accepted(report, stop)
                if self._chance.random() < REPEATED:
                    await self._say(report)
            if self._chance.random() < REPEATED:
                await self._say(self._chance.choice(self._asked))
            await asyncio.sleep(PAUSE)
        await self._connection.close()

    async def _send_until_accepted(self, message: Message, stop: Callable[[], bool]) -> Message | None:
        """Send a message until the reply is not a request to retry."""
        while True:
            reply = await self._say(message)
            later = reply is not None and reply.get("code") in LATER
            if not later or stop():
                return reply
            await asyncio.sleep(RETRY)

    async def _say(self, message: Message) -> Message | None:
        begin = time.monotonic()
        reply = await self._connection.say(message)
        self._history.operations.append(Operation(self._number, begin, time.monotonic(), message, reply))
        return reply
