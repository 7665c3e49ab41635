"""Latency of health checks, operator calls and other clients' decisions during a flood."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np

from decide.ads_service import request
from decide.service_process import Process
from townlet.decide.client import Client

FLOODER = Path(__file__).parent / "flooder.py"
PAUSE = 0.02  # seconds between two probes of a kind
Probe = Callable[[], Awaitable[object]]
Ask = Callable[[float, str], dict[str, Any]]  # an observation of this time and territory


async def repeat(probe: Probe, until: float) -> list[float]:
    """Duration of each call of a probe, in seconds."""
    durations = []
    while time.monotonic() < until:
        begun = time.monotonic()
        await probe()
        durations.append(time.monotonic() - begun)
        await asyncio.sleep(PAUSE)
    return durations


async def measured(probes: dict[str, Probe], seconds: float) -> dict[str, float]:
    """The 99th percentile of each probe, in seconds."""
    until = time.monotonic() + seconds
    found = await asyncio.gather(*(repeat(probe, until) for probe in probes.values()))
    percentiles = {name: float(np.quantile(durations, 0.99)) for name, durations in zip(probes, found, strict=True)}
    print(
        ", ".join(
            f"{name} p99 {1000 * percentiles[name]:.0f} ms of {len(durations)}"
            for name, durations in zip(percentiles, found, strict=True)
        )
    )
    return percentiles


async def during(
    kind: str, url: str, count: int, seconds: float, probes: dict[str, Probe]
) -> tuple[dict[str, float], Counter[str]]:
    """Latencies during a flood, and the flooder's counts."""
    words = (sys.executable, str(FLOODER), kind, url, str(count), str(seconds))
    flooder = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    assert flooder.stdout is not None
    assert (await flooder.stdout.readline()).strip() == b"ready"
    found = await measured(probes, seconds - 1)
    seen = Counter[str](json.loads(await flooder.stdout.read()))
    await flooder.wait()
    print(dict(seen))
    return found, seen


async def flooded(
    server: Process, kind: str, url: str, count: int, seconds: float, ask: Ask = request
) -> tuple[dict[str, float], Counter[str]]:
    """Latencies of a service during a flood: health, an operator's call, and decisions of another client."""
    async with Client(server.url, timeout=60) as client:
        times = iter(range(1, 10**9))
        place = f"beside {kind} {time.time():.0f}"
        probes: dict[str, Probe] = {
            "health": lambda: asyncio.to_thread(server.get, "/health"),
            "operator": lambda: asyncio.to_thread(server.post, "/api/decide/unpin"),
            "decision": lambda: client.request(ask(float(next(times)), place)),
        }
        return await during(kind, url, count, seconds, probes)


def resident(server: Process) -> float:
    """Resident memory of a service in megabytes."""
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def descriptors(server: Process) -> int:
    """Open files and sockets of a service."""
    assert server.process is not None
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
