"""Speed of the town, compared with other environments: `python benchmarks/sim.py --json results.json`.

Subjects with the same number of rows alternate in short rounds, so that noise of the machine affects all of them alike;
the best and the median round are reported. Rates are environment steps per second, including observation and mask;
"CPU" is the CPU time of all threads, "wall" is elapsed time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from simulators import all_peers
from townlet import __version__
from townlet.bench.simulation import (
    Benchmark,
    BenchmarkResult,
    available_cores,
    draw_actions,
    engine_benchmark,
    run_interleaved,
)
from townlet.errors import TownletError
from townlet.town.engines.engine import check_device
from townlet.town.env import Town
from townlet.town.world.load import load
from townlet.town.world.tables import World

WORLDS = ("town", "town clock.temporal=true", "town-l2", "town-l3")  # full and partial, without and with time
ROWS = (1, 64, 1024, 16384, 262144)
ENGINES = ("numba", "torch", "compiled")

FIRST_CALL = """
import sys, time
began = time.perf_counter()
from townlet.town.engines.engine import make_engine
from townlet.town.world.load import load
world = load("town")
imported = time.perf_counter()
engine = make_engine(world, 64, "numba")
engine.reset(0)
import numpy as np
engine.step(np.zeros(64, np.int64))
print(imported - began, time.perf_counter() - imported)
"""


def engines(world: World, rows: int, kinds: Sequence[str]) -> Iterable[Benchmark]:
    """The selected engines: numba on one thread and, with many rows, also on all cores."""
    for kind in kinds:
        yield engine_benchmark(world, rows, kind, threads=1)
        if kind == "numba" and available_cores() > 1 and rows >= 16384:
            yield engine_benchmark(world, rows, kind, threads=available_cores())


def through_vec_env(world: World) -> Benchmark:
    """One row through the interface that training uses, with its checks."""
    town = Town(world, 1)
    town.reset(0)
    batches = [torch.from_numpy(actions) for actions in draw_actions(1, len(world.actions))]

    def run_pass() -> int:
        for actions in batches:
            town.step(actions)
        return len(batches)

    return Benchmark(run_pass, subject="VecEnv", world=world.name, engine="numba", rows=1)


def first_calls(cached_runs: int = 3) -> dict[str, float]:
    """Seconds from a loaded world to the first step, in new processes: with an empty and with a filled cache."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"TOWNLET_CACHE": cache}

        def first_call() -> float:
            command = [sys.executable, "-c", FIRST_CALL]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            return float(done.stdout.split()[1])

        cold = first_call()
        return {"cold_s": round(cold, 2), "cached_s": round(min(first_call() for _ in range(cached_runs)), 2)}


def load_world(text: str) -> World:
    """A world by name, followed by overrides: "town clock.temporal=true"."""
    name, *overrides = text.split()
    return dataclasses.replace(load(name, overrides), name=text)


def measure(options: argparse.Namespace) -> Iterable[tuple[list[BenchmarkResult], list[str]]]:
    """Yield all results and reasons for skipping so far, after each number of rows and world."""
    results: list[BenchmarkResult] = []
    skipped: list[str] = []
    for rows in options.rows:
        for name in options.worlds:
            world = load_world(name)
            subjects = list(engines(world, rows, options.engines))
            if rows == 1:
                subjects.append(through_vec_env(world))
            if name == options.worlds[0] and not options.no_peers:
                for peer, reason in all_peers(rows):
                    if peer:
                        subjects.append(peer)
                    elif reason not in skipped:
                        skipped.append(reason)
            print(f"{name}, {rows} rows: {len(subjects)} subjects", file=sys.stderr, flush=True)
            results += run_interleaved(subjects, options.seconds, options.rounds)
            yield results, skipped


def device(name: str) -> str:
    """Type of a command-line argument: a device that torch has here."""
    try:
        check_device(name)
    except TownletError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def machine() -> dict[str, Any]:
    """The machine and the versions of packages."""
    model = platform.processor() or platform.machine()
    about = Path("/proc/cpuinfo")
    if about.exists():
        names = [line.partition(":")[2].strip() for line in about.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    packages = {"townlet": __version__} | {name: version(name) for name in ("torch", "numba", "numpy", "gymnasium")}
    # With a load above the number of cores, only the CPU columns are meaningful.
    load_average = round(os.getloadavg()[0], 1)
    return {
        "cpu": model,
        "cores": available_cores(),
        "load": load_average,
        "python": platform.python_version(),
        **packages,
    }


def as_markdown(report: dict[str, Any]) -> str:
    """The report as text to paste into RESULTS.md."""
    about = ", ".join(f"{k} {v}" for k, v in report["machine"].items())
    lines = [f"Machine: {about}.", ""]
    if report["first_call"]:
        calls = report["first_call"]
        lines += [f"First call of the numba engine: {calls['cold_s']} s cold, {calls['cached_s']} s cached.", ""]
    lines += [
        "| rows | world | subject | threads | CPU best | CPU median | wall best | wall median | ready after |",
        "|---:|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for r in report["results"]:
        what = {"engine": "engine ", "VecEnv": "VecEnv over ", "peer": ""}[r["subject"]] + r["engine"]
        keys = ("best_per_cpu_s", "median_per_cpu_s", "best_per_wall_s", "median_per_wall_s")
        rates = " | ".join(short(r[k]) for k in keys)
        lines.append(f"| {r['rows']} | {r['world']} | {what} | {r['threads']} | {rates} | {r['ready_s']:.1f} s |")
    return "\n".join([*lines, *(f"\nSkipped: {reason}." for reason in report["skipped"])])


def short(rate: float) -> str:
    """1234567 → 1.23 M"""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if rate >= size:
            return f"{rate / size:.3g}{letter}"
    return f"{rate:.0f}"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--worlds", nargs="+", default=WORLDS, metavar="WORLD")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, metavar="N")
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES)
    parser.add_argument("--seconds", type=float, default=2.0, help="per subject, over all rounds")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--no-peers", action="store_true", help="measure only the town")
    parser.add_argument("--no-first-call", action="store_true", help="leave out the cold start (about 20 s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    report: dict[str, Any] = {"machine": machine()}
    report["first_call"] = {} if options.no_first_call else first_calls()
    for results, skipped in measure(options):
        report |= {"results": [r.as_json() for r in results], "skipped": skipped}
        if options.json:  # an interrupted run keeps its results
            options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(as_markdown(report))


if __name__ == "__main__":
    main()
