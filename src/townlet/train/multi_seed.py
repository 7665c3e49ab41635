"""Training a recipe with several seeds, one after the other or in parallel processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from townlet.errors import EXIT_INTERRUPTED, TownletError
from townlet.interfaces.counters import Sink
from townlet.recipes.schema import Recipe
from townlet.runs.folder import Run
from townlet.runs.lock import Lock
from townlet.runs.overview import STOPPED
from townlet.runs.statistics import bootstrap_interval, interval_text, iqm, score_text
from townlet.tasks.experiment import load_experiment
from townlet.train.session import create_session


class RunHooks(NamedTuple):
    """What observes the training of a run, and may stop it."""

    sinks: Sequence[Sink] = ()
    stop_reason: Callable[[], str | None] = lambda: None


MakeHooks = Callable[[Run, Recipe], RunHooks]  # called for every run before its first step


def no_hooks(run: Run, recipe: Recipe) -> RunHooks:
    return RunHooks()


@dataclass(frozen=True)
class SeedResult:
    """How the training of one seed ended."""

    seed: int
    run: Run | None = None  # None if it did not start
    score: float | None = None  # of the last evaluation; None unless the recipe's end was reached
    seconds: float = 0.0
    failure: str = ""  # why it failed
    exit_code: int = 0

    @property
    def ended_normally(self) -> bool:
        """Whether it was neither interrupted nor failed; a callback may have stopped it early."""
        return self.run is not None and self.exit_code == 0


@dataclass(frozen=True)
class MultiSeedResult:
    """Results of runs that differ only in their seed, in the order of their seeds."""

    metric: str
    results: tuple[SeedResult, ...]

    @property
    def interrupted(self) -> list[SeedResult]:
        """Seeds that were interrupted or not started."""
        return [result for result in self.results if result.exit_code == EXIT_INTERRUPTED]

    @property
    def failed(self) -> list[SeedResult]:
        return [result for result in self.results if result.failure]

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return EXIT_INTERRUPTED
        return max((result.exit_code for result in self.results), default=0)

    @property
    def scores(self) -> list[float]:
        """The score of each finished run's last evaluation."""
        return [result.score for result in self.results if result.score is not None]

    def summary(self) -> str:
        """The interquartile mean with its confidence interval, and the seeds that failed."""
        if not self.scores:
            return "no seed finished"
        low, high = bootstrap_interval(self.scores)
        count = f"{len(self.scores)} seed" + "s" * (len(self.scores) != 1)
        text = f"IQM of {self.metric} over {count}: {score_text(iqm(self.scores))}, {interval_text(low, high)}"
        seeds = ", ".join(str(failure.seed) for failure in self.failed)
        return f"{text}; failed: seed{'s' * (len(self.failed) != 1)} {seeds}" if seeds else text


# Trains seeds, perhaps in parallel, and yields each result as it arrives; it ends early after an interruption.
SeedTrainer = Callable[[Sequence[int]], Iterator[SeedResult]]


def train_seeds(
    recipe: str, overrides: Sequence[str], root: Path, seeds: int, make_hooks: MakeHooks = no_hooks
) -> MultiSeedResult:
    """Train the recipe with `seeds` consecutive seeds, starting from its own, one after the other in this process.

    A failed seed does not stop the others; an interruption does.
    """

    def one_by_one(numbers: Sequence[int]) -> Iterator[SeedResult]:
        for seed in numbers:
            yield (result := train_seed(recipe, overrides, root, seed, make_hooks))
            if result.exit_code == EXIT_INTERRUPTED:
                return

    return collect_results(recipe, overrides, seeds, one_by_one)


def collect_results(recipe: str, overrides: Sequence[str], seeds: int, train: SeedTrainer) -> MultiSeedResult:
    """The results of all seeds; those that were not started after an interruption count as interrupted."""
    first = load_experiment(recipe, overrides).recipe
    numbers = range(first.seed, first.seed + seeds)
    results = {result.seed: result for result in train(numbers)}
    ordered = (results.get(seed, SeedResult(seed, exit_code=EXIT_INTERRUPTED)) for seed in numbers)
    return MultiSeedResult(first.metric, tuple(ordered))


def train_seed(
    recipe: str, overrides: Sequence[str], root: Path, seed: int, make_hooks: MakeHooks = no_hooks
) -> SeedResult:
    """Train one seed in this process; an error before the training starts is raised, because it affects all seeds."""
    loaded = load_experiment(recipe, [*overrides, f"seed={seed}"])
    session = create_session(loaded, root)
    hooks = make_hooks(session.run, loaded.recipe)
    try:
        with Lock(session.run.path) as lock:
            outcome = session.train(lock, hooks.sinks, stop_reason=hooks.stop_reason)
    except TownletError as error:
        return SeedResult(seed, session.run, failure=error.diagnostics[0].what, exit_code=error.exit_code)
    except (OSError, RuntimeError, MemoryError) as error:  # torch raises RuntimeError
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        return SeedResult(seed, session.run, failure=why, exit_code=1)
    final = outcome.ending.evaluation
    score = final.score(loaded.recipe.metric) if outcome.summary is not None and final is not None else None
    ended = outcome.summary is not None or outcome.ending.why == STOPPED
    return SeedResult(seed, session.run, score, outcome.seconds, exit_code=0 if ended else EXIT_INTERRUPTED)
