"""`townlet bench sim`: consistent results."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from cli.program import Program
from townlet.bench.simulation import Benchmark, draw_actions, run_interleaved


# The torch engine is compiled for each number of rows, which takes a while.
@pytest.mark.parametrize(("engine", "rows"), [("numba", (1, 32)), pytest.param("torch", (32,), marks=pytest.mark.long)])
def test_json_has_one_entry_for_each_number_of_rows(townlet: Program, engine: str, rows: tuple[int, ...]) -> None:
    wanted = [word for count in rows for word in ("--rows", str(count))]
    arguments = [*wanted, "--threads", "1", "--seconds", ".05", "--engine", engine, "--json"]
    done = townlet("bench", "sim", "town-l0", *arguments)
    assert done.code == 0
    results = json.loads(done.out)
    found = [(r["world"], r["rows"], r["engine"], r["threads"]) for r in results]
    assert found == [("town-l0", count, engine, 1) for count in rows]
    for r in results:
        assert r["best_per_wall_s"] >= r["median_per_wall_s"] > 0
        assert r["best_per_cpu_s"] >= r["median_per_cpu_s"] > 0


def test_the_table_names_what_was_measured(townlet: Program) -> None:
    done = townlet("bench", "sim", "--rows", "64", "--seconds", ".05")
    assert done.code == 0
    assert "town · numba engine" in done.out


def test_numba_does_not_run_on_a_gpu(townlet: Program) -> None:
    done = townlet("bench", "sim", "--device", "cuda")
    assert done.code == 2
    assert "--engine compiled" in done.err


def test_overrides_reach_the_world(townlet: Program) -> None:
    assert townlet("bench", "sim", "town", "nonsense=1").code == 2


def test_rates_count_rows_times_steps() -> None:
    calls = 0

    def play() -> int:
        nonlocal calls
        calls += 1
        return 10

    subject = Benchmark(play, subject="engine", engine="none", rows=7)
    ready, started = calls, time.perf_counter()
    per_wall_s, _ = subject.run(0.02)
    env_steps, seconds = (calls - ready) * 10 * 7, time.perf_counter() - started
    assert ready == 1
    assert env_steps / seconds <= per_wall_s <= env_steps / 0.02


def test_rounds_are_interleaved() -> None:
    order: list[str] = []

    def subject(name: str) -> Benchmark:
        def play() -> int:
            if not order or order[-1] != name:
                order.append(name)
            return 1

        return Benchmark(play, subject="engine", engine=name, rows=1)

    subjects = [subject("a"), subject("b")]
    order.clear()
    results = run_interleaved(subjects, 0.03, 3)
    assert order == ["a", "b"] * 3
    assert [r.rounds for r in results] == [3, 3]


def test_drawn_actions_are_valid_and_bounded() -> None:
    for rows in (1, 1024, 262144):
        batches = draw_actions(rows, 6)
        assert 2 <= len(batches) <= 256
        assert {b.shape for b in batches} == {(rows,)}
        drawn = np.concatenate(batches)
        assert set(np.unique(drawn)) == set(range(6))
