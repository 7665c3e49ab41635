"""The same recipe with several seeds, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from townlet.errors import EXIT_INTERRUPTED, TownletError
from townlet.interfaces.counters import Sink
from townlet.recipes.schema import Recipe
from townlet.rng import Streams
from townlet.runs.folder import Run
from townlet.runs.lock import Lock
from townlet.tasks.experiment import load_experiment
from townlet.train.session import TrainingOutcome, create_session

RESAMPLES: Final = 2000
LEVEL: Final = 0.95


def iqm(scores: Sequence[float]) -> float:
    """The interquartile mean: the mean of the middle half, each score weighted by how much of it lies there."""
    return float(_iqms(np.asarray([scores], np.float64))[0])


def _iqms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The interquartile mean of each row [k, n] → [k]."""
    edges = np.arange(rows.shape[1] + 1) / rows.shape[1]
    share = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    means: NDArray[np.float64] = (np.sort(rows) * share).sum(1) / share.sum()
    return means


def bootstrap_interval(scores: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The bootstrap interval of the IQM (Agarwal et al. 2021): drawn again from the scores, with repetition."""
    draws = Streams(seed).numpy("bootstrap").choice(np.asarray(scores, np.float64), (RESAMPLES, len(scores)))
    low, high = np.quantile(_iqms(draws), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class FailedSeed:
    """A seed whose training broke off; the run is what it left."""

    seed: int
    run: Run
    why: str
    exit_code: int


@dataclass(frozen=True)
class MultiSeedResult:
    """Runs that differ only in their seed."""

    metric: str
    outcomes: tuple[TrainingOutcome, ...]
    failed: tuple[FailedSeed, ...] = ()

    @property
    def interrupted(self) -> bool:
        """Whether the user interrupted a run."""
        return any(outcome.summary is None for outcome in self.outcomes)

    @property
    def exit_code(self) -> int:
        """0 if every seed finished."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        return max((one.exit_code for one in self.failed), default=0)

    @property
    def scores(self) -> list[float]:
        """The last evaluation of each finished run."""
        return [o.ending.last.score(self.metric) for o in self.outcomes if o.ending.last is not None]

    def in_words(self) -> str:
        """The interquartile mean with its confidence interval, and the seeds that failed."""
        if not self.scores:
            return "no seed was finished"
        low, high = bootstrap_interval(self.scores)
        count = f"{len(self.scores)} seed" + "s" * (len(self.scores) != 1)
        summary = f"IQM of {self.metric} over {count}: {iqm(self.scores):.1f}, 95 % interval {low:.1f} to {high:.1f}"
        seeds = ", ".join(str(one.seed) for one in self.failed)
        return f"{summary}; without the failed seed{'s' * (len(self.failed) != 1)} {seeds}" if seeds else summary


def train_seeds(
    asked: str, overrides: Sequence[str], root: Path, seeds: int, sink: Callable[[Recipe], Sink] | None = None
) -> MultiSeedResult:
    """Train the recipe with its seed and the next ones.

    A failed seed does not stop the others; an interruption does.
    """
    first = load_experiment(asked, overrides).recipe
    done: list[TrainingOutcome] = []
    failed: list[FailedSeed] = []
    for seed in range(first.seed, first.seed + seeds):
        loaded = load_experiment(asked, [*overrides, f"seed={seed}"])
        session = create_session(loaded, root)  # an error here affects all seeds, so it propagates
        try:
            with Lock(session.run.path) as lock:
                done.append(session.train(lock, [sink(loaded.recipe)] if sink else ()))
        except (TownletError, OSError, RuntimeError, MemoryError) as error:  # torch raises RuntimeError
            failed.append(_failed(seed, session.run, error))
            continue
        if done[-1].summary is None:
            break
    return MultiSeedResult(first.metric, tuple(done), tuple(failed))


def _failed(seed: int, run: Run, error: Exception) -> FailedSeed:
    if isinstance(error, TownletError):
        return FailedSeed(seed, run, error.diagnostics[0].what, error.exit_code)
    return FailedSeed(seed, run, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", 1)
