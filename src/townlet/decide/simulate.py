"""Simulated games that play with a real service over real sockets, as politely or as badly as one likes."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit, urlunsplit

import numpy as np

from townlet.decide.client import Client, NoAnswer
from townlet.decide.domain import SimulatedGame
from townlet.errors import TownletError
from townlet.rng import Streams

TERRITORY: Final = "territoryId"  # of an observation, in every domain
PATIENCE: Final = 60.0  # seconds that an answer may take
GREETING: Final = 5.0  # seconds in which a service must answer that it is there


@dataclass(frozen=True)
class NetworkFaults:
    """What goes wrong between a game and the service, as probabilities for each message."""

    duplicates: float = 0.0
    reordering: float = 0.0  # of reports: one comes after a later one
    losses: float = 0.0  # of reports
    reconnects: float = 0.0  # the connection is left and made anew before an observation


@dataclass
class SimulationResult:
    """What a simulation saw."""

    observations: int = 0
    sent: int = 0
    waited: int = 0
    refused: int = 0
    refusal: str = ""  # the code and the message of the first
    reports: int = 0
    connections: int = 0
    seconds: float = 0.0
    latency: list[float] = field(default_factory=list)  # seconds, of each decision

    def percentile(self, share: float) -> float:
        """Seconds within which so many of the decisions came."""
        return float(np.percentile(self.latency, 100 * share)) if self.latency else 0.0


class OutcomeTotals(NamedTuple):
    """All that a service has ever heard of what came of decisions."""

    number: int
    total: float  # of the rewards


def fetch_outcomes(url: str, token: str | None = None) -> OutcomeTotals | None:
    """Ask a service at its address for games; None where it does not say."""
    parts = urlsplit(url)
    scheme, path = {"ws": "http", "wss": "https"}.get(parts.scheme, ""), parts.path.removesuffix("ws")
    if not scheme:
        return None
    where = urlunsplit((scheme, parts.netloc, f"{path}api/decide/stats", "", ""))
    token = token or parse_qs(parts.query).get("token", [None])[0]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(urllib.request.Request(where, headers=headers), timeout=GREETING) as answer:
            told = json.loads(answer.read())["decisions"]
            return OutcomeTotals(int(told["outcomes"]), int(told["outcomes"]) * float(told["mean_actual"] or 0.0))
    except (OSError, ValueError, KeyError):
        return None


async def simulate(
    url: str,
    games: Sequence[SimulatedGame],
    observations: int,
    *,
    token: str | None = None,
    trouble: NetworkFaults | None = None,
    seed: int = 0,
    pause: float = 0.0,
    told: Callable[[SimulationResult], None] | None = None,
    territories: Sequence[str] = (),
) -> SimulationResult:
    """Every game asks so many times, over a connection of its own, all of them side by side.

    `territories` are names for the games instead of their own, for a service that has heard of those already.
    """
    await _greet(url, token)
    score, begun = SimulationResult(), time.monotonic()
    players = [
        _Player(url, game, token, trouble or NetworkFaults(), Streams(seed).numpy(f"trouble of {place}"), score, name)
        for place, (game, name) in enumerate(zip(games, territories or [""] * len(games), strict=True))
    ]
    playing = [asyncio.create_task(player.play(observations, pause, told)) for player in players]
    try:
        await asyncio.gather(*playing)
    except NoAnswer as error:
        fix = "see whether the service still runs and what it printed; what it acknowledged is not lost"
        raise TownletError(str(error), fix) from error
    finally:  # nobody plays on when one has given up
        for one in playing:
            one.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
    score.seconds = time.monotonic() - begun
    return score


async def _greet(url: str, token: str | None) -> None:
    """See that somebody is there, before games wait for him."""
    async with Client(url, token, GREETING) as client:
        try:
            await client.say({"type": "ping"})
        except NoAnswer as error:
            if client.connections:
                raise TownletError(
                    str(error), "see what the service printed, and how many games play with it"
                ) from error
            fix = "start one with `townlet decide serve`, name its address with --url, and its token if it asks for one"
            raise TownletError(
                str(error) if client.refused else f"no service answers at {url.partition('?')[0]}", fix
            ) from error


class _Player:
    """One game and its connection."""

    def __init__(
        self,
        url: str,
        game: SimulatedGame,
        token: str | None,
        trouble: NetworkFaults,
        rng: np.random.Generator,
        score: SimulationResult,
        name: str,
    ) -> None:
        self._url, self._game, self._token = url, game, token
        self._named = {TERRITORY: name} if name else {}
        self._client = sha256((name or secrets.token_hex(8)).encode()).hexdigest()[:16]  # the same after a reconnect
        self._trouble, self._rng, self._score = trouble, rng, score
        self._held: list[dict[str, Any]] = []  # reports that come after later ones

    async def play(self, observations: int, pause: float, told: Callable[[SimulationResult], None] | None) -> None:
        left = observations
        while left:
            async with Client(self._url, self._token, PATIENCE, self._client) as client:
                self._score.connections += 1
                while left:
                    await self._turn(client)
                    left -= 1
                    if told:
                        told(self._score)
                    await asyncio.sleep(pause)
                    if self._happens(self._trouble.reconnects):
                        break

    async def _turn(self, client: Client) -> None:
        """See, ask, do, tell, and go on."""
        message, begun = self._game.observe() | self._named, time.perf_counter()
        if self._happens(self._trouble.duplicates):
            _, reply = await asyncio.gather(client.say(message), client.say(message))
        else:
            reply = await client.say(message)
        self._score.latency.append(time.perf_counter() - begun)
        self._score.observations += 1
        reports = self._game.apply(reply)
        refused, waits = reply["type"] == "error", "reason" in reply
        self._score.refused += refused
        if refused and not self._score.refusal:
            self._score.refusal = f"{reply['code']}: {reply['message']}"
        self._score.waited += waits
        self._score.sent += not (refused or waits)
        await self._report(client, [*reports, *self._game.advance()])

    async def _report(self, client: Client, reports: Sequence[dict[str, Any]]) -> None:
        late, self._held = self._held, []
        for report in reports:
            if self._happens(self._trouble.losses):
                continue
            if self._happens(self._trouble.reordering):
                self._held.append(report)
                continue
            late.append(report)
            if self._happens(self._trouble.duplicates):
                late.append(report)
        for report in late:
            await client.say(report)
            self._score.reports += 1

    def _happens(self, chance: float) -> bool:
        return chance > 0 and bool(self._rng.random() < chance)
