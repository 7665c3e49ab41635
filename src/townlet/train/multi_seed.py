"""Training a recipe with several seeds, and the interquartile mean of their scores."""

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
CONFIDENCE: Final = 0.95


def iqm(scores: Sequence[float]) -> float:
    """The interquartile mean: the mean of the middle half; a score at its edge counts in part."""
    return float(_iqms(np.asarray([scores], np.float64))[0])


def _iqms(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """The interquartile mean [k] of each of k samples [k, n]."""
    edges = np.arange(samples.shape[1] + 1) / samples.shape[1]
    weights = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    means: NDArray[np.float64] = (np.sort(samples) * weights).sum(1) / weights.sum()
    return means


def bootstrap_interval(scores: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The 95% bootstrap confidence interval of the IQM (Agarwal et al. 2021), from resampling with replacement."""
    draws = Streams(seed).numpy("bootstrap").choice(np.asarray(scores, np.float64), (RESAMPLES, len(scores)))
    low, high = np.quantile(_iqms(draws), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class FailedSeed:
    """A seed whose training failed, and its unfinished run."""

    seed: int
    run: Run
    why: str
    exit_code: int


@dataclass(frozen=True)
class MultiSeedResult:
    """Outcomes of runs that differ only in their seed, and the seeds that failed."""

    metric: str
    outcomes: tuple[TrainingOutcome, ...]
    failed: tuple[FailedSeed, ...] = ()

    @property
    def interrupted(self) -> bool:
        return any(outcome.summary is None for outcome in self.outcomes)

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return EXIT_INTERRUPTED
        return max((failure.exit_code for failure in self.failed), default=0)

    @property
    def scores(self) -> list[float]:
        """The score of each run's last evaluation."""
        return [final.score(self.metric) for o in self.outcomes if (final := o.ending.evaluation) is not None]

    def summary(self) -> str:
        """The interquartile mean with its confidence interval, and the seeds that failed."""
        if not self.scores:
            return "no seed finished"
        low, high = bootstrap_interval(self.scores)
        count = f"{len(self.scores)} seed" + "s" * (len(self.scores) != 1)
        text = f"IQM of {self.metric} over {count}: {iqm(self.scores):.1f}, 95 % interval {low:.1f} to {high:.1f}"
        seeds = ", ".join(str(failure.seed) for failure in self.failed)
        return f"{text}; failed: seed{'s' * (len(self.failed) != 1)} {seeds}" if seeds else text


def train_seeds(
    recipe: str, overrides: Sequence[str], root: Path, seeds: int, sink: Callable[[Recipe], Sink] | None = None
) -> MultiSeedResult:
    """Train the recipe with `seeds` consecutive seeds, starting from its own.

    A failed seed does not stop the others; an interruption does. `sink` makes an additional sink for each run.
    """
    first = load_experiment(recipe, overrides).recipe
    done: list[TrainingOutcome] = []
    failed: list[FailedSeed] = []
    for seed in range(first.seed, first.seed + seeds):
        loaded = load_experiment(recipe, [*overrides, f"seed={seed}"])
        session = create_session(loaded, root)  # an error here affects all seeds, so it propagates
        try:
            with Lock(session.run.path) as lock:
                done.append(session.train(lock, [sink(loaded.recipe)] if sink else ()))
        except TownletError as error:
            failed.append(FailedSeed(seed, session.run, error.diagnostics[0].what, error.exit_code))
            continue
        except (OSError, RuntimeError, MemoryError) as error:  # torch raises RuntimeError
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            failed.append(FailedSeed(seed, session.run, why, 1))
            continue
        if done[-1].summary is None:
            break
    return MultiSeedResult(first.metric, tuple(done), tuple(failed))
