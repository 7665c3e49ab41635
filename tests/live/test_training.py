"""A training process with its page: small delay, and no effect on training."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.sync.client import connect
from websockets.typing import Origin

import warm
from crash.training_process import differences, only_run
from live.conftest import Page
from townlet.tasks.experiment import load_experiment
from townlet.train.session import start

SMALL = ("town-l0:dqn", "rows=16", "evaluation.episodes=5", "metrics.tensorboard=false", "metrics.report=false")
ENDLESS = ("--steps", "1e12", "--minutes", "5")
OpenPage = Callable[[str], Page]


class TrainingProcess:
    """`townlet train` in a separate process."""

    def __init__(self, root: Path, *words: str, recipe: Sequence[str] = SMALL) -> None:
        command = [sys.executable, "-m", "townlet", "train", *recipe, *words, "--root", str(root)]
        self.process = warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def link(self) -> str:
        """The printed link to the page."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", line)
        assert found, line
        return found[0]

    def end(self) -> None:
        """Interrupt it as Ctrl-C does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=30)


@pytest.fixture
def training(tmp_path: Path) -> Iterator[TrainingProcess]:
    one = TrainingProcess(tmp_path, "--live", "--port", "0", *ENDLESS)
    yield one
    one.end()


@pytest.fixture
def connect_page() -> Iterator[OpenPage]:
    """Connects clients by a link; all are closed at the end."""
    with ExitStack() as pages:

        def open_page(link: str) -> Page:
            address, token = urlsplit(link).netloc, urlsplit(link).query.removeprefix("token=")
            headers = {"Authorization": f"Bearer {token}"}
            own = Origin(f"http://{address}")
            return Page(pages.enter_context(connect(f"ws://{address}/ws", origin=own, additional_headers=headers)))

        yield open_page


@pytest.mark.long
def test_training_is_shown_within_a_second(training: TrainingProcess, tmp_path: Path, connect_page: OpenPage) -> None:
    link = training.link()
    page = connect_page(link)
    run = only_run(tmp_path).name
    page.send("subscribe", run=run, source="training", rows=16)
    page.receive("training_episode", seconds=60)  # the engine may need to be compiled first
    ages: dict[str, list[float]] = {"training_episode": [], "rows_overview": [], "frame": []}
    while min(map(len, ages.values())) < 10:
        message = page.receive(*ages)
        ages[message["type"]].append(time.time() - float(message["ended"] if "ended" in message else message["sent"]))
    # Upper quartile: short stalls of the machine do not count.
    usual = {kind: sorted(found)[len(found) * 3 // 4] for kind, found in ages.items()}
    assert max(usual.values()) < 1, ages

    waited = []
    for _ in range(3):
        began = time.monotonic()
        newcomer = connect_page(link)
        newcomer.send("subscribe", run=run, source="training")
        start = newcomer.receive("episode_start")
        frame = newcomer.receive("frame")
        waited.append(time.monotonic() - began)
        assert start["source"] == "training"
        assert frame["episode"] == start["episode"]
    assert min(waited) < 1, waited


def test_viewers_do_not_change_training(tmp_path: Path, connect_page: OpenPage) -> None:
    roots = tmp_path / "seen", tmp_path / "unseen"
    watched = TrainingProcess(roots[0], "--steps", "16000", "--pause-at", "8000", "--live", "--port", "0")
    link = watched.link()
    watched.process.send_signal(signal.SIGSTOP)  # the page is served by another process
    pages = [connect_page(link) for _ in range(3)]
    for page in pages:
        page.send("subscribe", run=only_run(roots[0]).name, source="training", rows=16)
    watched.process.send_signal(signal.SIGCONT)
    pages[0].receive("training_episode", seconds=60)  # it was watched
    for page in pages:
        page.connection.close()
    watched.process.communicate(timeout=120)
    assert watched.process.returncode == 0
    recipe, *words = SMALL
    start(load_experiment(recipe, [*words, "budget.env_steps=16000"]), roots[1], pause_at=8000)
    assert differences(*map(only_run, roots)) == []
    assert not (only_run(roots[0]) / "live.feed").exists()


def test_server_ends_with_a_killed_training(training: TrainingProcess) -> None:
    port = urlsplit(training.link()).port
    socket.create_connection(("127.0.0.1", port), 5).close()
    training.process.kill()
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.1)
    raise AssertionError("the server is still there")
