"""Latency of the decision service: `python benchmarks/decide.py`.

The service runs in a separate process, and every game has its own socket. Observations are sent on a fixed schedule,
answered or not (open loop), and latency is measured from the scheduled time, so a service that falls behind cannot hide
it. Each load is measured with and without learning.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from services import Database, serving, stats
from sim import machine
from townlet.decide.domains import DOMAINS

DOMAIN: Final = "hive"
OBSERVATIONS: Final = 200  # different observations, sent in turn
NO_LEARNING: Final = "learning.interval=3600"
LEARNING: Final = ("learning.interval=1.0", "learning.samples_per_insert=1000")
START_SECONDS: Final = 60.0


def observations() -> list[dict[str, Any]]:
    """Observations of a game without decisions."""
    game, observed = DOMAINS[DOMAIN].make_game(7, "scenes", 2), []
    for _ in range(OBSERVATIONS):
        observed.append(game.observe())
        game.advance()
    return observed


class Load:
    """Games that send observations on a fixed schedule."""

    def __init__(self, port: int, name: str, games: int, rate: float, seconds: float) -> None:
        self.name = name
        self.url, self.games, self.rate, self.seconds = f"ws://127.0.0.1:{port}/ws", games, rate, seconds
        self.latency: list[float] = []
        self.kinds: dict[str, int] = {}
        self._observations = observations()

    async def run(self) -> None:
        """Run all games concurrently."""
        async with contextlib.AsyncExitStack() as stack:
            sockets = []
            for _ in range(self.games):
                connection = await stack.enter_async_context(
                    connect(self.url, proxy=None, compression=None, ping_interval=None)
                )
                sockets.append(connection)
            start = time.perf_counter() + 0.5
            await asyncio.gather(*(self._game(index, connection, start) for index, connection in enumerate(sockets)))

    async def _game(self, index: int, connection: ClientConnection, start: float) -> None:
        interval = self.games / self.rate
        count = int(self.seconds / interval)
        due = [start + (turn + index / self.games) * interval for turn in range(count)]
        listening = asyncio.create_task(self._listen(connection, due))
        for turn, moment in enumerate(due):
            if (wait := moment - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            about = {"timestamp": float(turn), "territoryId": f"{self.name} {index}"}
            observation = self._observations[(turn + index) % OBSERVATIONS] | about
            await connection.send(json.dumps(observation, separators=(",", ":")))
        await asyncio.wait_for(listening, 60)

    async def _listen(self, connection: ClientConnection, due: Sequence[float]) -> None:
        for moment in due:
            reply = json.loads(await connection.recv())
            self.latency.append(time.perf_counter() - moment)
            kind = reply.get("code") or ("by the gate alone" if reply.get("modelVersion") == 0 else reply["type"])
            self.kinds[kind] = self.kinds.get(kind, 0) + 1


@contextlib.contextmanager
def service(overrides: Sequence[str], database: Database | None) -> Iterator[int]:
    """Run a service, with a database as a decider and a learner; yields the port of the games."""
    with tempfile.TemporaryDirectory() as text:
        commands = [[*overrides, "--folder", f"{text}/decider"]]
        if database:
            name = f"bench_{time.time_ns()}"
            database.execute(f'CREATE DATABASE "{name}"')
            shared = ["--storage", database.url(name), "--role"]
            commands = [
                [*commands[0], *shared, "decide"],
                [*overrides, "--folder", f"{text}/learner", *shared, "learn"],
            ]
        with serving(DOMAIN, commands) as (ports, _):
            yield ports[0]


def measure(
    overrides: Sequence[str], games: int, rate: float, seconds: float, database: Database | None
) -> dict[str, Any]:
    """Measure one service under one load."""
    with service(overrides, database) as port:
        warm = Load(port, "warming up", 1, 100.0, 2.0)
        asyncio.run(warm.run())
        load = Load(port, "game", games, rate, seconds)
        begun = time.perf_counter()
        asyncio.run(load.run())
        took, shown = time.perf_counter() - begun, stats(port)
    p50, p99 = np.percentile(load.latency, [50, 99]) * 1000
    return {
        "games": games, "sent_per_s": rate, "answered_per_s": len(load.latency) / took, "p50_ms": float(p50),
        "p99_ms": float(p99), "max_ms": max(load.latency) * 1000, "answers": load.kinds,
        "versions": shown["versions"]["serving"],
    }  # fmt: skip


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--games", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--rate", type=float, nargs="+", default=[1000.0], help="observations per second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--separate", action="store_true", help="learner and decider in two processes, with PostgreSQL")
    parser.add_argument("--policy", default="plain")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    return parser.parse_args()


def main() -> None:
    o, results = parse(), []
    print(", ".join(f"{name} {value}" for name, value in machine().items()), flush=True)
    print("| games | learning | sent/s | answered/s | p50 ms | p99 ms | max ms | versions | answers |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        Path(folder).chmod(0o755)
        database = Database(Path(folder)) if o.separate else None
        if database:
            stack.callback(database.close)
        for games in o.games:
            for rate in o.rate * o.rounds:
                for name, overrides in (("no", (NO_LEARNING,)), ("yes", LEARNING)):
                    result = measure([f"policy={o.policy}", *overrides], games, rate, o.seconds, database)
                    result["learning"] = name
                    results.append(result)
                    answers = ", ".join(f"{kind} {count}" for kind, count in sorted(result["answers"].items()))
                    figures = " | ".join(f"{result[key]:,.1f}" for key in ("p50_ms", "p99_ms", "max_ms"))
                    rates = f"{result['sent_per_s']:,.0f} | {result['answered_per_s']:,.0f}"
                    print(f"| {games} | {name} | {rates} | {figures} | {result['versions']} | {answers} |", flush=True)
    if o.json:
        o.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
