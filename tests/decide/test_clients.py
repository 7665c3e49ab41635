"""Both clients against servers that do not answer, answer too late, or refuse the connection."""

from __future__ import annotations

import asyncio
import gc
import http
import json
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosedOK

import townlet.decide.app
import townlet.decide.client
from decide.service_process import GAME, Process
from townlet.decide.client import Client, NoAnswer
from townlet.decide.domains import DOMAINS
from townlet.decide.settings import load_settings
from townlet.decide.simulate import simulate
from townlet.decide.sync_client import SyncClient
from townlet.errors import TownletError

SCRIPT = Path(townlet.decide.client.__file__).parent / "static" / "client.js"
PING = {"type": "ping"}
RunJs = Callable[[str, str], Any]  # script and URL to its output


@contextmanager
def listening(handler: Any, **options: Any) -> Iterator[str]:
    """Run a WebSocket server in a thread."""
    started, address = threading.Event(), [""]

    async def run() -> None:
        async with serve(handler, "127.0.0.1", 0, **options) as server:
            address[0] = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
            started.set()
            await stop.wait()
            for link in list(server.all_connections):  # of clients that did not close
                link.transport.abort()

    def run_thread() -> None:
        with runner:  # closes the remaining connections, too
            runner.run(run())

    runner, stop = asyncio.Runner(), asyncio.Event()
    thread = threading.Thread(target=run_thread)
    thread.start()
    assert started.wait(20)
    yield address[0]
    runner.get_loop().call_soon_threadsafe(stop.set)
    thread.join(20)


async def echo(link: ServerConnection) -> None:
    async for text in link:
        await link.send(json.dumps({"type": "echo", "text": json.loads(text)}))


async def ping(url: str, timeout: float, token: str | None = None) -> dict[str, Any]:
    async with Client(url, token, timeout) as client:
        return await client.request(PING)


@pytest.mark.parametrize("status", [401, 403])
def test_refused_client_fails_at_once(status: int) -> None:
    def refuse(link: ServerConnection, request: Any) -> Any:
        return link.respond(http.HTTPStatus(status), "no")

    async def twice(url: str) -> None:
        async with Client(url + "?token=secret", timeout=60) as client:
            for _ in range(2):
                with pytest.raises(NoAnswer, match=f"{status}, the token is ") as found:
                    await client.request(PING)
                assert "secret" not in str(found.value)

    with listening(echo, process_request=refuse) as url:
        started = time.monotonic()
        asyncio.run(twice(url))
        assert time.monotonic() - started < 20


def test_timeout_names_the_last_error() -> None:
    def not_found(link: ServerConnection, request: Any) -> Any:
        return link.respond(http.HTTPStatus.NOT_FOUND, "no")

    with (
        listening(echo, process_request=not_found) as url,
        pytest.raises(NoAnswer, match=r"for 0.5 s: 404, there is no service"),
    ):
        asyncio.run(ping(url, 0.5))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # but does not listen
        url = f"ws://127.0.0.1:{taken.getsockname()[1]}/ws"
        with pytest.raises(NoAnswer, match=rf"no answer from {url} for 0.5 s: .*Connect"):
            asyncio.run(ping(url, 0.5))


def test_client_reconnects_after_a_temporary_refusal() -> None:
    seen = 0

    def every_other(link: ServerConnection, request: Any) -> Any:
        nonlocal seen
        seen += 1
        return link.respond(http.HTTPStatus.FORBIDDEN, "full") if seen % 2 == 0 else None

    async def once(link: ServerConnection) -> None:
        await link.send(json.dumps({"was": await link.recv()}))

    async def play(url: str) -> int:
        async with Client(url, timeout=20) as client:
            await client.request(PING)
            await client.request(PING)
            return client.connections

    with listening(once, process_request=every_other) as url:
        assert asyncio.run(play(url)) == 2
    assert seen == 3


def test_client_backs_off_from_a_full_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(townlet.decide.websocket, "MAX_GAMES", 1)
    monkeypatch.setattr("townlet.decide.simulate.PING_TIMEOUT", 0.5)
    full = "no answer from .* s: too many games are connected"

    async def play() -> None:
        app = townlet.decide.app.open_app(tmp_path, load_settings("bandit-ads", (), DOMAINS))
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.05)
        url = f"ws://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/ws"
        async with Client(url, timeout=20) as first:
            await first.request(PING)
            async with Client(url, timeout=2) as second:
                with pytest.raises(NoAnswer, match=full):
                    await second.request(PING)
                assert not second.refused
                assert 2 < second.connections < 12  # the delays grow
            with pytest.raises(TownletError, match=full):
                await simulate(url, [], 1)
            third = asyncio.create_task(ping(url, 20))
            await asyncio.sleep(0.3)
            assert not third.done()
        assert await third == {"type": "pong"}
        server.should_exit = True
        await serving

    asyncio.run(play())


def test_synchronous_client_fails_pending_requests_when_it_is_closed() -> None:
    async def silent(link: ServerConnection) -> None:
        async for _ in link:
            pass

    with listening(silent) as url:
        client = SyncClient(url)
        pending = [client.submit(PING) for _ in range(40)]  # more than are in flight
        client.close()
        assert [str(request.exception(20)) for request in pending] == ["the client is closed"] * 40
        client.close()
        with pytest.raises(NoAnswer, match="the client is closed"):
            client.submit(PING)
    assert "townlet client" not in {thread.name for thread in threading.enumerate()}


def test_synchronous_client_serves_several_threads() -> None:
    answers: dict[int, dict[str, Any]] = {}

    def send(number: int) -> None:
        answers[number] = client.request({"n": number})

    with listening(echo) as url, SyncClient(url, timeout=20) as client:
        threads = [threading.Thread(target=send, args=[number]) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert client.connections == 1
    assert answers == {number: {"type": "echo", "text": {"n": number}} for number in range(20)}


@pytest.mark.parametrize("garbage", ["<html>", "[1]"])
def test_client_leaves_a_server_that_is_no_decision_service(garbage: str) -> None:
    links = 0

    async def wrong_at_first(link: ServerConnection) -> None:
        nonlocal links
        links += 1
        if links == 1:
            await link.send(garbage)  # before any request
        await echo(link)

    with listening(wrong_at_first) as url:
        assert asyncio.run(ping(url, 20)) == {"type": "echo", "text": PING}
    assert links == 2


async def only_pongs(link: ServerConnection) -> None:
    async for text in link:
        if json.loads(text) == PING:
            await link.send('{"type": "pong"}')


def test_simulation_reports_a_silent_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.decide.simulate.ANSWER_TIMEOUT", 0.5)
    games = [DOMAINS["bandit-ads"].make_game(seed, f"silent {seed}", 0) for seed in range(2)]
    with (
        listening(only_pongs) as url,
        pytest.raises(TownletError, match=f"no answer from {url} for 0.5 s; check whether"),
    ):
        asyncio.run(simulate(url, games, 3))


def test_cancelled_close_leaves_no_connection_open() -> None:
    async def blocking(link: ServerConnection) -> None:
        await link.send(await link.recv())
        time.sleep(0.5)  # blocks the server

    async def cancel_close(url: str) -> None:
        closing = asyncio.create_task(ping(url, 20))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(closing, 0.3)

    with listening(blocking) as url:
        asyncio.run(cancel_close(url))
        gc.collect()  # reports connections that are still open


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    running = Process(tmp_path_factory.mktemp("service"), "bandit-ads").start().wait()
    yield running
    assert running.end(signal.SIGTERM) in (0, 130, -signal.SIGTERM)


@pytest.fixture(params=["with", "without"])
def run_js(request: pytest.FixtureRequest, tmp_path: Path) -> RunJs:
    """Run a script with the JavaScript client in Node, with and without a WebSocket of Node's own."""
    flag = "--experimental-websocket" if request.param == "with" else "--no-experimental-websocket"
    return lambda body, url: node_output(tmp_path, flag, body, url)


def node_output(tmp_path: Path, flag: str, body: str, url: str) -> Any:
    """The output of a script with the JavaScript client, as JSON."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    (tmp_path / "client.mjs").write_text(SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    whole = f"import {{ Client }} from './client.mjs';\nconst url = {url!r};\n{body}\nprocess.exit(0);"
    (tmp_path / "game.mjs").write_text(whole, encoding="utf-8")
    done = subprocess.run([node, flag, "game.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    if "bad option" in done.stderr:
        pytest.skip("needs Node 20.10 or later")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SILENT = """
const client = new Client(url, { timeout: 1500 });
const first = await client.request({ n: 1 }).catch((error) => error.message);
client.timeout = 30000; // no other request may expire
const second = await client.request({ n: 2 });
console.log(JSON.stringify({ first, second, connections: client.connections }));
"""


def test_javascript_client_leaves_a_silent_connection_and_drops_expired_requests(run_js: RunJs) -> None:
    links, received = 0, []

    async def silent_at_first(link: ServerConnection) -> None:
        nonlocal links
        links += 1
        index = links
        async for text in link:
            received.append((index, json.loads(text)["n"]))
            if index > 1:
                await link.send(text)

    with listening(silent_at_first) as url:
        found = run_js(SILENT, url)
    assert found == {"first": f"no answer from {url} for 1.5 s", "second": {"n": 2}, "connections": 2}
    assert received == [(1, 1), (2, 2)]


FULL = """
const client = new Client(url, { timeout: 2000 });
await client.request({ n: 1 }).catch(() => {});
console.log(JSON.stringify(client.connections));
"""


def test_javascript_client_backs_off_from_a_full_service(run_js: RunJs) -> None:
    async def full(link: ServerConnection) -> None:
        await link.close(1013, "too many games are connected")

    with listening(full) as url:
        assert 2 < run_js(FULL, url) < 12


FLOOD = """
const client = new Client(url, { timeout: 2000 });
const send = (n) => client.request({ n }).then(() => 'answered', (error) => error.message);
const ends = Array.from({ length: 1010 }, (_, n) => send(n));
const errors = await Promise.all(ends.slice(1000));
console.log(JSON.stringify({ errors, queued: client.waiting.length }));
"""


def test_javascript_client_bounds_its_queue(run_js: RunJs) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        found = run_js(FLOOD, f"ws://127.0.0.1:{unused.getsockname()[1]}/ws")
    assert found["queued"] == 1000
    assert found["errors"] == ["1000 messages are waiting; send fewer"] * 10


ECHOES = """
const client = new Client(url);
const texts = [0, 57, 58, 32762, 32763, 65000].map((length) => 'é'.repeat(length));
const answers = await Promise.all(texts.map((text) => client.request({ text })));
const equal = answers.map((answer, n) => answer.text.text === texts[n]);
client.close();
console.log(JSON.stringify({ equal, connections: client.connections }));
"""


def test_javascript_client_exchanges_messages_of_every_size(run_js: RunJs) -> None:
    closed = []

    async def fragments(link: ServerConnection) -> None:
        async for text in link:
            answer = json.dumps({"type": "echo", "text": json.loads(text)}, ensure_ascii=False)
            middle = len(answer) // 2
            await link.send([answer[:middle], answer[middle:]])
            with suppress(ConnectionClosedOK):  # the client may close after the last answer
                await (await link.ping())
        closed.append(link.close_code)

    with listening(fragments, max_size=1 << 20) as url:
        assert run_js(ECHOES, url) == {"equal": [True] * 6, "connections": 1}
    assert closed == [1005]


SERVICE = f"""
const client = new Client(url, {{ token: '{GAME}' }});
const refused = new Client(url, {{ token: 'wrong', timeout: 1000 }});
const problem = await refused.request({{ type: 'ping' }}).catch((error) => error.message);
const pong = await client.request({{ type: 'ping' }});
console.log(JSON.stringify({{ pong, problem, connections: refused.connections }}));
"""


def test_javascript_client_is_served_by_a_real_service(run_js: RunJs, service: Process) -> None:
    found = run_js(SERVICE, service.address)
    assert found["pong"] == {"type": "pong"}
    assert found["problem"] == f"no answer from {service.address} for 1 s"
    assert found["connections"] == 0
