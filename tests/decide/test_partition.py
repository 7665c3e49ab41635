"""The learner cannot reach the database: deciders go on with the version that serves."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from decide.postgres_cluster import Cluster
from decide.service_process import Process
from decide.test_kill import Acknowledged, play
from decide.test_shared_database import WORDS, check, check_replay, epochs_overlap

pytest.importorskip("psycopg")


class Proxy:
    """Forwards connections to a server, until that is stopped: then they stay open, and nothing arrives."""

    def __init__(self, port: int) -> None:
        self._target, self.forwarding = port, threading.Event()
        self.forwarding.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=[one, other], daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError), one, other:
            while data := one.recv(1 << 16):
                self.forwarding.wait()
                other.sendall(data)
            other.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.forwarding.set()
        self._listener.close()


@pytest.mark.long(minutes=1)
def test_deciders_go_on_while_the_learner_cannot_reach_the_database(
    cluster: Cluster, database: str, tmp_path: Path
) -> None:
    """The alarm says for how long, and how old the version is that decides; then learning continues."""
    proxy, acknowledged = Proxy(cluster.port), Acknowledged()
    through = database.replace(f":{cluster.port}/", f":{proxy.port}/")
    decider = Process(tmp_path / "decide", "bandit-ads", *WORDS, "--storage", database, "--role", "decide")
    learner = Process(tmp_path / "learn", "bandit-ads", *WORDS, "--storage", through, "--role", "learn")

    def alarms() -> dict[str, str]:
        return {alarm["name"]: alarm["what"] for alarm in decider.get("/api/decide/stats")["alarms"]}

    def newest() -> int:
        return int(decider.get("/api/decide/versions")["versions"][-1]["version"])

    async def until(condition: Callable[[], object]) -> None:
        limit = time.monotonic() + 90
        while not await asyncio.to_thread(condition):
            assert time.monotonic() < limit
            await asyncio.sleep(0.2)

    async def cut_off() -> None:
        players = [asyncio.create_task(play(decider.url, n, acknowledged)) for n in range(4)]
        await until(lambda: newest() > 3)
        await until(lambda: "learner" not in alarms())
        proxy.forwarding.clear()
        await until(lambda: "learner" in alarms())
        version, decided = newest(), len(acknowledged.decided)
        found = re.fullmatch(
            r"No learner has reported for (\d+) s: decisions are made with version (\d+), published (\d+) s ago",
            alarms()["learner"],
        )
        assert found
        assert int(found[3]) >= int(found[1]) - 2 >= 13
        await until(lambda: len(acknowledged.decided) > decided + 100)
        assert newest() == version
        proxy.forwarding.set()
        await until(lambda: newest() > version + 3)
        await until(lambda: "learner" not in alarms())
        acknowledged.over = True
        await asyncio.gather(*players)

    try:
        learner.start().wait()
        decider.start().wait()
        asyncio.run(cut_off())
    finally:
        proxy.close()
        for process in (decider, learner):
            process.end()
    check(database, acknowledged)
    assert epochs_overlap(database) == []
    assert check_replay(database) > 6
