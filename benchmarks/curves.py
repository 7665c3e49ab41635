"""Cost of a step by number of rows and by size of the world: `python benchmarks/curves.py`.

Appends one line of JSON per size to a file, so that several machines can be measured; `benchmarks/draw.py` plots the
file. One property of the town is varied at a time: meters, affordances or the size of the map.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

import torch

from sim import device, machine
from townlet.bench.simulation import engine_benchmark, run_interleaved
from townlet.town.world.load import load
from townlet.town.world.tables import World

ROWS: Final = tuple(1 << k for k in range(6, 23, 2))  # 2⁶ … 2²²
SIZES: Final = {"meters": (8, 16, 24, 31), "affordances": (15, 30, 60), "grid": (8, 16, 32)}
CPU_ROWS: Final = 16384  # rows on a CPU while the world is varied
GPU_ROWS: Final = 1 << 18  # rows on a GPU while the world is varied
RESULTS: Final = Path(__file__).with_name("curves.jsonl")
WARMUP_ROWS: Final = 64
ROUNDS: Final = 3


def resized_world(what: str, size: int) -> World:
    """The standard town with property `what` set to `size`; unchanged if rows are varied."""
    if what == "rows":
        return load("town")
    lines = ["extends: town"]
    if what == "grid":
        lines.append(f"map: {{size: [{size}, {size}]}}")
    elif what == "meters":
        lines.append("meters:")
        lines += [f"  - {{name: more{k}, start: 1.0, decay: .001, group: tertiary}}" for k in range(8, size)]
    else:
        lines += ["map: {size: [16, 16]}", "affordances:"]
        places = ((x, y) for y in range(8, 16) for x in range(16))
        more = zip(range(15, size), places, strict=False)
        lines += [f"  - {{name: More{k}, cell: [{x}, {y}], each_tick: {{mood: .01}}}}" for k, (x, y) in more]
    if lines[-1].endswith(":"):
        lines.pop()  # the standard town already has this many
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{what}-{size}.yaml"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return load(str(file))


def sizes(on_gpu: bool) -> Iterator[tuple[str, int, int]]:
    """Yield the varied property, its size, and the number of rows."""
    for rows in ROWS:
        yield "rows", rows, rows
    for what, world_sizes in SIZES.items():
        for size in world_sizes:
            yield what, size, GPU_ROWS if on_gpu else CPU_ROWS


def resident() -> int:
    """Resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure(engine: str, device: str, seconds: float, what: str, size: int, rows: int) -> dict[str, Any]:
    """Measure one of the `sizes`; in a separate process, because memory freed earlier would distort the difference."""
    world, on_gpu = resized_world(what, size), device != "cpu"
    if not on_gpu:
        engine_benchmark(world, WARMUP_ROWS, engine, 1)  # loads and compiles everything
    before = resident()
    subject = engine_benchmark(world, rows, engine, None if on_gpu else 1, device)
    result = run_interleaved([subject], seconds, ROUNDS)[0].as_json()
    held = torch.cuda.max_memory_allocated() if on_gpu else resident() - before
    return {"varied": what, "size": size, "seen": world.layout.size, "bytes": held, **result, "machine": machine()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--engine", default="numba", choices=("numba", "torch", "compiled"))
    parser.add_argument("--device", type=device, default="cpu")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each size")
    parser.add_argument("--file", type=Path, default=RESULTS)
    o = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, max_tasks_per_child=1) as pool:
        for size in sizes(o.device != "cpu"):
            line = pool.submit(measure, o.engine, o.device, o.seconds, *size).result()
            with o.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            rate = f"{line['median_per_wall_s']:,.0f} steps/s"
            print(f"{o.engine} on {o.device}, {line['varied']} {line['size']}: {rate}", flush=True)


if __name__ == "__main__":
    main()
