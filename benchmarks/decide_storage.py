"""Throughput and cost of the storages of the decision service: `python benchmarks/decide_storage.py`.

Each game sends an observation, waits for the answer, reports the outcome, waits for the acknowledgement, and so on
(closed loop). Deciders, games, learner and database share the cores of one machine, so besides decisions per second the
table has the CPU time per decision. A folder belongs to one process, so several deciders have a folder each. With
`--before`, a folder is also measured with the sources of an earlier release. Runs take turns, and ratios are within
one round, with a 95% interval over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from websockets.asyncio.client import connect

from services import SOURCE, Database, cpu_seconds, serving
from sim import machine

OVERRIDES: Final = ("learning.interval=3600", "overload.patience=10")
STUDENT: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)  # 97.5% quantiles, from one degree of freedom


@dataclass
class Measured:
    """One run."""

    seconds: float = 0.0
    latency: list[float] = field(default_factory=list)  # of observations
    reports: int = 0
    decider_cpu: float = 0.0
    database_cpu: float = 0.0
    written: int = 0  # bytes of the log, or of the write-ahead log of the database
    transactions: int = 0

    def figures(self) -> dict[str, float]:
        """What the table shows."""
        count = len(self.latency)
        return {
            "decisions_per_s": count / self.seconds,
            "p50_ms": float(np.percentile(self.latency, 50)) * 1000,
            "p99_ms": float(np.percentile(self.latency, 99)) * 1000,
            "decider_ms": 1000 * self.decider_cpu / count,
            "database_ms": 1000 * self.database_cpu / count,
            "bytes": self.written / count,
            "transactions": self.transactions / count,
        }


async def play(port: int, name: str, until: float, measured: Measured) -> None:
    """One game."""
    observation = {"type": "ad_request", "territoryId": name, "traits": [0.5] * 8, "budgets": [1] * 12}
    async with connect(f"ws://127.0.0.1:{port}/ws", proxy=None, compression=None, ping_interval=None) as connection:
        turn = 0
        while (begun := time.perf_counter()) < until:
            turn += 1
            await connection.send(json.dumps(observation | {"timestamp": float(turn)}))
            reply = json.loads(await connection.recv())
            measured.latency.append(time.perf_counter() - begun)
            if reply["type"] == "ad_decision":
                report = {"type": "click_report", "decisionId": reply["decisionId"], "clicked": turn % 3 == 0}
                await connection.send(json.dumps(report))
                await connection.recv()
                measured.reports += 1


async def play_all(ports: Sequence[int], games: int, seconds: float, measured: Measured, name: str) -> None:
    until = time.perf_counter() + seconds
    await asyncio.gather(*(play(ports[n % len(ports)], f"{name} {n}", until, measured) for n in range(games)))


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("log-*.wal"))


def run(storage: str, deciders: int, o: argparse.Namespace, database: Database | None) -> Measured:
    """Measure one storage with this many deciders."""
    measured, source = Measured(), o.before if storage == "before" else SOURCE
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        commands = [[*OVERRIDES, "--folder", str(folder / str(n))] for n in range(deciders)]
        name = f"bench_{time.time_ns()}"
        if storage == "postgres":
            assert database is not None
            database.execute(f'CREATE DATABASE "{name}"')
            shared = ["--storage", database.url(name), "--role"]
            commands = [[*words, *shared, "decide"] for words in commands]
            commands.append([*OVERRIDES, "--folder", str(folder / "learner"), *shared, "learn"])
        with serving("bandit-ads", commands, source) as (ports, pids):
            ports, pids = ports[:deciders], pids[:deciders]
            games = o.games * deciders
            asyncio.run(play_all(ports, games, o.warm_up, Measured(), "warm-up"))
            before = observe(pids, folder, database, name, storage)
            begun = time.perf_counter()
            asyncio.run(play_all(ports, games, o.seconds, measured, "game"))
            measured.seconds = time.perf_counter() - begun
            time.sleep(1.5)  # statistics of the server appear within a second
            after = observe(pids, folder, database, name, storage)
    change = [late - early for early, late in zip(before, after, strict=True)]
    measured.decider_cpu, measured.database_cpu = change[:2]
    measured.written, measured.transactions = int(change[2]), int(change[3])
    return measured


def observe(
    pids: Sequence[int], folder: Path, database: Database | None, name: str, storage: str
) -> tuple[float, float, int, int]:
    """CPU times of deciders and database, bytes written, and transactions, so far."""
    deciders = sum(map(cpu_seconds, pids))
    if storage != "postgres" or database is None:
        return deciders, 0.0, folder_bytes(folder), 0
    written = int(database.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"))
    sql = f"SELECT xact_commit FROM pg_stat_database WHERE datname = '{name}'"
    return deciders, database.cpu_seconds(), written, int(database.execute(sql))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Geometric mean of the ratios within each round, with a 95% interval."""
    logs = np.log(np.array(ours) / np.array(theirs))
    if len(logs) < 2:
        return f"{math.exp(logs.mean()):.2f}"
    half = STUDENT[min(len(logs), len(STUDENT) + 1) - 2] * logs.std(ddof=1) / math.sqrt(len(logs))
    low, middle, high = np.exp([logs.mean() - half, logs.mean(), logs.mean() + half])
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--deciders", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--games", type=int, default=64, help="of each decider")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--warm-up", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path, metavar="SRC", help="sources of an earlier release, for a folder")
    parser.add_argument("--storages", nargs="+", default=["file", "postgres"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    return parser.parse_args()


def main() -> None:
    o = parse()
    print(", ".join(f"{name} {value}" for name, value in machine().items()), flush=True)
    cases = [(storage, count) for count in o.deciders for storage in o.storages]
    cases += [("before", count) for count in o.deciders] if o.before else []
    results: dict[tuple[str, int], list[dict[str, float]]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        Path(folder).chmod(0o755)
        database = Database(Path(folder)) if "postgres" in o.storages else None
        if database:
            stack.callback(database.close)
        for number in range(o.rounds):
            for case in cases if number % 2 == 0 else cases[::-1]:
                results[case].append(run(*case, o, database).figures())
                print(f"round {number + 1}: {case}: {results[case][-1]}", file=sys.stderr, flush=True)
    names = list(next(iter(results.values()))[0])
    print(f"| storage | deciders | {' | '.join(names)} |")
    print("|---|" + "---:|" * (len(names) + 1))
    for (storage, count), runs in results.items():
        medians = [float(np.median([one[name] for one in runs])) for name in names]
        print(f"| {storage} | {count} | {' | '.join(f'{value:,.2f}' for value in medians)} |")
    for storage, other in (("postgres", "file"), ("file", "before")):
        for count in o.deciders:
            if (storage, count) in results and (other, count) in results:
                ours, theirs = results[storage, count], results[other, count]
                for name in ("decisions_per_s", "decider_ms"):
                    shown = ratio([one[name] for one in ours], [one[name] for one in theirs])
                    print(f"{storage} / {other}, {count} deciders, {name}: {shown}")
    if o.json:
        o.json.write_text(json.dumps([[*case, runs] for case, runs in results.items()], indent=2))


if __name__ == "__main__":
    main()
