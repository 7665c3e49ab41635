"""`kill -9` of a real service under load: nothing acknowledged is lost or counted twice."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from decide.both_storages import replay_folder
from decide.service_process import Process
from townlet.decide.client import Client
from townlet.decide.domains import DOMAINS
from townlet.decide.events import DecisionMade, OutcomeRecorded
from townlet.decide.recovery import read_events
from townlet.decide.storage import LOG

GAMES = 4
WORDS = ("learning.interval=0.05", "learning.samples_per_insert=100", "versions=50")


class Acknowledged:
    """What the service has acknowledged."""

    def __init__(self) -> None:
        self.decided: dict[str, dict[str, Any]] = {}
        self.reported: dict[str, bool] = {}
        self.over = False


async def ask(client: Client, message: dict[str, Any]) -> dict[str, Any]:
    """The reply to a message, which is sent again while nothing can be stored."""
    while (reply := await client.request(message)).get("code") == "STORAGE_UNAVAILABLE":
        await asyncio.sleep(0.5)
    return reply


async def play(url: str, place: int, acknowledged: Acknowledged) -> None:
    site = DOMAINS["bandit-ads"].make_game(place, f"site {place}", 0)
    async with Client(url, timeout=120) as client:
        while not acknowledged.over:
            reply = await ask(client, site.observe())
            assert reply["type"] in ("ad_decision", "no_ad"), reply
            assert acknowledged.decided.setdefault(reply["decisionId"], reply) is reply, "an id was given twice"
            for report in site.apply(reply) + site.advance():
                answer = await ask(client, report)
                assert answer["type"] == "outcome_ack", answer
                acknowledged.reported[report["decisionId"]] = report["clicked"]


async def kill_and_restart(server: Process, kills: int, acknowledged: Acknowledged, rng: random.Random) -> None:
    players = [asyncio.create_task(play(server.url, place, acknowledged)) for place in range(GAMES)]
    for _ in range(kills):
        await asyncio.sleep(rng.uniform(0.2, 1.5))
        await asyncio.to_thread(server.end)
        server.start()
        await asyncio.to_thread(server.wait)
    await asyncio.sleep(1.0)
    acknowledged.over = True
    await asyncio.gather(*players)


def check(server: Process, acknowledged: Acknowledged) -> None:
    found = list(read_events(server.folder / LOG))
    decided = {event.reply["decisionId"]: event for event in found if isinstance(event, DecisionMade)}
    assert len(decided) == sum(isinstance(event, DecisionMade) for event in found)
    # Nothing acknowledged is lost. Further records were never acknowledged.
    for id, reply in acknowledged.decided.items():
        assert decided[id].reply == reply
    outcomes = Counter(event.number for event in found if isinstance(event, OutcomeRecorded))
    assert all(decided[id].number in outcomes for id in acknowledged.reported)
    stats = server.get("/api/decide/stats")["buffer"]
    parts = ("joined", "expired", "pending", "not_executed")
    assert stats["decisions"] == len(decided) == sum(stats[name] for name in parts)
    # A report that was resent because its acknowledgement was lost is in the log once.
    assert stats["joined"] == len(outcomes) == outcomes.total()
    assert stats["unknown"] == stats["late"] == stats["contradicting"] == 0


def training(tmp_path: Path, kills: int, seed: int) -> None:
    server, acknowledged = Process(tmp_path, "bandit-ads", *WORDS).start().wait(), Acknowledged()
    try:
        asyncio.run(kill_and_restart(server, kills, acknowledged, random.Random(seed)))
        check(server, acknowledged)
    finally:
        server.end(signal.SIGTERM)
    versions = list(replay_folder(tmp_path))
    assert len(versions) > kills
    assert all(version.same for version in versions)


def test_service_killed_under_load_loses_nothing(tmp_path: Path) -> None:
    training(tmp_path, 2, 1)


@pytest.mark.long(minutes=12)
def test_service_killed_a_hundred_times_loses_nothing(tmp_path: Path) -> None:
    training(tmp_path, 100, 2)
