"""Benchmark of on-policy training on a device: times of iterations.

An iteration is a rollout and its update, without logging. The first one compiles everything and is reported separately.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import torch

from townlet.agents.sb3_comparison import GPU_RECIPE
from townlet.tasks.experiment import load_experiment
from townlet.train.collect import collect
from townlet.train.episodes import NullListener
from townlet.train.training import build_training

EPOCHS: Final = (1, 4)
MINIBATCHES: Final = 4
ITERATIONS: Final = 12


@dataclass(frozen=True)
class IterationTimes:
    """Median times of the rollouts and updates of several iterations, in seconds."""

    rows: int
    steps: int  # steps of every row in a rollout
    epochs: int
    device: str
    rollout_s: float
    update_s: float
    first_s: float  # the first iteration, including compilation

    @property
    def steps_per_second(self) -> float:
        """Environment steps of an iteration divided by the sum of both medians."""
        return self.rows * self.steps / (self.rollout_s + self.update_s)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"steps_per_second": round(self.steps_per_second)}


def measure_iterations(
    rows: int, epochs: int, device: str, *, recipe: str = GPU_RECIPE, minibatches: int = MINIBATCHES,
    iterations: int = ITERATIONS, overrides: Sequence[str] = (),
) -> IterationTimes:  # fmt: skip
    """Time `iterations` of a recipe with these rows, epochs and minibatches, and further `overrides`."""
    sizes = [f"device={device}", f"rows={rows}", f"agent.epochs={epochs}", f"agent.batch_size={1 / minibatches}"]
    t = build_training(load_experiment(recipe, [*sizes, *overrides]))
    rollout = partial(collect, t, t.agent.update_interval, NullListener())
    times = [(_seconds(rollout, device), _seconds(t.agent.learn, device)) for _ in range(iterations + 1)]
    rollout_s, update_s = (statistics.median(column) for column in zip(*times[1:], strict=True))
    return IterationTimes(rows, t.agent.update_interval, epochs, device, rollout_s, update_s, sum(times[0]))


def _seconds(work: Callable[[], object], device: str) -> float:
    """The time of `work` in seconds, until the device is done."""
    started = time.perf_counter()
    work()
    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started
