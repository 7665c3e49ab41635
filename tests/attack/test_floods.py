"""Floods on one server: health, the operator and other games are answered within a second meanwhile."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from attack.probes import flooded, resident
from decide.served import Process
from pace import slower

MARK = 1.0  # second, the 99th percentile
BUDGET = 2048  # megabytes of a whole service, as the documentation states
SHORT = 4.0  # seconds

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    running = Process(tmp_path_factory.mktemp("service"), "bandit-ads", "learning.every=0.5").start().wait()
    yield running
    assert running.end(signal.SIGTERM) in (0, 130, -signal.SIGTERM)


def check(found: dict[str, float], server: Process) -> None:
    mark = MARK * slower(time.monotonic)
    assert all(p99 < mark for p99 in found.values()), found
    assert resident(server) < BUDGET


def long(count: int, minutes: float = 1) -> object:
    return pytest.param(count, marks=pytest.mark.long(minutes=minutes))


@pytest.mark.parametrize("count", [1, long(20)])
def test_empty_continuation_frames_do_not_stop_other_connections(server: Process, count: int) -> None:
    found, seen = asyncio.run(flooded(server, "continuations", server.url, count, SHORT))
    check(found, server)
    assert seen["close 1009 a message may have 64 frames"] > 0


@pytest.mark.parametrize("kind", ["pings", pytest.param("pongs", marks=pytest.mark.long(minutes=1))])
def test_floods_of_control_frames_end_the_connection(server: Process, kind: str) -> None:
    found, seen = asyncio.run(flooded(server, kind, server.url, 2, SHORT))
    check(found, server)
    assert seen["close 1008 more than 16 pings or pongs a second"] > 0


@pytest.mark.parametrize("count", [4, long(50)])
def test_floods_of_tiny_messages_delay_their_sender_only(server: Process, count: int) -> None:
    found, seen = asyncio.run(flooded(server, "messages", server.url, count, SHORT))
    check(found, server)
    assert seen["101"] == seen["opened"]  # no rule is broken: each waits for its answers


@pytest.mark.parametrize(
    ("count", "seconds"), [(300, 13.0), pytest.param(5000, 40.0, marks=pytest.mark.long(minutes=1))]
)
def test_slow_headers_are_dropped_after_ten_seconds(server: Process, count: int, seconds: float) -> None:
    before = resident(server)
    found, seen = asyncio.run(flooded(server, "headers", server.url, count, seconds))
    check(found, server)
    assert resident(server) < before + 100
    assert seen["408"] + seen["broken"] >= 0.9 * count


@pytest.mark.parametrize(
    ("count", "seconds"), [(400, 5.0), pytest.param(3000, 20.0, marks=pytest.mark.long(minutes=1))]
)
def test_statistics_sockets_are_capped_and_cheap(server: Process, count: int, seconds: float) -> None:
    url = server.stats_url
    found, seen = asyncio.run(flooded(server, "sockets", url, count, seconds))
    check(found, server)
    assert seen["close 1013 too many dashboards are open; this page tries again later"] >= count - 256
