"""A real server over real runs, and a client that speaks to it over a real socket."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from sharing import once
from townlet.live.app import make_app
from townlet.live.hub import Hub
from townlet.runs.folder import Run
from townlet.train.session import start
from townlet.web.server import Server
from townlet.web.tokens import Tokens
from train.tiny import tiny


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of a second that is over."""
    return once(tmp_path_factory, "watched", lambda root: {"town": start(tiny("town:dqn"), root).run})["town"]


class Served:
    """A server in a thread."""

    def __init__(
        self, root: Path, first: str | None, worlds: Path, tokens: Tokens | None = None, port: int = 0
    ) -> None:
        self.worlds = worlds
        self.server = Server("127.0.0.1", port, tokens)
        self.link = self.server.link()
        self.origin = f"http://127.0.0.1:{self.server.port}"
        self.socket = f"ws://127.0.0.1:{self.server.port}/ws"
        self._thread = threading.Thread(target=self.server.run, args=(make_app(Hub(root, first), worlds),), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until it listens."""
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.server.port), 1).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def talk(self, **options: Any) -> ClientConnection:
        """A connection as our own page makes it."""
        self.wait()
        return connect(self.socket, **({"origin": self.origin} | options))

    def stop(self) -> None:
        """End it, and wait until it has."""
        self.server.stop()
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture
def served(run: Run, tmp_path: Path) -> Iterator[Served]:
    """A server over the run."""
    one = Served(run.path.parent, run.name, tmp_path / "worlds")
    yield one
    one.stop()


class Page:
    """The other end of a conversation."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def say(self, type: str, **values: Any) -> None:
        """Send a message."""
        self.connection.send(json.dumps({"type": type, **values}))

    def hear(self, *types: str, seconds: float = 10.0) -> dict[str, Any]:
        """The next message of one of these types; the others are let go."""
        end = time.monotonic() + seconds
        while True:
            message: dict[str, Any] = json.loads(self.connection.recv(max(0.01, end - time.monotonic())))
            if not types or message["type"] in types:
                return message


@pytest.fixture
def page(served: Served) -> Iterator[Page]:
    """A page that has heard hello."""
    with served.talk() as connection:
        one = Page(connection)
        assert one.hear()["type"] == "hello"
        yield one
