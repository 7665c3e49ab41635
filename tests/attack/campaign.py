"""A campaign: eight clients play with one service under faults and record their history."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from attack.history import History, read_log
from attack.nemesis import KINDS, Nemesis
from attack.recorder import PATIENCE, MinimalConnection, Player, TownletConnection
from crash.shim import Shim, missing
from decide.service_process import Process
from townlet.decide.client import Client
from townlet.decide.domains import DOMAINS

CLIENTS = 8
WORDS = ("learning.interval=0.2", "learning.samples_per_insert=100")
QUIET = 1.0  # seconds of play after the last fault


class Result(NamedTuple):
    """A recorded history, and the faults."""

    history: History
    faults: Counter[str]
    problems: list[str]


def run(folder: Path, domain: str, kinds: Iterable[str], seed: int) -> Result:
    """Play until all faults of `kinds` were injected, stop the service, and read its log.

    Without a C compiler there is no shim, and only faults that need none are injected.
    """
    chance, history = random.Random(seed), History()
    shim = None if missing() else Shim(folder, folder.with_name(f"{folder.name}-shim"))
    with patch.dict(os.environ, shim.env() if shim else {}):
        server = Process(folder, domain, *WORDS).start()
        nemesis = Nemesis(server, shim, history, chance)
        try:
            server.wait()
            possible = (kind for kind in kinds if kind in nemesis.kinds)
            asyncio.run(_play(server, domain, history, nemesis, possible, chance))
            history.counts = server.get("/api/decide/stats")["buffer"]
        finally:
            server.end(signal.SIGTERM)
    if shim and nemesis.done["full"]:
        assert nemesis.refused, "no write was refused by the full disk"
    history.log = list(read_log(folder))
    return Result(history, nemesis.done, nemesis.problems)


async def _play(
    server: Process, domain: str, history: History, nemesis: Nemesis, kinds: Iterable[str], chance: random.Random
) -> None:
    stop = asyncio.Event()
    players = [_player(server, domain, number, history, chance) for number in range(CLIENTS)]
    tasks = [asyncio.create_task(player.play(stop.is_set)) for player in players]
    try:
        for kind in kinds:
            await nemesis.disturb(kind)
        await asyncio.sleep(QUIET)
        stop.set()
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _player(server: Process, domain: str, number: int, history: History, chance: random.Random) -> Player:
    """Every other client is Townlet's own."""
    own, game = random.Random(chance.random()), DOMAINS[domain].make_game(number, f"site {number}", 0)
    shipped = TownletConnection(Client(server.url, timeout=PATIENCE))
    plain = MinimalConnection(f"{server.url}&client=plain-{number}", own)
    return Player(number, plain if number % 2 else shipped, game, history, own)


def lasting(seconds: float, seed: int) -> Iterator[str]:
    """Random faults for `seconds`."""
    until, chance = time.monotonic() + seconds, random.Random(seed)
    while time.monotonic() < until:
        yield chance.choice(KINDS)
