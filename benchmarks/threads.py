"""Speed of the town on all cores, relative to one thread: `python benchmarks/threads.py`.

Each round measures the town on one thread and then on all cores. The result is the median of the ratios, because the
speed of the machine varies between rounds.
"""

from __future__ import annotations

import argparse
import statistics

from townlet.bench.simulation import available_cores, engine_benchmark
from townlet.town.world.load import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.1, help="per half of a round")
    options = parser.parse_args()
    world = load("town")
    one, all_cores = (engine_benchmark(world, options.rows, "numba", threads=n) for n in (1, available_cores()))
    pairs = [(one.run(options.seconds), all_cores.run(options.seconds)) for _ in range(options.rounds)]
    ratios = sorted(many / single for (single, _), (many, _) in pairs)
    low, high = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
    print(
        f"town, {options.rows} rows: {available_cores()} threads are {statistics.median(ratios):.2f} × one "
        f"(middle half of {options.rounds} rounds: {low:.2f} to {high:.2f})"
    )


if __name__ == "__main__":
    main()
