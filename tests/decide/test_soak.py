"""A service under long use by faulty games: memory, descriptors and latency stay stable."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from decide.service_process import Process
from townlet.decide.domains import DOMAINS
from townlet.decide.simulate import NetworkFaults, SimulationResult, simulate

GAMES = 8
PAUSE = 0.1  # seconds between the decisions of a game
# Little is kept, so that all of it is in use before one begins to look.
WORDS = (
    "memory.capacity=200",
    "memory.held_out_capacity=100",
    "memory.expire_after=2",
    "learning.interval=0.5",
    "versions=4",
)
TROUBLE = NetworkFaults(duplicates=0.1, reordering=0.1, losses=0.05, reconnects=0.02)
SAMPLES = 24
PARTS = ("joined", "expired", "pending", "not_executed")


class Sample(NamedTuple):
    megabytes: float
    files: int
    tasks: int
    p99: float


def take_sample(server: Process, score: SimulationResult) -> Sample:
    """Memory, descriptors and latency since the last sample; counts must balance at any moment."""
    buffer = server.get("/api/decide/stats")["buffer"]
    assert buffer["decisions"] == sum(buffer[name] for name in PARTS)
    assert server.process is not None
    proc = Path(f"/proc/{server.process.pid}")
    pages = int((proc / "statm").read_text().split()[1])
    took, score.latency = score.latency, []
    held = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    files, tasks = (len(list((proc / name).iterdir())) for name in ("fd", "task"))
    return Sample(held, files, tasks, np.percentile(took, 99))


async def watch(server: Process, seconds: float) -> list[Sample]:
    games = [DOMAINS["hive"].make_game(place, f"territory {place}", 2) for place in range(GAMES)]
    scores: list[SimulationResult] = []
    playing = asyncio.create_task(
        simulate(
            server.url, games, 10**9, faults=TROUBLE, pause=PAUSE, on_progress=scores.append
        )  # the same one each time
    )
    samples = []
    for _ in range(SAMPLES):
        await asyncio.wait([playing], timeout=seconds / SAMPLES)
        assert not playing.done(), "a game gave up"
        samples.append(await asyncio.to_thread(take_sample, server, scores[0]))
        scores.clear()
    playing.cancel()
    return samples


@pytest.mark.parametrize("minutes", [pytest.param(m, marks=pytest.mark.long(minutes=m)) for m in (1, 60)])
def test_memory_descriptors_and_latency_are_stable(tmp_path: Path, minutes: float) -> None:
    server, begun = Process(tmp_path, "hive", *WORDS).start().wait(), time.monotonic()
    try:
        samples = asyncio.run(watch(server, 60 * minutes))
        assert server.get("/api/decide/stats")["training"]["steps"] > 0
    finally:
        server.end(signal.SIGTERM)
    third = SAMPLES // 3  # the first is warming up
    before, after = (Sample(*np.median(part, axis=0)) for part in (samples[third : 2 * third], samples[2 * third :]))
    took = time.monotonic() - begun
    print(f"{took:.0f} s, second third → last: {before} → {after}")
    assert after.megabytes < 1.05 * before.megabytes
    assert after.files <= before.files + 2
    assert after.tasks <= before.tasks
    assert after.p99 < 3 * before.p99 + 0.02  # beside other tests
