"""Processor time of training in two source trees: `python benchmarks/before_after.py OTHER_TREE RECIPE ...`.

Both trees train at the same time, each on a separate core, then again with the cores exchanged. The time
is that of rollouts and updates, after a warm-up, on one thread.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parents[1]
CORES: Final = ((0, 1), (1, 0))


def measure(recipe: str, seconds: float) -> float:
    """Milliseconds of processor time per vector step."""
    import torch  # this function also runs in older trees, so it uses only names that both have

    from townlet.tasks.experiment import load_experiment
    from townlet.train.collect import collect
    from townlet.train.episodes import NullListener
    from townlet.train.training import build_training

    torch.set_num_threads(1)
    training = build_training(load_experiment(recipe, ["threads=1"]))
    agent = training.agent
    interval: int = getattr(agent, "update_interval", 0) or agent.round  # type: ignore[attr-defined]  # in older trees

    def train(until: float) -> int:
        steps = 0
        while time.monotonic() < until:
            collect(training, interval, NullListener())
            agent.learn()
            steps += interval
        return steps

    train(time.monotonic() + 0.4 * seconds)
    begin = time.process_time()
    steps = train(time.monotonic() + seconds)
    return 1000 * (time.process_time() - begin) / steps


def start(tree: Path, recipe: str, seconds: float, core: int) -> subprocess.Popen[str]:
    """Measure one tree in a separate process."""
    command = ["taskset", "-c", str(core), sys.executable, __file__, "--measure", str(tree), recipe]
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    command += ["--seconds", str(seconds)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path, help="the other source tree, such as a worktree of an earlier commit")
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(measure(options.recipes[0], options.seconds))
        return
    print("| recipe | before (ms) | after (ms) | ratio |\n|---|---:|---:|---:|", flush=True)
    for recipe in options.recipes:
        times = []
        for cores in CORES:
            trees = options.tree.resolve(), HERE
            processes = [start(tree, recipe, options.seconds, core) for tree, core in zip(trees, cores, strict=True)]
            times.append([float(process.communicate()[0]) for process in processes])
        before, after = (sum(column) / len(times) for column in zip(*times, strict=True))
        print(f"| {recipe} | {before:.2f} | {after:.2f} | {after / before:.3f} |", flush=True)


if __name__ == "__main__":
    main()
