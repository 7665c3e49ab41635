"""Speed of rollouts and updates of PPO on a device: `python benchmarks/iterations.py`.

The same measurement as `townlet bench train --device cuda`, for machines without the dependencies of the command line.
"""

from __future__ import annotations

import argparse

from sim import device, machine, short
from townlet.agents.sb3_comparison import GPU_RECIPE
from townlet.bench.iterations import EPOCHS, ITERATIONS, MINIBATCHES, measure_iterations


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="such as agent.n_steps=64")
    parser.add_argument("--recipe", default=GPU_RECIPE)
    parser.add_argument("--device", type=device, default="cuda")
    parser.add_argument("--rows", type=int, nargs="+", default=[65536, 262144])
    parser.add_argument("--epochs", type=int, nargs="+", default=EPOCHS)
    parser.add_argument("--minibatches", type=int, default=MINIBATCHES)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    return parser.parse_args()


def main() -> None:
    o = parse()
    print(", ".join(f"{name} {value}" for name, value in machine().items()), flush=True)
    print(
        "| rows | epochs | rollout | update | steps/s | first iteration |\n|---:|---:|---:|---:|---:|---:|", flush=True
    )
    for rows in o.rows:
        for epochs in o.epochs:
            times = measure_iterations(
                rows, epochs, o.device, recipe=o.recipe, minibatches=o.minibatches, iterations=o.iterations,
                overrides=o.overrides,
            )  # fmt: skip
            rollout_ms, update_ms = times.rollout_s * 1000, times.update_s * 1000
            rate, first = short(times.steps_per_second), f"{times.first_s:.1f} s"
            columns = f"{rollout_ms:.1f} ms | {update_ms:.1f} ms | {rate} | {first}"
            print(f"| {rows:,} | {epochs} | {columns} |", flush=True)


if __name__ == "__main__":
    main()
