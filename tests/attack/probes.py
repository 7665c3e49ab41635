"""What others notice of a flood: how long health, the operator's calls and another game's decisions take."""

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
    """Seconds that each call of a probe took."""
    took = []
    while time.monotonic() < until:
        begun = time.monotonic()
        await probe()
        took.append(time.monotonic() - begun)
        await asyncio.sleep(PAUSE)
    return took


async def measured(probes: dict[str, Probe], seconds: float) -> dict[str, float]:
    """The 99th percentile of each probe, in seconds."""
    until = time.monotonic() + seconds
    found = await asyncio.gather(*(repeat(probe, until) for probe in probes.values()))
    told = {name: float(np.quantile(took, 0.99)) for name, took in zip(probes, found, strict=True)}
    print(
        ", ".join(
            f"{name} p99 {1000 * told[name]:.0f} ms of {len(took)}" for name, took in zip(told, found, strict=True)
        )
    )
    return told


async def during(
    kind: str, url: str, count: int, seconds: float, probes: dict[str, Probe]
) -> tuple[dict[str, float], Counter[str]]:
    """What the probes measure while a flood lasts, and what the flooder saw."""
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
    """The same for a service: its health, an operator's call, and decisions of another game, asked for by `ask`."""
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
    """Megabytes that a service holds."""
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def descriptors(server: Process) -> int:
    """Files and sockets that a service has open."""
    assert server.process is not None
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
