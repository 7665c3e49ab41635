"""WebSocket connections: invalid messages, unknown origins, floods, and normal games."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from decide.ads_service import click, request
from decide.service_process import OPERATOR, VIEWER, Process
from townlet.decide.client import Client
from townlet.decide.domains import DOMAINS
from townlet.decide.simulate import NetworkFaults, simulate
from townlet.errors import TownletError

GAME = "http://play.example:5173"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("service")
    running = Process(folder, "bandit-ads", "learning.interval=0.2", "--origin", GAME).start().wait()
    yield running
    assert running.end(signal.SIGTERM) in (0, 130, -signal.SIGTERM)


async def said(url: str, *frames: str | bytes, **options: Any) -> list[dict[str, Any]]:
    async with connect(url, proxy=None, **options) as socket:
        for frame in frames:
            await socket.send(frame)
        return [json.loads(await asyncio.wait_for(socket.recv(), 20)) for _ in frames]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("", "INVALID_JSON"),
        ("{", "INVALID_JSON"),
        ("[" * 50_000, "INVALID_JSON"),
        ('{"type": "ping", "x": NaN}', "INVALID_JSON"),
        ("3", "INVALID_MESSAGE"),
        (b"\xff\x00", "INVALID_MESSAGE"),
        (b'{"type": "ping"}', "INVALID_MESSAGE"),
        ("[]", "INVALID_MESSAGE"),
        ("{}", "UNKNOWN_TYPE"),
        ('{"type": ["ping"]}', "UNKNOWN_TYPE"),
        ('{"type": "pong"}', "UNKNOWN_TYPE"),
        ('{"type": "ad_request"}', "INVALID_OBSERVATION"),
        (json.dumps(request(1.0, "odd", more=1)), "INVALID_OBSERVATION"),
        (json.dumps(request(1e300, "odd")), "INVALID_OBSERVATION"),
        ('{"type": "click_report", "decisionId": 3, "clicked": true}', "INVALID_REPORT"),
        (json.dumps(click("unknown-1")), "UNKNOWN_DECISION"),
    ],
)
def test_invalid_message_gets_an_error_code_and_the_connection_stays_open(
    server: Process, frame: str | bytes, code: str
) -> None:
    wrong, pong = asyncio.run(said(server.url, frame, '{"type": "ping"}'))
    assert wrong["type"] == "error"
    assert wrong["code"] == code
    assert 0 < len(wrong["message"]) < 400
    assert pong == {"type": "pong"}


def test_oversized_message_closes_its_connection_only(server: Process) -> None:
    with pytest.raises((ConnectionClosed, TimeoutError)):
        asyncio.run(said(server.url, "x" * 200_000))
    assert asyncio.run(said(server.url, '{"type": "ping"}')) == [{"type": "pong"}]


def test_unknown_origins_are_refused_and_listed_ones_accepted(server: Process) -> None:
    with pytest.raises(InvalidStatus):
        asyncio.run(said(server.url, '{"type": "ping"}', origin="http://evil.example"))
    for origin in (None, GAME, f"http://127.0.0.1:{server.port}"):
        assert asyncio.run(said(server.url, '{"type": "ping"}', origin=origin)) == [{"type": "pong"}]


def test_a_page_of_an_allowed_origin_plays_but_reads_no_dashboard_and_operates_nothing(server: Process) -> None:
    """The browser sends the operator's cookie with it: ports do not count for SameSite."""
    cookie = {"Cookie": f"townlet_token_{server.port}={OPERATOR}"}
    with pytest.raises(InvalidStatus) as refused:
        asyncio.run(said(server.address + "/stats", "", origin=GAME, additional_headers=cookie))
    assert refused.value.response.status_code == 403

    def status(method: str, path: str, origin: str) -> int:
        headers = {"Origin": origin, "Content-Type": "application/json", **cookie}
        body = b"{}" if method == "POST" else None
        try:
            request = urllib.request.Request(f"{server.origin}{path}", body, headers, method=method)
            with urllib.request.urlopen(request, timeout=20) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    for method, path in (
        ("GET", "/"),
        ("GET", "/metrics"),
        ("GET", "/api/decide/stats"),
        ("POST", "/api/decide/unpin"),
    ):
        assert (status(method, path, GAME), status(method, path, server.origin)) == (403, 200)


def test_answers_come_in_the_order_of_messages(server: Process) -> None:
    frames = [json.dumps(request(float(n), "ordered")) if n % 2 else '{"type": "ping"}' for n in range(60)]
    found = [reply["type"] for reply in asyncio.run(said(server.url, *frames))]
    assert found[0::2] == ["pong"] * 30
    assert set(found[1::2]) <= {"ad_decision", "no_ad"}


def test_faulty_games_keep_counts_balanced(server: Process) -> None:
    games = [DOMAINS["bandit-ads"].make_game(seed, f"bad {seed}", 0) for seed in range(6)]
    trouble = NetworkFaults(duplicates=0.1, reordering=0.1, losses=0.05, reconnects=0.05)
    stop = asyncio.Event()
    seen: list[dict[str, int]] = []

    async def watch() -> None:
        while not stop.is_set():
            seen.append((await asyncio.to_thread(server.get, "/api/decide/stats"))["buffer"])
            await asyncio.sleep(0.02)

    async def play() -> None:
        watching = asyncio.create_task(watch())
        score = await simulate(server.url, games, 60, faults=trouble)
        stop.set()
        await watching
        assert score.observations == 360
        assert score.connections > 6
        assert score.refused == 0

    asyncio.run(play())
    assert len(seen) > 5
    for counts in seen:
        parts = ("joined", "expired", "pending", "not_executed")
        assert counts["decisions"] == sum(counts[name] for name in parts)
    assert seen[-1]["duplicates"] > 0
    assert seen[-1]["joined"] > seen[0]["joined"]


def test_simulation_without_a_service_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.decide.simulate.PING_TIMEOUT", 0.5)
    with pytest.raises(TownletError, match=r"no service answers at ws://127.0.0.1:1/ws; start one"):
        asyncio.run(simulate("ws://127.0.0.1:1/ws", [], 1))


def test_http_endpoints_describe_the_service(server: Process) -> None:
    assert server.get("/health") == {"ok": True, "problem": None}
    assert server.get("/api/decide/versions")["serving"] >= 1
    assert "ad_request" in server.get("/api/decide/schema")
    assert "/api/decide/pin" in server.get("/openapi.json")["paths"]
    metrics = urllib.request.Request(f"{server.origin}/metrics", headers={"Authorization": f"Bearer {VIEWER}"})
    with urllib.request.urlopen(metrics, timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    assert "# TYPE townlet_decide_decisions_total counter" in lines
    assert all(line.startswith(("# HELP townlet_decide_", "# TYPE townlet_decide_", "townlet_")) for line in lines)


def test_operator_can_pin_and_switch_to_gate_only(server: Process) -> None:
    def version_of(time: float) -> int:
        reply = asyncio.run(said(server.url, json.dumps(request(time, "operated"))))[0]
        return int(reply["modelVersion"])

    serving = server.get("/api/decide/versions")["serving"]
    server.post("/api/decide/pin", version=serving)
    assert version_of(1.0) == serving
    with pytest.raises(urllib.error.HTTPError, match="422"):
        server.post("/api/decide/rollback")  # while it is pinned
    server.post("/api/decide/gate-only", on=True)
    assert version_of(2.0) == 0
    server.post("/api/decide/gate-only", on=False)
    server.post("/api/decide/unpin")
    assert version_of(3.0) >= 1
    with pytest.raises(urllib.error.HTTPError, match="422"):
        server.post("/api/decide/pin", version=10**9)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "\ud800", {"\ud800": [float("-inf")]}, "x" * 501])
@pytest.mark.parametrize("field", ["reason", "version", "\udfff"])
def test_values_that_json_cannot_hold_are_refused_in_operator_actions(server: Process, field: str, value: Any) -> None:
    before = server.get("/api/decide/versions")
    with pytest.raises(urllib.error.HTTPError, match="422") as refused:
        server.post("/api/decide/pin", **{"version": 1, field: value})
    assert refused.value.read().startswith(b'{"error":"body')
    assert server.get("/api/decide/versions")["pinned"] == before["pinned"]


async def flood(url: str, frames: int, seed: int) -> None:
    """Random invalid frames, a thousand per connection."""
    rng, left = random.Random(seed), frames
    pieces = [
        '{"type":',
        '"ad_request"',
        '"click_report"',
        "[",
        "]",
        "}",
        ",",
        "1e999",
        "null",
        "\\u0000",
        '"',
        "é",
        "7",
    ]
    while left > 0:
        async with Client(url) as client:
            for _ in range(min(left, 1000) // 20):
                odd = [
                    {
                        "type": rng.choice(["ad_request", "click_report", "ping", ""]),
                        rng.choice(pieces): rng.choice(pieces),
                    }
                    for _ in range(20)
                ]
                replies = await asyncio.gather(*(client.request(message) for message in odd))
                assert {reply["type"] for reply in replies} <= {"error", "pong"}
        texts = ["".join(rng.choices(pieces, k=rng.randrange(1, 40))) for _ in range(20)]
        assert len(await said(url, *texts)) == 20
        left -= 1000


def resident(process: Process) -> int:
    assert process.process is not None
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


@pytest.mark.parametrize("frames", [2000, pytest.param(100_000, marks=pytest.mark.long(minutes=4))])
def test_fuzzed_frames_neither_crash_nor_leak(server: Process, frames: int) -> None:
    asyncio.run(flood(server.url, 1000, 0))
    before = resident(server)
    asyncio.run(flood(server.url, frames, 1))
    assert resident(server) < before + 40_000  # KiB
    assert asyncio.run(said(server.url, '{"type": "ping"}')) == [{"type": "pong"}]


def test_full_disk_stops_learning_but_not_deciding(tmp_path: Path) -> None:
    server = Process(tmp_path, "bandit-ads", "learning.interval=0.2").start().wait()
    assert server.process is not None
    pid = server.process.pid

    async def play() -> None:
        async with Client(server.url, timeout=20) as client:
            kept = await client.request(request(1.0))
            unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            found = [await client.request(request(2.0 + turn)) for turn in range(3)]
            assert {reply["type"] for reply in found} <= {"ad_decision", "no_ad"}
            assert {reply["decisionId"].split("-")[1] for reply in found} == {"0"}
            useless = await client.request(click(found[-1]["decisionId"]))
            assert useless["code"] == "UNLOGGED_DECISION"
            refused = await client.request(click(kept["decisionId"]))
            assert refused["code"] == "LOG_STOPPED"
            stats = await asyncio.to_thread(server.get, "/api/decide/stats")
            assert "may not grow" in stats["service"]["problem"]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
            for turn in range(200):
                later = await client.request(request(100.0 + turn))
                if later["decisionId"].split("-")[1] != "0":
                    break
                await asyncio.sleep(0.1)
            assert (await client.request(click(kept["decisionId"])))["type"] == "outcome_ack"
            assert (await client.request(click(later["decisionId"])))["type"] == "outcome_ack"

    try:
        asyncio.run(play())
        counts = server.get("/api/decide/stats")["buffer"]
        assert counts["joined"] == 2
        assert counts["decisions"] == sum(counts[name] for name in ("joined", "expired", "pending", "not_executed"))
    finally:
        server.end(signal.SIGTERM)
