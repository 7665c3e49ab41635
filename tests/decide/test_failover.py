"""The primary server is killed and its synchronous standby promoted: games go on, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from decide.postgres_cluster import Cluster
from decide.test_kill import Acknowledged, play
from decide.test_shared_database import check, check_replay, epochs_overlap, serving

GAMES = 4
LIMIT = 5.0  # seconds after the promotion until every game has a new decision


async def until_all_decide(games: Sequence[Acknowledged], more: int, patience: float) -> float:
    """Wait until every game has this many more decisions; returns after how many seconds."""
    before, begun = [len(game.decided) for game in games], time.monotonic()
    while any(len(game.decided) < count + more for game, count in zip(games, before, strict=True)):
        assert time.monotonic() < begun + patience, "the games do not go on"
        await asyncio.sleep(0.02)
    return time.monotonic() - begun


async def fail_over(servers: list[Cluster], deciders: list[str], games: Sequence[Acknowledged], times: int) -> None:
    """Kill the primary and promote the standby, repeatedly: a new standby then takes the place of the killed server."""
    players = [asyncio.create_task(play(deciders[n % len(deciders)], n, game)) for n, game in enumerate(games)]
    try:
        for number in range(times):
            await until_all_decide(games, 5, 120)
            primary, standby = servers
            await asyncio.to_thread(primary.kill)
            await asyncio.to_thread(standby.promote)
            seconds = await until_all_decide(games, 1, 60)
            assert seconds < LIMIT
            if number + 1 < times:
                follower = Cluster(primary.folder.with_name(f"{primary.folder.name}-{number}"), primary.port)
                servers[:] = standby, await asyncio.to_thread(follower.follow, standby)
        await until_all_decide(games, 5, 120)
    finally:
        for game in games:
            game.over = True
        for player in players:
            with suppress(asyncio.CancelledError):
                await player


def lose_the_primary(cluster_folder: Path, tmp_path: Path, roles: list[str], times: int) -> None:
    primary = Cluster(cluster_folder / f"primary-{times}").create().start().wait()
    servers = [primary]
    try:
        name = primary.make_database("ads").rpartition("/")[2]
        servers.append(Cluster(cluster_folder / f"standby-{times}").follow(primary))
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        url = f"postgresql://postgres@{hosts}/{name}?target_session_attrs=read-write"
        games = [Acknowledged() for _ in range(GAMES)]
        with serving(url, tmp_path, roles) as processes:
            deciders = [process.url for process in processes if "learn" not in process.settings]
            asyncio.run(fail_over(servers, deciders, games, times))
        together = Acknowledged()
        for game in games:
            together.decided |= game.decided
            together.reported |= game.reported
        check(url, together)
        assert epochs_overlap(url) == []
        assert check_replay(url) > 0
    finally:
        for server in servers:
            server.stop()


def test_failover_to_a_synchronous_standby(cluster_folder: Path, tmp_path: Path) -> None:
    lose_the_primary(cluster_folder, tmp_path, ["decide", "learn"], times=1)


@pytest.mark.long(minutes=3)
def test_six_failovers(cluster_folder: Path, tmp_path: Path) -> None:
    lose_the_primary(cluster_folder, tmp_path, ["decide", "decide", "learn", "learn"], times=6)
