"""Simulation benchmark: engines stepped with random actions drawn in advance."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from townlet.town.world.tables import World

# Enough random actions that they do not repeat soon, but little memory compared with a town.
DRAWN_ACTIONS = 1 << 19
MIN_BATCHES, MAX_BATCHES = 2, 256


@dataclass(frozen=True)
class BenchmarkResult:
    """Summary of a benchmark's rounds; rates are environment steps per second."""

    subject: str
    world: str
    engine: str
    rows: int
    threads: int
    device: str
    rounds: int
    best_per_wall_s: float
    median_per_wall_s: float
    best_per_cpu_s: float
    median_per_cpu_s: float
    ready_s: float  # construction, compilation and the first pass over the actions

    def as_json(self) -> dict[str, Any]:
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(self).items()}


class Benchmark:
    """Measures the speed of `run_pass`, which returns the number of vector steps it took."""

    def __init__(
        self,
        run_pass: Callable[[], int],
        *,
        subject: str,
        engine: str,
        rows: int,
        world: str = "",
        threads: int = 1,
        device: str = "cpu",
        sync: Callable[[], None] = lambda: None,  # a CPU step is done when it returns; a GPU must be synchronized
    ) -> None:
        self._run_pass, self._sync, self._rows = run_pass, sync, rows
        self._about: dict[str, Any] = {"subject": subject, "world": world, "engine": engine, "device": device}
        self._about |= {"rows": rows, "threads": threads}
        self._rates: list[tuple[float, float]] = []  # environment steps per second of wall time and of CPU time
        started = time.perf_counter()
        self._run_pass()
        self._sync()
        self.ready_s = time.perf_counter() - started

    def run(self, seconds: float) -> tuple[float, float]:
        """Repeat `run_pass` for about `seconds`. Returns environment steps per second of wall time and of CPU time."""
        steps = 0
        self._sync()
        wall, cpu = time.perf_counter(), time.process_time()
        deadline = wall + seconds
        while time.perf_counter() < deadline:
            steps += self._run_pass()
        self._sync()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        self._rates.append((steps * self._rows / wall, steps * self._rows / max(cpu, 1e-9)))
        return self._rates[-1]

    def result(self) -> BenchmarkResult:
        """Best and median of the rounds so far."""
        wall, cpu = zip(*self._rates, strict=True)
        return BenchmarkResult(
            **self._about,
            rounds=len(self._rates),
            best_per_wall_s=max(wall),
            median_per_wall_s=statistics.median(wall),
            best_per_cpu_s=max(cpu),
            median_per_cpu_s=statistics.median(cpu),
            ready_s=self.ready_s,
        )


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def draw_actions(rows: int, actions: int, seed: int = 0) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Batches of uniformly random actions [rows]; the more rows, the fewer batches."""
    batches = min(max(DRAWN_ACTIONS // rows, MIN_BATCHES), MAX_BATCHES)
    return list(np.random.default_rng(seed).integers(0, actions, (batches, rows)))


def engine_benchmark(world: World, rows: int, kind: str, threads: int | None = None, device: str = "cpu") -> Benchmark:
    """Benchmark of an engine of this world, built and warmed up; steps include the resets of rows that ended."""
    from townlet.town.engines.engine import make_engine

    started = time.perf_counter()
    if kind != "numba":
        import torch

        torch.set_num_threads(threads or available_cores())
    engine = make_engine(world, rows, kind, device=device, threads=threads)
    engine.reset(0)
    step = engine.step
    batches: list[Any] = list(draw_actions(rows, len(world.actions)))
    if kind != "numba":
        batches = [torch.from_numpy(b).to(device) for b in batches]
    built = time.perf_counter() - started

    def run_pass() -> int:
        for actions in batches:
            step(actions)
        return len(batches)

    about: dict[str, Any] = {"world": world.name, "engine": kind, "rows": rows, "device": device}
    about["threads"] = getattr(engine, "threads", None) or threads or available_cores()  # one if there are few rows
    if device.startswith("cuda"):
        about["sync"] = torch.cuda.synchronize
    benchmark = Benchmark(run_pass, subject="engine", **about)
    benchmark.ready_s += built
    return benchmark


def run_interleaved(subjects: Sequence[Benchmark], seconds: float, rounds: int) -> list[BenchmarkResult]:
    """Measure all benchmarks in turns, so that noise affects all of them alike."""
    for _ in range(rounds):
        for subject in subjects:
            subject.run(seconds / rounds)
    return [s.result() for s in subjects]
