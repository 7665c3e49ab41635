"""Floods on one server: meanwhile health checks, the operator and other games are answered within a second."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import warm
from attack.flooder import largest
from attack.probes import during, flooded, resident
from decide.service_process import Process, free_port
from time_limit import slowdown

MARK = 1.0  # second, the 99th percentile
BUDGET = 2048  # megabytes of a service, as documented
SHORT = 4.0  # seconds
CAP = 256  # dashboards

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    running = Process(tmp_path_factory.mktemp("service"), "bandit-ads", "learning.interval=0.5").start().wait()
    yield running
    assert running.end(signal.SIGTERM) in (0, 130, -signal.SIGTERM)


def check(found: dict[str, float], server: Process) -> None:
    mark = MARK * slowdown(time.monotonic)
    assert all(p99 < mark for p99 in found.values()), found
    assert resident(server) < BUDGET


def long(count: int, minutes: float = 1) -> object:
    return pytest.param(count, marks=pytest.mark.long(minutes=minutes))


@pytest.mark.parametrize("count", [1, long(20)])
def test_empty_continuation_frames_do_not_stop_other_connections(server: Process, count: int) -> None:
    found, seen = asyncio.run(flooded(server, "continuations", server.url, count, SHORT))
    check(found, server)
    assert seen["close 1009 a message may have at most 64 frames"] > 0


@pytest.mark.parametrize("kind", ["pings", pytest.param("pongs", marks=pytest.mark.long(minutes=1))])
def test_floods_of_control_frames_end_the_connection(server: Process, kind: str) -> None:
    found, seen = asyncio.run(flooded(server, kind, server.url, 2, SHORT))
    check(found, server)
    assert seen["close 1008 more than 16 pings or pongs per second"] > 0


@pytest.mark.parametrize("count", [4, long(50)])
def test_floods_of_tiny_messages_delay_their_sender_only(server: Process, count: int) -> None:
    found, seen = asyncio.run(flooded(server, "messages", server.url, count, SHORT))
    check(found, server)
    assert seen["101"] == seen["opened"]  # no connection is refused: each waits for its answers


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
    refused = seen["close 1013 too many dashboards are open; retrying"]
    assert refused >= count - CAP
    assert seen["101"] - refused <= CAP + 32  # some closures are still on their way when the flood ends


@pytest.mark.long(minutes=1)
@pytest.mark.parametrize("seconds", [6.0, 60.0])
def test_largest_observations_of_new_territories_take_little_memory(tmp_path: Path, seconds: float) -> None:
    server = Process(tmp_path, "hive", "learning.interval=0.5").start().wait()
    try:
        before = resident(server)
        found, seen = asyncio.run(flooded(server, "observations", server.url, 4, seconds, small))
        check(found, server)
        answered = seen["observation_ack"] + seen["spawn_decision"]
        grown = resident(server) - before
        print(f"{answered} territories, {1000 * grown / answered:.0f} KB each")
        assert answered > 100
        assert grown < 60 + 0.02 * answered  # megabytes; 256 KB each before the limits
    finally:
        server.end(signal.SIGTERM)


def small(timestamp: float, territory: str) -> dict[str, object]:
    units = ("miningWorkers", "workersPresent", "protectors", "parasitesStart", "parasitesEnd")
    return largest(timestamp, territory) | {name: [] for name in units}


def test_empty_continuation_frames_do_not_stop_the_live_server(tmp_path: Path) -> None:
    port = free_port()
    words = ["live", "--root", str(tmp_path), "--port", str(port), "--no-token"]
    server = warm.Popen([sys.executable, "-m", "townlet", *words], stdout=subprocess.DEVNULL)

    def health() -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as answer:
            return bytes(answer.read())

    async def flood() -> None:
        url = f"ws://127.0.0.1:{port}/ws"
        found, seen = await during("continuations", url, 2, SHORT, {"health": lambda: asyncio.to_thread(health)})
        assert found["health"] < MARK * slowdown(time.monotonic)
        assert seen["close 1009 a message may have at most 64 frames"] > 0

    try:
        for _ in range(600):
            with suppress(OSError):
                health()
                break
            time.sleep(0.1)
        asyncio.run(flood())
    finally:
        server.terminate()
        server.wait(20)
