"""Simulated games that play against a running service over real connections, with optional network faults."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit, urlunsplit

import numpy as np

from townlet.decide.client import Client, NoAnswer
from townlet.decide.domain import SimulatedGame
from townlet.decide.storage import TOKENS
from townlet.errors import TownletError
from townlet.rng import Streams
from townlet.web.guard import is_loopback
from townlet.web.tokens import GAME, OPERATOR, VIEWER, Tokens, environment_tokens, read_token_file

TERRITORY: Final = "territoryId"  # key of an observation, unless each is a territory of its own
ANSWER_TIMEOUT: Final = 60.0  # seconds
PING_TIMEOUT: Final = 5.0  # seconds for the first answer of the service


def client_tokens(url: str, folder: Path, token_file: Path | None) -> tuple[str | None, str | None]:
    """Game token and reader token for the service at `url`; tokens from `folder` are sent only to this machine."""
    if token_file is not None:
        given = read_token_file(token_file)
    else:
        local = is_loopback(urlsplit(url).hostname or "") and os.path.lexists(folder / TOKENS)
        given = (read_token_file(folder / TOKENS, follow_links=False) if local else {}) | environment_tokens()
    tokens = Tokens(given)
    return tokens.first(GAME), tokens.first(VIEWER) or tokens.first(OPERATOR)


@dataclass(frozen=True)
class NetworkFaults:
    """Probabilities of faults, per message."""

    duplicates: float = 0.0  # a message is sent twice
    reordering: float = 0.0  # a report is sent after a later one
    losses: float = 0.0  # a report is not sent
    reconnects: float = 0.0  # the game reconnects before an observation


@dataclass
class SimulationResult:
    """Counts and latencies of a simulation."""

    observations: int = 0
    sent: int = 0  # decisions to act
    waited: int = 0  # decisions to wait
    refused: int = 0  # observations answered with an error
    refusal: str = ""  # code and message of the first error
    reports: int = 0
    connections: int = 0
    seconds: float = 0.0
    latency: list[float] = field(default_factory=list)  # seconds, of each decision

    def percentile(self, share: float) -> float:
        """Latency percentile in seconds; `share` in [0, 1]."""
        return float(np.percentile(self.latency, 100 * share)) if self.latency else 0.0


def fetch_outcomes(url: str, token: str | None = None) -> tuple[int, float] | None:
    """Number and sum of the outcomes of the service at this WebSocket URL; None if it does not answer."""
    parts = urlsplit(url)
    scheme, path = {"ws": "http", "wss": "https"}.get(parts.scheme, ""), parts.path.removesuffix("ws")
    if not scheme:
        return None
    stats_url = urlunsplit((scheme, parts.netloc, f"{path}api/decide/stats", "", ""))
    token = token or parse_qs(parts.query).get("token", [None])[0]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # without a proxy
    try:
        with opener.open(urllib.request.Request(stats_url, headers=headers), timeout=PING_TIMEOUT) as answer:
            decisions = json.loads(answer.read())["decisions"]
            count = int(decisions["outcomes"])
            return count, count * float(decisions["mean_actual"] or 0.0)
    except (OSError, ValueError, KeyError):
        return None


async def simulate(
    url: str, games: Sequence[SimulatedGame], observations: int, *, token: str | None = None,
    faults: NetworkFaults | None = None, seed: int = 0, pause: float = 0.0,
    on_progress: Callable[[SimulationResult], None] | None = None, territories: Sequence[str] = (),
) -> SimulationResult:  # fmt: skip
    """Run games concurrently, each with its own connection and this number of observations.

    `territories` replace the territory names of the games, in case the service has already seen those.
    """
    await _ping(url, token)
    result, started = SimulationResult(), time.monotonic()
    players = [
        _Player(url, game, token, faults or NetworkFaults(), Streams(seed).numpy(f"trouble of {index}"), result, name)
        for index, (game, name) in enumerate(zip(games, territories or [""] * len(games), strict=True))
    ]
    tasks = [asyncio.create_task(player.play(observations, pause, on_progress)) for player in players]
    try:
        await asyncio.gather(*tasks)
    except NoAnswer as error:
        fix = "check whether the service is running and what it printed; acknowledged outcomes are not lost"
        raise TownletError(str(error), fix) from error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    result.seconds = time.monotonic() - started
    return result


async def _ping(url: str, token: str | None) -> None:
    async with Client(url, token, PING_TIMEOUT) as client:
        try:
            await client.request({"type": "ping"})
        except NoAnswer as error:
            what, fix = str(error), "check what the service printed, and how many games are connected"
            if not client.connections:
                what = what if client.refused else f"no service answers at {url.partition('?')[0]}"
                fix = "start one with `townlet decide serve`, and pass its address with --url and its token if needed"
            raise TownletError(what, fix) from error


class _Player:
    """One game and its connection."""

    def __init__(
        self, url: str, game: SimulatedGame, token: str | None, faults: NetworkFaults, rng: np.random.Generator,
        result: SimulationResult, name: str,
    ) -> None:  # fmt: skip
        self._url, self._game, self._token = url, game, token
        self._territory = {TERRITORY: name} if name else {}
        self._client_key = sha256((name or secrets.token_hex(8)).encode()).hexdigest()[:16]  # kept when it reconnects
        self._faults, self._rng, self._result = faults, rng, result
        self._delayed: list[dict[str, Any]] = []  # reports to send after later ones

    async def play(
        self, observations: int, pause: float, on_progress: Callable[[SimulationResult], None] | None
    ) -> None:
        remaining = observations
        while remaining:
            async with Client(self._url, self._token, ANSWER_TIMEOUT, self._client_key) as client:
                self._result.connections += 1
                while remaining:
                    await self._step(client)
                    remaining -= 1
                    if on_progress:
                        on_progress(self._result)
                    await asyncio.sleep(pause)
                    if self._occurs(self._faults.reconnects):
                        break

    async def _step(self, client: Client) -> None:
        result, message = self._result, self._game.observe()
        if TERRITORY in message:
            message |= self._territory
        started = time.perf_counter()
        if self._occurs(self._faults.duplicates):
            _, reply = await asyncio.gather(client.request(message), client.request(message))
        else:
            reply = await client.request(message)
        result.latency.append(time.perf_counter() - started)
        result.observations += 1
        reports = self._game.apply(reply)
        refused, waits = reply["type"] == "error", "reason" in reply  # only a decision to wait has a reason
        result.refused += refused
        if refused and not result.refusal:
            result.refusal = f"{reply['code']}: {reply['message']}"
        result.waited += waits
        result.sent += not (refused or waits)
        await self._report(client, [*reports, *self._game.advance()])

    async def _report(self, client: Client, reports: Sequence[dict[str, Any]]) -> None:
        outgoing, self._delayed = self._delayed, []
        for report in reports:
            if self._occurs(self._faults.losses):
                continue
            if self._occurs(self._faults.reordering):
                self._delayed.append(report)
                continue
            outgoing.append(report)
            if self._occurs(self._faults.duplicates):
                outgoing.append(report)
        for report in outgoing:
            await client.request(report)
            self._result.reports += 1

    def _occurs(self, probability: float) -> bool:
        return probability > 0 and bool(self._rng.random() < probability)
