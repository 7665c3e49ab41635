"""The training loop: collect → learn → log → evaluate → save. It knows the contract and nothing of towns or agents."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from townlet.train.build import Training
from townlet.train.collect import Listener, collect
from townlet.train.evaluate import Evaluated
from townlet.train.guards import check_figures, check_weights
from townlet.train.recipe import Recipe


class Keeper(Protocol):
    """Who writes checkpoints."""

    def save(self, score: float | None = None, ended: str | None = None) -> None:
        """Commit the run as it is now; `score` is that of an evaluation at this moment, `ended` why it is over."""


class Log(Listener, Protocol):
    """Who writes down what happens; see `townlet.train.journal.Journal`."""

    def update(self, figures: Mapping[str, float]) -> None:
        """Figures of one update."""

    def tick(self) -> None:
        """After every round."""

    def evaluated(self, found: Evaluated) -> None:
        """An evaluation of the agent."""

    def finish(self) -> None:
        """The run is over."""


@dataclass
class Limits:
    """When the loop ends, and when it does what it does now and then. Moments are in env_steps."""

    recipe: Recipe
    evaluate_every: int
    pause_at: int | None = None
    asked: Callable[[], bool] = lambda: False  # somebody wants it to stop
    spent: float = 0.0  # seconds of training before this process
    best: float | None = None  # score of the best evaluation so far
    over: str | None = None  # why the run had ended before this process began
    begun: float = field(default_factory=time.monotonic)
    saved: float = field(default_factory=time.monotonic)
    saved_episodes: int = 0

    @property
    def seconds(self) -> float:
        """Time on the clock, over all processes that trained this run."""
        return self.spent + time.monotonic() - self.begun

    def ending(self, t: Training, last: Evaluated | None) -> str | None:
        """Why the run is over, or None."""
        budget, now = self.recipe.budget, t.counters
        if budget.env_steps is not None and now.env_steps >= budget.env_steps:
            return "all steps of the budget are spent"
        if budget.minutes is not None and self.seconds >= 60 * budget.minutes:
            return "the time of the budget is spent"
        if budget.episodes is not None and now.episodes >= budget.episodes:
            return "all episodes of the budget are lived"
        if budget.threshold is not None and last and last.score(self.recipe.evaluation.metric) >= budget.threshold:
            return "an evaluation reached the threshold"
        return None

    def pausing(self, t: Training) -> str | None:
        """Why the run stops before its end, or None."""
        if self.asked():
            return "interrupted"
        if self.pause_at is not None and t.counters.env_steps >= self.pause_at:
            return "paused"
        return None

    def best_yet(self, found: Evaluated | None) -> bool:
        """Whether this evaluation is better than every one before."""
        return found is not None and (self.best is None or found.score(self.recipe.evaluation.metric) > self.best)

    def save_due(self, t: Training) -> bool:
        """Whether enough time or episodes went by since the last checkpoint."""
        settings = self.recipe.checkpoints
        lived = t.counters.episodes - self.saved_episodes
        by_episodes = settings.every_episodes is not None and lived >= settings.every_episodes
        return by_episodes or time.monotonic() - self.saved >= 60 * settings.minutes


@dataclass(frozen=True)
class Ending:
    """How a loop ended."""

    why: str
    finished: bool  # or only stopped on the way
    last: Evaluated | None  # the evaluation at its end


def loop(t: Training, limits: Limits, log: Log, keeper: Keeper, evaluate: Callable[[], Evaluated]) -> Ending:
    """Train until the budget is spent or somebody asks to stop; the run is saved either way.

    Each moment is saved at most once, after all that is said of it: whoever is killed here can go on exactly.
    """
    if limits.over:
        return Ending(limits.over, True, evaluate())
    last, why, stop, weights = None, None, limits.pausing(t), t.agent.parameters()
    while not stop:
        before = t.counters.env_steps
        _round(t, weights, log)
        last = None
        if t.counters.env_steps // limits.evaluate_every > before // limits.evaluate_every:
            last = _evaluate(log, evaluate)
        why = limits.ending(t, last)
        stop = why or limits.pausing(t)
        if why:
            last = last or _evaluate(log, evaluate)
            log.finish()
        if stop or limits.best_yet(last) or limits.save_due(t):
            _save(t, limits, keeper, last, why)
    return Ending(stop, bool(why), last)


def _round(t: Training, weights: Mapping[str, Tensor], log: Log) -> None:
    """Collect and learn; nothing that is not a number goes on."""
    collect(t, t.agent.round, log)
    figures = t.agent.learn()
    when = f"at env_steps {t.counters.env_steps}"
    if figures is not None:
        check_figures(figures, when)
        check_weights(weights, when)
        log.update(figures)
    log.tick()


def _evaluate(log: Log, evaluate: Callable[[], Evaluated]) -> Evaluated:
    log.evaluated(found := evaluate())
    return found


def _save(t: Training, limits: Limits, keeper: Keeper, last: Evaluated | None, why: str | None) -> None:
    """Commit; an evaluation made at this very moment goes with it, and may be the best so far."""
    score = None if last is None else last.score(limits.recipe.evaluation.metric)
    keeper.save(score, why)
    limits.best = score if limits.best_yet(last) else limits.best
    limits.saved, limits.saved_episodes = time.monotonic(), t.counters.episodes
