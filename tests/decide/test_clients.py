"""What both clients do when nobody answers, answers too late, or turns them away: against real sockets."""

from __future__ import annotations

import asyncio
import gc
import http
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.server import ServerConnection, serve

import townlet.decide.app
import townlet.decide.client
from townlet.decide.client import Client, NoAnswer
from townlet.decide.domains import DOMAINS
from townlet.decide.settings import load_settings
from townlet.decide.simulate import simulate
from townlet.errors import TownletError

SCRIPT = Path(townlet.decide.client.__file__).parent / "static" / "client.js"
PING = {"type": "ping"}


@contextmanager
def listening(handler: Any, **options: Any) -> Iterator[str]:
    """A server of its own, in a thread."""
    begun, address = threading.Event(), [""]

    async def run() -> None:
        async with serve(handler, "127.0.0.1", 0, **options) as server:
            address[0] = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
            begun.set()
            await over.wait()
            for link in list(server.all_connections):  # of clients that left without a word
                link.transport.abort()

    def work() -> None:
        with runner:  # which lets links that just went close, too
            runner.run(run())

    runner, over = asyncio.Runner(), asyncio.Event()
    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(20)
    yield address[0]
    runner.get_loop().call_soon_threadsafe(over.set)
    thread.join(20)


async def echo(link: ServerConnection) -> None:
    async for text in link:
        await link.send(json.dumps({"type": "heard", "was": json.loads(text)}))


async def said(url: str, patience: float, token: str | None = None) -> dict[str, Any]:
    async with Client(url, token, patience) as client:
        return await client.say(PING)


@pytest.mark.parametrize("status", [401, 403])
def test_who_is_turned_away_is_told_at_once(status: int) -> None:
    def refuse(link: ServerConnection, request: Any) -> Any:
        return link.respond(http.HTTPStatus(status), "no")

    async def twice(url: str) -> None:
        async with Client(url + "?token=secret", patience=60) as client:
            for _ in range(2):
                with pytest.raises(NoAnswer, match=f"{status}, the token is ") as found:
                    await client.say(PING)
                assert "secret" not in str(found.value)

    with listening(echo, process_request=refuse) as url:
        begun = time.monotonic()
        asyncio.run(twice(url))
        assert time.monotonic() - begun < 20


def test_who_waits_in_vain_is_told_what_went_wrong_last() -> None:
    def nowhere(link: ServerConnection, request: Any) -> Any:
        return link.respond(http.HTTPStatus.NOT_FOUND, "no")

    with (
        listening(echo, process_request=nowhere) as url,
        pytest.raises(NoAnswer, match=r"for 0.5 s: 404, nothing listens"),
    ):
        asyncio.run(said(url, 0.5))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and listens to nobody
        url = f"ws://127.0.0.1:{taken.getsockname()[1]}/ws"
        with pytest.raises(NoAnswer, match=rf"no answer from {url} for 0.5 s: .*Connect"):
            asyncio.run(said(url, 0.5))


def test_who_was_let_in_before_comes_back() -> None:
    seen = 0

    def every_other(link: ServerConnection, request: Any) -> Any:
        nonlocal seen
        seen += 1
        return link.respond(http.HTTPStatus.FORBIDDEN, "full") if seen % 2 == 0 else None

    async def once(link: ServerConnection) -> None:
        await link.send(json.dumps({"was": await link.recv()}))

    async def play(url: str) -> int:
        async with Client(url, patience=20) as client:
            await client.say(PING)
            await client.say(PING)
            return client.connections

    with listening(once, process_request=every_other) as url:
        assert asyncio.run(play(url)) == 2
    assert seen == 3


def test_whom_a_full_service_lets_go_waits_and_is_let_in_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(townlet.decide.room, "CONVERSATIONS", 1)
    monkeypatch.setattr("townlet.decide.simulate.GREETING", 0.5)
    full = "no answer from .* s: too many games are connected"

    async def play() -> None:
        app = townlet.decide.app.open_app(tmp_path, load_settings("bandit-ads", (), DOMAINS))
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.05)
        url = f"ws://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/ws"
        async with Client(url, patience=20) as first:
            await first.say(PING)
            async with Client(url, patience=2) as second:
                with pytest.raises(NoAnswer, match=full):
                    await second.say(PING)
                assert not second.refused
                assert 2 < second.connections < 12  # its waits grow
            with pytest.raises(TownletError, match=full):
                await simulate(url, [], 1)
            third = asyncio.create_task(said(url, 20))
            await asyncio.sleep(0.3)
            assert not third.done()
        assert await third == {"type": "pong"}
        server.should_exit = True
        await serving

    asyncio.run(play())


async def only_pongs(link: ServerConnection) -> None:
    async for text in link:
        if json.loads(text) == PING:
            await link.send('{"type": "pong"}')


def test_a_simulation_tells_of_a_service_that_went_mute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.decide.simulate.PATIENCE", 0.5)
    games = [DOMAINS["bandit-ads"].make_game(seed, f"mute {seed}", 0) for seed in range(2)]
    with (
        listening(only_pongs) as url,
        pytest.raises(TownletError, match=f"no answer from {url} for 0.5 s; see whether"),
    ):
        asyncio.run(simulate(url, games, 3))


def test_who_is_hurried_while_it_leaves_leaves_nothing_open() -> None:
    async def busy(link: ServerConnection) -> None:
        await link.send(await link.recv())
        time.sleep(0.5)  # the whole server hears nothing meanwhile

    async def hurry(url: str) -> None:
        leaving = asyncio.create_task(said(url, 20))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(leaving, 0.3)

    with listening(busy) as url:
        asyncio.run(hurry(url))
        gc.collect()  # what is open still is told now


def run_js(tmp_path: Path, body: str, url: str) -> Any:
    """What a script with the client for browsers says at its end."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    (tmp_path / "client.mjs").write_text(SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    whole = f"import {{ Client }} from './client.mjs';\nconst url = {url!r};\n{body}\nprocess.exit(0);"
    (tmp_path / "game.mjs").write_text(whole, encoding="utf-8")
    command = [node, "--experimental-websocket", "game.mjs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    if "bad option" in done.stderr:
        pytest.skip("needs a node with WebSocket")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


MUTE = """
const service = new Client(url, { patience: 1500 });
const first = await service.say({ n: 1 }).catch((error) => error.message);
service.patience = 30000; // nothing else is to be given up
const second = await service.say({ n: 2 });
console.log(JSON.stringify({ first, second, connections: service.connections }));
"""


def test_a_link_that_went_mute_is_left_and_what_was_given_up_is_not_said_again(tmp_path: Path) -> None:
    links, heard = 0, []

    async def mute_at_first(link: ServerConnection) -> None:
        nonlocal links
        links += 1
        mine = links
        async for text in link:
            heard.append((mine, json.loads(text)["n"]))
            if mine > 1:
                await link.send(text)

    with listening(mute_at_first) as url:
        found = run_js(tmp_path, MUTE, url)
    assert found == {"first": f"{url} has not answered for 1.5 s", "second": {"n": 2}, "connections": 2}
    assert heard == [(1, 1), (2, 2)]


FULL = """
const service = new Client(url, { patience: 2000 });
await service.say({ n: 1 }).catch(() => {});
console.log(JSON.stringify(service.connections));
"""


def test_in_a_browser_waits_for_a_full_service_grow(tmp_path: Path) -> None:
    async def full(link: ServerConnection) -> None:
        await link.close(1013, "too many games are connected")

    with listening(full) as url:
        assert 2 < run_js(tmp_path, FULL, url) < 12


FLOOD = """
const service = new Client(url, { patience: 2000 });
const heard = (n) => service.say({ n }).then(() => 'answered', (error) => error.message);
const ends = Array.from({ length: 1010 }, (_, n) => heard(n));
const told = await Promise.all(ends.slice(1000));
console.log(JSON.stringify({ told, queued: service.waiting.length }));
"""


def test_what_waits_in_a_browser_is_bounded(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        found = run_js(tmp_path, FLOOD, f"ws://127.0.0.1:{nobody.getsockname()[1]}/ws")
    assert found["queued"] == 1000
    assert found["told"] == ["1000 messages wait already; say less, or later"] * 10
