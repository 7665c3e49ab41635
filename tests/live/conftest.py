"""Live servers over small runs, and a WebSocket client."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from shared_runs import train_once
from townlet.live.app import make_app
from townlet.live.hub import Hub
from townlet.runs.folder import Run
from townlet.train.session import start
from townlet.web.server import Server
from townlet.web.tokens import VIEWER, Tokens
from train.tiny import tiny


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run that took about a second."""
    return train_once(tmp_path_factory, "watched", lambda root: {"town": start(tiny("town:dqn"), root).run})["town"]


class LiveServer:
    """A live server in a thread."""

    def __init__(
        self, root: Path, first: str | None, worlds: Path, tokens: Tokens | None = None, port: int = 0
    ) -> None:
        self.worlds = worlds
        self.server = Server("127.0.0.1", port, tokens)
        self.link = self.server.link()
        self.origin = f"http://127.0.0.1:{self.server.port}"
        self.socket = f"ws://127.0.0.1:{self.server.port}/ws"
        join_link = self.server.link(VIEWER) if tokens and tokens.first(VIEWER) else None
        app = make_app(Hub(root, first), worlds, join_link=join_link)
        self._thread = threading.Thread(target=self.server.run, args=(app,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until it accepts connections."""
        for _ in range(400):
            try:
                socket.create_connection(("127.0.0.1", self.server.port), 1).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.025)
        raise AssertionError("the server does not answer")

    def connect(self, **options: Any) -> ClientConnection:
        """Open a WebSocket as the page does."""
        self.wait()
        return connect(self.socket, **({"origin": self.origin} | options))

    def stop(self) -> None:
        """Stop it and wait for its thread."""
        self.server.stop()
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture(scope="session")
def shared_server(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """One server over the run for all tests of a process."""
    server = LiveServer(run.path.parent, run.name, tmp_path_factory.mktemp("live") / "worlds")
    server.wait()
    yield server
    server.stop()


@pytest.fixture
def served(shared_server: LiveServer) -> Iterator[LiveServer]:
    """The shared server, without saved worlds."""
    yield shared_server
    shutil.rmtree(shared_server.worlds, ignore_errors=True)


class Page:
    """A WebSocket client in place of the page."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, type: str, **values: Any) -> None:
        """Send a message."""
        self.connection.send(json.dumps({"type": type, **values}))

    def receive(self, *types: str, seconds: float = 10.0) -> dict[str, Any]:
        """The next message of one of these types; others are dropped."""
        deadline = time.monotonic() + seconds
        while True:
            message: dict[str, Any] = json.loads(self.connection.recv(max(0.01, deadline - time.monotonic())))
            if not types or message["type"] in types:
                return message


@pytest.fixture
def page(served: LiveServer) -> Iterator[Page]:
    """A client that has received hello."""
    with served.connect() as connection:
        client = Page(connection)
        assert client.receive()["type"] == "hello"
        yield client
