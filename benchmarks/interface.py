"""Speed of the Gymnasium interface beside the engine below it, interleaved in one process.

    python benchmarks/interface.py

`make` is the environment as `gymnasium.make` returns it, with OrderEnforcing and PassiveEnvChecker. Actions are random
and drawn before the measurement. Each figure is that of the best round, since other work on the machine only makes
rounds slower: steps of the agent per second of CPU time, on one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import gymnasium
import numpy as np

import townlet
from townlet.town.engines.engine import make_engine

ID = "Townlet/Town-v0"
BATCHES = 64  # of random actions, used in turn


def steps_per_second(step: Callable[[int], object], rows: int, seconds: float) -> float:
    count, started = 0, time.process_time()
    while (elapsed := time.process_time() - started) < seconds:
        for index in range(BATCHES):
            step(index)
        count += BATCHES
    return rows * count / elapsed


def subjects(rows: int) -> dict[str, Callable[[int], object]]:
    """A function for each interface that takes one step of all rows."""
    world = townlet.load_world(townlet.IDS[ID])
    actions = np.random.default_rng(0).integers(0, len(world.actions), (BATCHES, rows))
    engine = make_engine(world, rows, threads=1)
    engine.reset(0)
    found: dict[str, Callable[[int], object]] = {"engine": lambda index: engine.step(actions[index])}
    for mode in ("next_step", "same_step"):
        envs = gymnasium.make_vec(ID, rows, autoreset_mode=mode)
        envs.reset(seed=0)
        found[f"make_vec, {mode}"] = lambda index, envs=envs: envs.step(actions[index])  # type: ignore[misc]
    if rows == 1:
        env = gymnasium.make(ID)
        env.reset(seed=0)
        single = actions[:, 0].tolist()

        def step(index: int) -> None:
            _, _, terminated, truncated, _ = env.step(single[index])
            if terminated or truncated:
                env.reset()

        found["make"] = step
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the Gymnasium interface beside its engine.")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 64, 1024, 4096])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=0.03, help="of each interface in each round")
    given = parser.parse_args()
    print(f"{'rows':>6}  {'interface':<20}{'steps/s':>12}{'of the engine':>15}")
    for rows in given.rows:
        tried = subjects(rows)
        speeds: dict[str, list[float]] = {name: [] for name in tried}
        for step in tried.values():
            step(0)  # compile
        for _ in range(given.rounds):
            for name, step in tried.items():
                speeds[name].append(steps_per_second(step, rows, given.seconds))
        for name, found in speeds.items():
            print(f"{rows:>6}  {name:<20}{max(found):>12,.0f}{max(found) / max(speeds['engine']):>14.0%}")


if __name__ == "__main__":
    main()
