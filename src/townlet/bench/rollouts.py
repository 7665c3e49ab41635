"""How fast an agent with rollouts and epochs trains on a device, round by round.

A round is all that training does but for the log: policy, draws, town, storage, advantages and epochs of the update.
The first one compiles everything and is told apart.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch

from townlet.agents.sb3_comparison import GPU_RECIPE
from townlet.bench.training import NullListener
from townlet.tasks.experiment import load_experiment
from townlet.train.build import build
from townlet.train.collect import collect

EPOCHS: Final = (1, 4)
MINIBATCHES: Final = 4
ITERATIONS: Final = 12


@dataclass(frozen=True)
class IterationTimes:
    """Of one size: medians of several rounds, in seconds."""

    rows: int
    steps: int  # of every row in a round
    epochs: int
    device: str
    played_s: float
    learned_s: float
    first_s: float  # with all compiling

    @property
    def per_second(self) -> float:
        """Steps of all rows."""
        return self.rows * self.steps / (self.played_s + self.learned_s)

    def as_json(self) -> dict[str, Any]:
        """All of it for programs."""
        return asdict(self) | {"median_per_wall_s": round(self.per_second)}


def measure_iterations(
    rows: int, epochs: int, device: str, *, recipe: str = GPU_RECIPE, minibatches: int = MINIBATCHES,
    rounds: int = ITERATIONS, words: Sequence[str] = (),
) -> IterationTimes:  # fmt: skip
    """Rounds of a recipe with so many rows, epochs and minibatches; `words` are further keys of it."""
    sizes = [f"device={device}", f"rows={rows}", f"agent.epochs={epochs}", f"agent.batch_size={1 / minibatches}"]
    t, ear = build(load_experiment(recipe, [*sizes, *words])), NullListener()

    def play() -> None:
        collect(t, t.agent.update_interval, ear)

    first = _seconds(play, device) + _seconds(t.agent.learn, device)
    found = [(_seconds(play, device), _seconds(t.agent.learn, device)) for _ in range(rounds)]
    played, learned = (statistics.median(column) for column in zip(*found, strict=True))
    return IterationTimes(rows, t.agent.update_interval, epochs, device, played, learned, first)


def _seconds(work: Callable[[], object], device: str) -> float:
    """How long it takes until the device is done."""
    begun = time.perf_counter()
    work()
    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun
