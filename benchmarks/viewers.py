"""How much viewers of the live page slow down a training: `python benchmarks/viewers.py town:dqn`.

One training runs with the live page. Viewers connect and disconnect periodically; each period with viewers is compared
with the adjacent ones without, because the speed of the machine varies. The viewers run on the same cores and count as
cost. The speed is computed from env_steps and times in the run's metrics.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from websockets.asyncio.client import connect

from sim import machine
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader


class Period(NamedTuple):
    """A stretch of time with or without viewers."""

    begin: float
    end: float
    viewers: int


async def watch(address: str, token: str, run: str, over: asyncio.Event) -> int:
    """One viewer, until `over` is set; returns the number of messages received."""
    received = 0
    headers = {"Authorization": f"Bearer {token}", "Origin": f"http://{address}"}
    async with connect(f"ws://{address}/ws", additional_headers=headers, compression=None) as page:
        await page.send(json.dumps({"type": "subscribe", "run": run, "source": "training", "rows": 64}))
        while not over.is_set():
            try:
                await asyncio.wait_for(page.recv(), 0.2)
                received += 1
            except TimeoutError:
                continue
    return received


async def alternate(
    link: tuple[str, str], run: str, viewers: int, seconds: float, ended: Sequence[int | None]
) -> list[Period]:
    """Alternate periods without and with viewers until the training has ended."""
    periods: list[Period] = []
    while ended[0] is None:
        over, begin = asyncio.Event(), time.time()
        watched = len(periods) % 2 == 1
        pages = [asyncio.create_task(watch(*link, run, over)) for _ in range(viewers if watched else 0)]
        await asyncio.sleep(seconds)
        over.set()
        received = await asyncio.gather(*pages, return_exceptions=True)
        if not any(isinstance(one, BaseException) for one in received):
            periods.append(Period(begin, time.time(), viewers if watched else 0))
        await asyncio.sleep(0.1)
    return periods


def speeds(run: Run, periods: Sequence[Period], settle: float) -> list[tuple[Period, float]]:
    """env_steps per second of each period with at least two records, without its first `settle` seconds."""
    with MetricsReader(run.metrics_file) as store:
        columns = store.read("updates", ("env_steps", "wall"), where={"name": "steps_per_second"})
    records = list(zip(columns["wall"], columns["env_steps"], strict=True))
    rates = []
    for period in periods:
        inside = [record for record in records if period.begin + settle <= record[0] <= period.end]
        if len(inside) >= 2 and inside[-1][0] > inside[0][0]:
            rates.append((period, (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])))
    return rates


def ratios(rates: Sequence[tuple[Period, float]]) -> list[float]:
    """Speed of each period with viewers, relative to the mean of the adjacent ones without."""
    triples = zip(rates, rates[1:], rates[2:], strict=False)
    return [
        speed / ((before + after) / 2)
        for (a, before), (b, speed), (c, after) in triples
        if b.viewers and not a.viewers and not c.viewers
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("recipe", nargs="?", default="town:dqn")
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one period")
    parser.add_argument("--minutes", type=float, default=5.0, help="of training")
    parser.add_argument("--interval", type=int, default=4000, help="env_steps between records of the metrics")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["train", o.recipe, "--live", "--port=0", f"--root={folder}", f"--minutes={o.minutes}"]
        # The default of metrics.every is a fraction of the budget, which is endless here.
        arguments += ["--steps=1e12", f"metrics.every={o.interval}"]
        process = subprocess.Popen([sys.executable, "-m", "townlet", *arguments], stdout=subprocess.PIPE, text=True)
        ended: list[int | None] = [None]
        assert process.stdout is not None
        ((address, token),) = re.findall(r"(127\.0\.0\.1:\d+)/\?token=(\S+)", process.stdout.readline())
        (run,) = Run.list(Path(folder))

        async def watch_training() -> list[Period]:
            async def wait() -> None:
                ended[0] = await asyncio.to_thread(process.wait)

            waiting = asyncio.create_task(wait())
            periods = await alternate((address, token), run.name, o.viewers, o.seconds, ended)
            await waiting
            return periods

        rates = speeds(run, asyncio.run(watch_training()), settle=0.5)
    relative_speeds = ratios(rates)
    low, middle, high = statistics.quantiles(relative_speeds, n=4)
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    without = statistics.median(speed for period, speed in rates if not period.viewers)
    print(f"{o.recipe}: {without:,.0f} steps/s without viewers; {middle:.1%} of that with {o.viewers} "
          f"(quartiles {low:.1%} … {high:.1%}, {len(relative_speeds)} periods of {o.seconds:.0f} s)")  # fmt: skip


if __name__ == "__main__":
    main()
