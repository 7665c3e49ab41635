"""`townlet live`: address, output and shutdown."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import warm
from cli.program import Program
from townlet.cli.live import runs_folder
from townlet.runs.folder import Run
from townlet.web.server import Server


@contextmanager
def served(root: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The program once it has printed its link."""
    command = [sys.executable, "-m", "townlet", "live", "--root", str(root), *words]
    with warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            first_line = process.stdout.readline()
            yield process, next(word for word in first_line.split() if word.startswith("http"))
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serves_without_runs_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path / "none-yet", "--port", "0") as (process, link):
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(link, timeout=60) as answer:
            assert "<title>Townlet" in answer.read().decode()
        process.send_signal(number)
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which another program listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_taken_default_port_falls_back_to_the_next(taken_port: int) -> None:
    server = Server("127.0.0.1", None, None, default_port=taken_port)
    assert taken_port < server.port < taken_port + 20
    server.close()


@pytest.mark.parametrize("command", [("live",), ("decide", "serve", "bandit-ads")])
def test_a_given_port_is_taken_or_refused(
    townlet: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken_port: int, command: tuple[str, ...]
) -> None:
    """A load balancer or a service manager expects the server there."""
    monkeypatch.chdir(tmp_path)
    done = townlet(*command, "--port", str(taken_port))
    assert done.code == 2
    assert f"cannot listen on 127.0.0.1:{taken_port}: Address already in use" in done.err
    assert "choose another port with --port" in done.err


def test_a_training_whose_page_has_no_port_is_not_the_latest_run(
    townlet: Program, tmp_path: Path, taken_port: int
) -> None:
    done = townlet("train", "town-l0:dqn", "--live", "--port", str(taken_port), "--root", str(tmp_path))
    assert done.code == 2
    assert "the live page could not be started" in done.err
    assert not (tmp_path / "latest").is_symlink()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_link_has_a_token(tmp_path: Path, host: str) -> None:
    with served(tmp_path, "--host", host, "--port", "0") as (process, link):
        assert len(link.partition("?token=")[2]) == 32
        assert process.stdout is not None
        reads = process.stdout.readline()
        assert reads.startswith("Read-only: http")
        assert link not in reads


def test_no_token_prints_a_warning(tmp_path: Path) -> None:
    with served(tmp_path, "--port", "0", "--no-token") as (process, link):
        assert "?" not in link
        with urllib.request.urlopen(link, timeout=60) as answer:
            assert answer.status == 200
        process.terminate()
        process.wait(10)
        assert process.stderr is not None
        assert "every user of this machine can operate this server" in process.stderr.read()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no-such-run",), "there is no run 'no-such-run'"),
        (("--host", "203.0.113.7"), "cannot listen on 203.0.113.7"),
        (("--port", "70000"), "--port"),
        (("--host", "0.0.0.0", "--no-token"), "anyone who can reach 0.0.0.0 could operate this server"),
        (("--token-file", "/no/such/file"), "cannot read the token file"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    command = [sys.executable, "-m", "townlet", "live", "--root", str(tmp_path), *words]
    done = warm.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_shipped_agent_is_shown_with_the_runs_of_the_usual_folder(tmp_path: Path) -> None:
    run = Run.open("elder", tmp_path)
    assert runs_folder([run], tmp_path) == tmp_path


def test_a_shipped_agent_is_shown_beside_a_run(runs: Path) -> None:
    with served(runs, "town-ppo", "elder", "--port", "0") as (_, link):
        assert link.endswith("&agents=policy:best,policy:best@elder")
        assert "#run=town-ppo-" in link
