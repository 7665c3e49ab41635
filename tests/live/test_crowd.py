"""Many viewers of one server: frame delay beside stuck clients, and no leaks after disconnects."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from websockets import Origin
from websockets.asyncio.client import connect

import warm
from live.crowd import come_and_go, crowd
from townlet.runs.feed import EPISODE_ENDED, ROWS_OVERVIEW, Feed
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader, as_rows
from townlet.town.episode_recorder import Recording

PROC = Path("/proc")
PLACES = "".join(f"  - {{name: P{k}, cell: [{k % 20}, {10 + k // 20}]}}\n" for k in range(40))
pytestmark = pytest.mark.skipif(not (PROC / "self/status").exists(), reason="memory and files are read from /proc")


class Program:
    """`townlet live` in a separate process."""

    def __init__(self, run: Run) -> None:
        words = [
            sys.executable,
            "-m",
            "townlet",
            "live",
            run.name,
            "--root",
            str(run.path.parent),
            "--port",
            "0",
            "--no-token",
        ]
        self._process = warm.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline().split("127.0.0.1:")[1].split("/")[0])

    def health(self) -> dict[str, int]:
        """The answer of /healthz."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=30) as answer:
            found: dict[str, int] = json.load(answer)
        return found

    def memory(self) -> float:
        """Resident memory in megabytes."""
        lines = (PROC / str(self._process.pid) / "status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))

    def files(self) -> int:
        """Number of open file descriptors."""
        return len(os.listdir(PROC / str(self._process.pid) / "fd"))

    def stop(self) -> int:
        """Terminate it and return its exit status."""
        self._process.terminate()
        self._process.communicate(timeout=20)
        return self._process.returncode


@pytest.fixture
def program(run: Run) -> Iterator[Program]:
    """A server process."""
    one = Program(run)
    yield one
    one.stop()


def long(life: Recording, times: int = 20) -> Recording:
    """A recording repeated to last for minutes."""
    steps = len(life)
    again = {
        f.name: np.concatenate([getattr(life, f.name)[:steps]] * times + [getattr(life, f.name)[steps:]])
        for f in fields(life)
        if f.name != "cell_of"
    }
    return Recording(**again | {"age": np.arange(steps * times + 1, dtype=np.uint32), "cell_of": life.cell_of})


@pytest.fixture
def feed(run: Run) -> Iterator[None]:
    """A training feed in which episodes end and rows change."""
    with MetricsReader(run.metrics_file) as store:
        life = max(as_rows(store.read("recordings")), key=lambda kept: kept["length"])
    moments = long(Recording.from_bytes(life["data"]))
    about = {"row": 0, "env_steps": 1, "outputs": life["outputs"], "length": len(moments), "cause": life["cause"]}
    rows = {"env_steps": 1, "cell": [1] * 64, "age": [2] * 64, "lowest_meter": [0.5] * 64, "stage": None}
    over = threading.Event()

    def tell() -> None:
        with closing(Feed.create(run.feed_file)) as feed:
            for turn in count():
                if over.wait(0.2):
                    return
                if turn % 2:  # as often as in training
                    feed.publish(
                        EPISODE_ENDED, json.dumps(about | {"ended": time.time()}).encode() + b"\n" + moments.to_bytes()
                    )
                feed.publish(ROWS_OVERVIEW, json.dumps(rows).encode())

    teller = threading.Thread(target=tell)
    teller.start()
    yield
    over.set()
    teller.join()
    run.feed_file.unlink()


@pytest.mark.parametrize(
    ("many", "seconds", "connects", "hertz"),
    [
        pytest.param(100, 4.0, 150, 3.5, marks=pytest.mark.long),  # beside other tests
        pytest.param(1000, 20.0, 10_000, 4.5, marks=[pytest.mark.long, pytest.mark.alone]),
    ],
)
def test_frame_delay_with_many_viewers(
    run: Run, program: Program, feed: None, many: int, seconds: float, connects: int, hertz: float
) -> None:
    server = program
    ask: dict[str, object] = {"type": "subscribe", "run": run.name, "source": "training", "rows": 64}
    stuck = many // 10

    async def watch() -> tuple[list[float], dict[int, int], float]:
        await come_and_go(server.port, ask, 10)  # warm up
        idle = server.memory()
        ages, clients = await crowd(server.port, ask, many, stuck, seconds)
        held = server.memory() - idle
        assert (await asyncio.to_thread(server.health))["viewers"] >= many - stuck
        for client in clients:
            client.transport.abort()
        return ages.frames, ages.counts, held

    frames, counts, held = asyncio.run(watch())
    rate = np.array([counts.get(number, 0) for number in range(stuck, many)]) / seconds
    p99 = float(np.quantile(frames, 0.99))
    pace = f"{rate.min():.1f} to {rate.max():.1f} Hz"
    print(f"{many} viewers, {stuck} of them stuck: p99 {p99:.3f} s, {pace}, {held:.0f} MB more")
    assert p99 < 1
    assert rate.min() > hertz
    assert held < 150

    async def leave() -> None:
        await come_and_go(server.port, ask, connects)

    before = settled(server)
    asyncio.run(leave())
    after = settled(server)
    print(f"before and after {connects} connects: {before}, {after}")
    assert after[:2] == before[:2]  # tasks and viewers
    assert after[2] <= before[2] + 2
    assert server.stop() == 0


def settled(server: Program) -> tuple[int, int, int]:
    """Tasks, viewers and open files once all clients are gone."""
    for _ in range(100):
        health = server.health()
        if health["viewers"] == 0:
            break
        time.sleep(0.1)
    time.sleep(0.5)
    health = server.health()
    return health["tasks"], health["viewers"], server.files()


@pytest.mark.long
def test_viewers_who_edit_worlds_do_not_slow_down_others(run: Run, program: Program, feed: None) -> None:
    """The overview of rows is sent at every tick; its gaps are compared with those without editors."""
    watch = {"type": "subscribe", "run": run.name, "source": "training", "rows": 64}
    gaps: list[float] = []

    def opened() -> connect:
        return connect(f"ws://127.0.0.1:{program.port}/ws", origin=Origin(f"http://127.0.0.1:{program.port}"))

    async def observe() -> None:
        async with opened() as socket:
            await socket.send(json.dumps(watch))
            last = 0.0
            async for text in socket:
                if str(text).startswith('{"type":"rows_overview"'):
                    now = time.monotonic()
                    gaps.append(now - last)
                    last = now

    async def edit() -> None:
        async with opened() as socket:
            for number in count():
                world = f"extends: town\nmax_steps: {100 + number}\nmap: {{size: [20, 20]}}\naffordances:\n{PLACES}"
                await socket.send(json.dumps({"type": "edit_world", "text": world, "number": number}))
                await asyncio.sleep(0.04)

    async def measure(seconds: float, wait: float = 0.0) -> tuple[float, float]:
        await asyncio.sleep(wait)
        gaps.clear()
        await asyncio.sleep(seconds)
        return seconds / len(gaps), max(gaps)

    async def compare() -> tuple[tuple[float, float], tuple[float, float]]:
        tasks = [asyncio.create_task(observe())]
        while len(gaps) < 5:
            await asyncio.sleep(0.1)
        alone = await measure(3.0)
        tasks += [asyncio.create_task(edit()) for _ in range(20)]
        crowded = await measure(5.0, wait=3.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return alone, crowded

    alone, crowded = asyncio.run(compare())
    print(f"mean and longest gap between overviews: {alone} s alone, {crowded} s beside 20 editors")
    assert crowded[0] < 1.5 * alone[0]
    assert crowded[1] < 4 * alone[1]
