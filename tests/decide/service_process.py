"""A real service in a separate process, which can be killed and restarted at the same port."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import warm

GAME, OPERATOR, VIEWER = (f"{role}-token-of-the-tests" for role in ("game", "operator", "viewer"))
TOKENS = {"TOWNLET_GAME_TOKEN": GAME, "TOWNLET_OPERATOR_TOKEN": OPERATOR, "TOWNLET_VIEWER_TOKEN": VIEWER}
START = 60.0  # seconds that a start may take on a busy machine


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    """Environment with the tokens of the tests."""
    return {**os.environ, "NO_COLOR": "1", **TOKENS}


class Process:
    """`townlet decide serve` for one folder."""

    def __init__(self, folder: Path, domain: str, *words: str) -> None:
        self.folder, self.port, self.settings = folder, free_port(), words
        self._words = [domain, *words, "--folder", str(folder), "--port", str(self.port)]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """WebSocket URL of a game, with its token."""
        return f"{self.address}?token={GAME}"

    @property
    def address(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    @property
    def stats_url(self) -> str:
        """WebSocket URL of a read-only dashboard."""
        return f"{self.address}/stats?token={VIEWER}"

    @property
    def link(self) -> str:
        """URL of the operator's dashboard."""
        return f"{self.origin}/?token={OPERATOR}"

    def start(self) -> Process:
        command = [sys.executable, "-m", "townlet", "decide", "serve", *self._words]
        self.process = warm.Popen(command, stdout=subprocess.DEVNULL, env=environment())
        return self

    def wait(self) -> Process:
        """Wait until it answers."""
        until = time.monotonic() + START
        while True:
            try:
                self.get("/health")
                return self
            except OSError:
                assert self.process is not None
                assert self.process.poll() is None, "the service exited"
                assert time.monotonic() < until, "the service did not start"
                time.sleep(0.05)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, token: str = OPERATOR) -> Any:
        asked = urllib.request.Request(f"{self.origin}{path}", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return json.loads(answer.read())

    def post(self, path: str, **body: Any) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {OPERATOR}"}
        asked = urllib.request.Request(f"{self.origin}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return json.loads(answer.read())

    def end(self, number: int = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(30)
