"""Gain of the fast paths in `townlet.agents.accelerated`: the same training with and without them, interleaved."""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Final

from townlet.tasks.experiment import load_experiment
from townlet.train.collect import collect
from townlet.train.episodes import NullListener
from townlet.train.training import Training, build_training

RECIPES: Final = ("town:ppo", "town:dqn", "town:life", "CartPole-v1:ppo", "CartPole-v1:dqn")


def time_iteration(training: Training) -> tuple[float, float]:
    """Seconds of a rollout, and of its update; rollouts before the first update are repeated."""
    while True:
        begin = time.perf_counter()
        collect(training, training.agent.update_interval, NullListener())
        collected = time.perf_counter()
        if training.agent.learn() is not None:
            return collected - begin, time.perf_counter() - collected


def measure(recipe: str, seconds: float, overrides: list[str]) -> tuple[list[float], list[float]]:
    """Median milliseconds of rollout and update, with and without the fast paths."""
    both = [build_training(load_experiment(recipe, [f"agent.accelerate={on}", *overrides])) for on in ("true", "false")]
    times: list[list[tuple[float, float]]] = [[], []]
    for training in both:
        for _ in range(5):
            time_iteration(training)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for training, samples in zip(both, times, strict=True):
            samples.append(time_iteration(training))
    for training in both:
        training.env.close()
    accelerated, autograd = ([1000 * median(column) for column in zip(*samples, strict=True)] for samples in times)
    return accelerated, autograd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=RECIPES)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", dest="overrides")
    options = parser.parse_args()
    print("| recipe | update, autograd (ms) | update, accelerated (ms) | gain | gain of rollout and update |")
    print("|---|---:|---:|---:|---:|", flush=True)
    for recipe in options.recipes:
        accelerated, autograd = measure(recipe, options.seconds, options.overrides)
        gain, total_gain = autograd[1] / accelerated[1], sum(autograd) / sum(accelerated)
        times = f"{autograd[1]:.2f} | {accelerated[1]:.2f}"
        print(f"| {recipe} | {times} | {gain:.2f} × | {total_gain:.2f} × |", flush=True)


if __name__ == "__main__":
    main()
