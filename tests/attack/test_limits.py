"""Behavior at limits: below them requests work, beyond them they are refused with a reason."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

import townlet
import warm
from attack.flooder import largest
from attack.probes import descriptors, flooded
from attack.test_identity import ANN, ONE, TWO, Guarded
from decide.ads_service import ask, request, start_service
from decide.both_storages import replay_folder
from decide.service_process import Process
from time_limit import slowdown
from townlet import allocation
from townlet.allocation import memory_error, reserve
from townlet.buffers.storage import FLOAT, CircularStorage
from townlet.decide.batcher import Batcher
from townlet.decide.client import Client
from townlet.decide.domains import DOMAINS
from townlet.decide.events import DecisionMade
from townlet.decide.settings import MemorySettings, load_settings, settings_hash
from townlet.decide.state import ServiceState
from townlet.decide.territories import max_pending, max_territories, owner_id
from townlet.errors import TownletError
from townlet.live.app import make_app
from townlet.live.hub import Hub
from townlet.nets.layers import MLP
from townlet.town.engines.engine import make_engine
from townlet.town.world.load import load as load_world
from townlet.web import protocols
from townlet.web.limits import ConnectionLimiter, allocate_descriptors
from townlet.web.protocols import CONTROL_BURST, MAX_FRAMES
from townlet.web.server import Server

FEW = 256  # descriptors
SMALL: dict[str, list[int]] = {
    name: [] for name in ("miningWorkers", "workersPresent", "protectors", "parasitesStart", "parasitesEnd")
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A service that may open few files."""
    running = Process(tmp_path_factory.mktemp("service"), "bandit-ads", "learning.interval=0.2").start()
    assert running.process is not None
    resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (FEW // 2, FEW))  # it raises the soft limit
    yield running.wait()
    assert running.end(signal.SIGTERM) in (0, 130, -signal.SIGTERM)


def test_games_beyond_the_descriptors_are_refused_with_1013_and_an_alarm(server: Process) -> None:
    found, seen = asyncio.run(flooded(server, "sockets", server.url, 300, 6.0))
    assert seen["close 1013 too many games are connected"] > 0
    assert all(p99 < slowdown(time.monotonic) for p99 in found.values()), found  # seconds
    stats = server.get("/api/decide/stats")
    alarm = next(alarm for alarm in stats["alarms"] if alarm["name"] == "connections")
    assert f"It is set by file descriptors: this process may open {FEW} files" in alarm["what"]
    assert "ulimit -n" in alarm["fix"]
    assert stats["training"]["running"]
    assert stats["service"]["problem"] == ""


@pytest.mark.parametrize(
    ("files", "count"), [(FEW, 150), pytest.param(20_000, 4300, marks=pytest.mark.long(minutes=1))]
)
def test_one_game_token_cannot_lock_out_the_games_of_another(tmp_path: Path, files: int, count: int) -> None:
    """The token of a web page is public; its connections are idle, but answer pings."""
    server = Guarded(tmp_path / "ads", "learning.interval=3600").start()
    assert server.process is not None
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (files // 2, files))
    server.wait()

    async def attack() -> list[str]:
        async with AsyncExitStack() as stack:
            for _ in range(count):
                await stack.enter_async_context(connect(f"{server.address}?token={ONE}", proxy=None))
            stats = await asyncio.to_thread(server.ask, "GET", "/api/decide/stats", ANN)
            assert json.loads(stats[1])["service"]["games"] < count
            async with Client(server.address, TWO, timeout=10) as one, Client(server.address, TWO, timeout=10) as two:
                return [(await client.request(request(1.0, f"{client}")))["type"] for client in (one, two)]

    try:
        assert asyncio.run(attack()) == ["ad_decision", "ad_decision"]
    finally:
        server.end(signal.SIGTERM)


def test_slow_connections_beyond_the_descriptors_leave_some_for_others(server: Process) -> None:
    _, seen = asyncio.run(flooded(server, "headers", server.url, 400, 4.0))
    assert seen["opened"] > 400
    assert descriptors(server) < FEW - 32
    assert server.get("/health")["ok"]


def test_a_message_of_64_frames_is_read_and_one_of_65_is_not(server: Process) -> None:
    async def send(frames: int) -> dict[str, Any]:
        async with connect(server.url, proxy=None) as socket:
            await socket.send(pieces('{"type": "ping"}', frames))
            found: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), 20))
            return found

    # The client ends each message with an additional empty frame.
    assert asyncio.run(send(MAX_FRAMES - 1)) == {"type": "pong"}
    with pytest.raises(ConnectionClosed, match=rf"1009.*a message may have at most {MAX_FRAMES} frames"):
        asyncio.run(send(MAX_FRAMES))


def pieces(text: str, count: int) -> list[str]:
    """A JSON text split into `count` parts, most of them blank."""
    return [text[0], *[" "] * (count - 2), text[1:]]


def test_64_pings_at_once_are_answered_and_many_more_are_not(server: Process) -> None:
    async def ping(times: int) -> None:
        async with connect(server.url, proxy=None) as socket:
            waiting = [await socket.ping(str(number)) for number in range(times)]
            await asyncio.wait_for(asyncio.gather(*waiting), 20)

    asyncio.run(ping(CONTROL_BURST))
    with pytest.raises(ConnectionClosed, match=r"1008.*pings or pongs per second"):
        asyncio.run(ping(10 * CONTROL_BURST))


def test_of_incomplete_messages_beyond_their_budget_the_oldest_is_evicted() -> None:
    class Connection:
        evicted = False

        def evict(self) -> None:
            self.evicted = True

    first, second, third = (Connection() for _ in range(3))
    limiter = ConnectionLimiter(max_http=1, max_websockets=1, max_input_bytes=100)
    limiter.set_buffered(first, 60)
    limiter.set_buffered(second, 40)
    assert not first.evicted
    limiter.set_buffered(third, 1)
    assert (first.evicted, second.evicted, third.evicted) == (True, False, False)
    limiter.set_buffered(second, 0)
    limiter.set_buffered(third, 100)
    assert not third.evicted


def test_descriptors_are_divided_and_some_are_reserved() -> None:
    for limit in (FEW, 1024, 4096, 65536):
        found = allocate_descriptors(limit, used=20)
        assert found.backlog + found.http + found.websockets + 20 + 64 <= limit
        assert found.app_websockets > limit // 3


async def answers_more_than_is_read(scope: Any, receive: Any, send: Any) -> None:
    """Both kinds of responses, of a size that the server can hand over to the transport at once."""
    await receive()
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"40000")]})
        await send({"type": "http.response.body", "body": b"x" * 40_000})
    elif scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "x" * (40_000 if "small" in scope["path"] else 400_000)})
        await send({"type": "websocket.close"})


async def reads_a_body(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def test_a_body_that_does_not_arrive_in_time_is_answered_with_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "BODY_SECONDS", 0.5)
    server = Server("127.0.0.1", 0, None, allow_no_origin=True)

    async def post(pause: float) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 20\r\n\r\n".encode())
        answer = asyncio.create_task(reader.readline())
        for _ in range(20):
            writer.write(b"x")
            await asyncio.wait([answer], timeout=pause)
            if answer.done():
                break
        writer.close()
        return await asyncio.wait_for(answer, 10)

    async def attack() -> tuple[bytes, bytes]:
        serving = asyncio.create_task(server.serve(reads_a_body))
        await asyncio.sleep(0.3)
        found = await post(0.001), await post(0.1)
        server.stop()
        await serving
        return found

    in_time, late = asyncio.run(attack())
    assert in_time.startswith(b"HTTP/1.1 200")
    assert late.startswith(b"HTTP/1.1 408")


KEY = "A" * 22 + "=="
UPGRADE = f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}"


@pytest.mark.parametrize(
    ("path", "headers"), [("/", "Connection: close"), ("/", "X-Kept: alive"), ("/small", UPGRADE), ("/large", UPGRADE)]
)
def test_a_client_that_never_reads_the_end_of_a_response_loses_its_connection(
    path: str, headers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "READ_SECONDS", 0.3)
    monkeypatch.setattr(protocols, "HEADER_SECONDS", 0.3)
    server = Server("127.0.0.1", 0, None, allow_no_origin=True)
    server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # accepted connections inherit it

    async def attack() -> None:
        serving = asyncio.create_task(server.serve(answers_more_than_is_read))
        await asyncio.sleep(0.3)
        assert server._server is not None
        connections = server._server.server_state.connections
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.connect(("127.0.0.1", server.port))
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n{headers}\r\n\r\n".encode())
            await asyncio.sleep(0.2)
            assert connections
            async with asyncio.timeout(protocols.CLOSE_SECONDS + 3):
                while connections:
                    await asyncio.sleep(0.1)
        server.stop()
        await serving

    asyncio.run(attack())


@pytest.mark.parametrize("name", sorted(DOMAINS))
def test_no_entry_takes_more_memory_than_its_budget_counts(name: str) -> None:
    """The largest observations, as many answers as are remembered, and all of them pending."""
    domain, settings = DOMAINS[name], load_settings(name, (), DOMAINS)
    gate = settings_hash(settings.gate)
    places, each = (200, 1) if domain.single_observations else (5, 70)

    def held(send: bool) -> int:
        state = ServiceState(domain, settings)
        state.update_settings(settings)
        tracemalloc.start()
        number = 0
        for place in range(places):
            for turn in range(each):
                number += 1
                territory = f"{place} ".ljust(100, "x")
                message = request(turn + 1.0, territory)
                if name == "hive":
                    message = largest(turn + 1.0, territory) | (SMALL if turn < each - 2 else {})
                if name == "rank":
                    features = [{f"feature {k}": k + 0.5 for k in range(18)}]
                    actions = [{"id": f"action {k}", "features": features} for k in range(50)]
                    message = {"type": "rank_request", "eventId": territory, "contextFeatures": [], "actions": actions}
                reply = {"type": "spawn_decision", "decisionId": "d" * 40, "reason": "r" * 60, "version": number}
                observed = domain.parse_observation(message).time
                made = DecisionMade(
                    number, territory, observed, float(number), message, 5, 0.1, 0.2, send, "positive_reward", 0.7,
                    gate, 3, reply, "c" * 40,
                )  # fmt: skip
                state.apply(DecisionMade(*json.loads(json.dumps(made))))
        found, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(state.pending) == send * number
        assert len(state.territories) == places
        return found

    waited, sent = held(False), held(True)
    budget = MemorySettings(territories=10**9, pending=10**9, territory_bytes=10**10, pending_bytes=10**10)
    assert waited / places < 10**10 / max_territories(domain, budget)
    assert (sent - waited) / (places * each) < 10**10 / max_pending(domain, budget)


def test_budgets_in_bytes_expire_the_oldest_and_forget_the_longest_silent(tmp_path: Path) -> None:
    words = ("memory.pending_bytes=1048576", "memory.territory_bytes=1048576", "learning.train_on_wait=true")
    service, training, clock = start_service(tmp_path, words)
    domain, memory = service.domain, service.settings.memory
    most, places = max_pending(domain, memory), max_territories(domain, memory)
    assert 10 < places < 100 < most < 1000
    times = (most + 50) // places + 2
    for turn in range(times):
        for place in range(places):
            ask(service, request(turn + 1.0, f"site {place}"))
            clock.now += 0.001
    ask(service, request(1.0, "one more"))
    assert len(service.storage.state.territories) == places
    assert "site 0" not in service.storage.state.territories
    service.storage.maintain()
    counts = service.storage.state.join.counts
    assert counts.balanced
    assert counts.pending == len(service.storage.state.pending) == most
    training.train_round()
    service.storage.close()
    again, _, _ = start_service(tmp_path, words)
    assert again.storage.state.join.counts == counts
    assert list(again.storage.state.territories) == list(service.storage.state.territories)
    again.storage.close()
    assert all(checked.same for checked in replay_folder(tmp_path))


def test_observations_that_wait_are_bounded_in_bytes(tmp_path: Path) -> None:
    service, _, _ = start_service(tmp_path, ("overload.waiting_bytes=200000",))

    async def play() -> list[str]:
        batcher = Batcher(service)
        asked = [batcher.submit(request(1.0, f"site {place}"), size=60_000) for place in range(4)]
        first = [(await asyncio.wait_for(answer, 20))["type"] for answer in asked]
        return [*first, (await batcher.submit(request(2.0, "site 3"), size=200_000))["type"]]

    found = asyncio.run(play())
    service.storage.close()
    assert "error" not in found[:3]
    assert found[3] == "error"
    assert found[4] != "error"  # the decided observation no longer counts as waiting


def test_a_page_beyond_the_limit_is_closed_with_1013_and_a_reason(tmp_path: Path) -> None:
    async def watch() -> None:
        server = uvicorn.Server(uvicorn.Config(make_app(Hub(tmp_path), viewers=2), port=0, log_level="error"))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.05)
        url = f"ws://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/ws"
        async with connect(url, proxy=None) as first, connect(url, proxy=None) as second:
            for page in (first, second):
                assert json.loads(await page.recv())["type"] == "hello"
            with pytest.raises(ConnectionClosed, match=r"1013.*too many pages are open"):
                async with connect(url, proxy=None) as third:
                    await third.recv()
            async with connect(url, proxy=None, local_addr=("127.0.0.2", 0)) as other:  # one place is its share
                assert json.loads(await other.recv())["type"] == "hello"
                with pytest.raises(ConnectionClosed, match=r"1013.*closed in favor of others"):
                    await first.recv()
        async with connect(url, proxy=None) as fourth:
            assert json.loads(await fourth.recv())["type"] == "hello"
        server.should_exit = True
        await serving

    asyncio.run(watch())


def test_rows_replay_buffers_and_networks_beyond_memory_are_refused_before_they_are_allocated() -> None:
    with pytest.raises(TownletError, match=r"a town of 10,000,000,000 rows needs .* GB of memory, but .* lower rows"):
        make_engine(load_world("town"), 10**10)
    with pytest.raises(TownletError, match=r"experience of 1,000,000,000 steps of 64 rows needs .* agent.replay"):
        CircularStorage(10**9, 64, {"obs": ((88,), torch.float32), "reward": FLOAT}, "cpu")
    with pytest.raises(TownletError, match=r"a network of .* weights, .* needs .* lower network.hidden"):
        MLP(65536, (65536 * 64, 65536 * 64), "relu", layer_norm=False)
    with pytest.raises(TownletError, match=r"a replay buffer of 10,000,000 experiences .* lower memory.capacity"):
        ServiceState(DOMAINS["hive"], load_settings("hive", ("memory.capacity=10000000",), DOMAINS))


def test_buffers_that_are_not_written_yet_count_as_used() -> None:
    class Owner:
        pass

    first, half = Owner(), int(0.6 * allocation.available())
    reserve(first, half, "the first", "")
    with pytest.raises(TownletError, match="the second needs"):
        reserve(Owner(), half, "the second", "")
    del first
    reserve(Owner(), half, "the third", "")


def test_a_failed_allocation_is_explained_and_other_errors_are_not() -> None:
    with pytest.raises(RuntimeError) as found:
        torch.empty(1 << 60)
    explained = memory_error(found.value)
    assert explained is not None
    assert "not enough memory" in str(explained)
    assert explained.exit_code == 2
    assert memory_error(MemoryError()) is not None
    assert memory_error(RuntimeError("shapes do not match")) is None


def run_in(size: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a limited address space."""
    command, environment = [sys.executable, "-m", "townlet", *words], {**os.environ, "NO_COLOR": "1"}
    with warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        resource.prlimit(process.pid, resource.RLIMIT_AS, (size, size))
        out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def test_run_with_rows_beyond_memory_ends_with_a_message_and_no_traceback(tmp_path: Path) -> None:
    done = run_in(6 << 30, "train", "town:ppo", "rows=32768", "agent.n_steps=512", "--root", str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert "experience of 512 steps of 32,768 rows needs 6.5 GB of memory" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_published_agent_edited_to_a_huge_network_ends_with_a_message_and_no_traceback(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    shutil.copytree(Path(townlet.__file__).parent / "trained" / "elder", agent)
    recipe = agent / "resolved.yaml"
    changed, times = re.subn(r"hidden: \[[^]]*\]", "hidden: [65536, 65536]", recipe.read_text())
    assert times
    recipe.write_text(changed)
    done = run_in(8 << 30, "eval", str(agent), "--episodes", "1")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "weights" in done.stderr or "changed" in done.stderr


def test_a_flood_of_new_territories_does_not_evict_those_of_other_tokens(tmp_path: Path) -> None:
    service, _, clock = start_service(tmp_path, ["memory.territories=20"])
    owner, flooder = owner_id("arena", "key"), owner_id("lobby", None)
    (first,) = service.answer([request(0.0, "home")], clients=[owner])
    for second in range(100):
        clock.now += 0.01
        service.answer([request(1.0, f"flood {second}")], clients=[flooder])
    (stolen,) = service.answer([request(1e9, "home")], clients=[flooder])
    assert stolen.reply["code"] == "FOREIGN_TERRITORY"
    (again,) = service.answer([request(0.0, "home")], clients=[owner])
    assert again.reply == first.reply
    kept = list(service.storage.state.territories)
    service.storage.save_snapshot()
    service.answer([request(2.0, "flood 99")], clients=[flooder])
    service.storage.close()
    after, _, _ = start_service(tmp_path, ["memory.territories=20"])
    assert sorted(after.storage.state.territories) == sorted(kept)
    after.close()
