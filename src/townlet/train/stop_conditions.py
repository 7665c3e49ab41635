"""When a run ends, pauses and is saved."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from townlet.recipes.schema import Recipe
from townlet.tasks.evaluation import Evaluated
from townlet.train.build import Training
from townlet.train.signals import Interrupted

# Why a run is over, by the key of its budget that says so.
ENDS: Final = {
    "env_steps": "all steps of the budget are spent",
    "minutes": "the time of the budget is spent",
    "episodes": "all episodes of the budget are lived",
    "threshold": "an evaluation reached the threshold",
    "train_threshold": "the last 100 episodes of training reached the threshold",
}


@dataclass
class Limits:
    """When the loop ends, and when it does what it does now and then. Moments are in env_steps."""

    recipe: Recipe
    evaluate_every: int
    pause_at: int | None = None
    asked: Callable[[], bool] = lambda: False  # somebody wants it to stop
    stop: Callable[[], str | None] = lambda: None  # why a program wants it to stop, once it does
    spent: float = 0.0  # seconds of training before this process
    best: float | None = None  # score of the best evaluation so far
    over: str | None = None  # why the run had ended before this process began
    begun: float = field(default_factory=time.monotonic)
    saved: float = field(default_factory=time.monotonic)
    saved_episodes: int = 0
    owed: bool = False  # the evaluation of this moment was interrupted and is still to be made
    kept: tuple[int, bool] | None = None  # (env_steps, owed) of the last checkpoint

    @property
    def seconds(self) -> float:
        """Time on the clock, over all processes that trained this run."""
        return self.spent + time.monotonic() - self.begun

    def ending(self, t: Training, last: Evaluated | None) -> str | None:
        """Why the run is over, or None."""
        budget, now = self.recipe.budget, t.counters
        if budget.env_steps is not None and now.env_steps >= budget.env_steps:
            return ENDS["env_steps"]
        if budget.minutes is not None and self.seconds >= 60 * budget.minutes:
            return ENDS["minutes"]
        if budget.episodes is not None and now.episodes >= budget.episodes:
            return ENDS["episodes"]
        if budget.threshold is not None and last and last.score(self.recipe.metric) >= budget.threshold:
            return ENDS["threshold"]
        if budget.train_threshold is not None and (mean := t.recent.mean) is not None:
            return ENDS["train_threshold"] if mean >= budget.train_threshold else None
        return None

    def pausing(self, t: Training) -> str | None:
        """Why the run stops before its end, or None."""
        if self.asked():
            return "interrupted"
        if self.pause_at is not None and t.counters.env_steps >= self.pause_at:
            return "paused"
        return self.stop()

    def ask(self) -> None:
        """For what takes long and can be done again: interrupts it when somebody wants the run to stop."""
        if self.asked():
            raise Interrupted

    def evaluation_due(self, t: Training) -> bool:
        """Whether the round that has just ended went over a moment of evaluation."""
        now, steps = t.counters.env_steps, t.rows * t.agent.update_interval
        if (warmup := self.recipe.evaluation.warmup) and now < self.recipe.to_env_steps(warmup):
            return False
        return now // self.evaluate_every > (now - steps) // self.evaluate_every

    def best_yet(self, found: Evaluated | None) -> bool:
        """Whether this evaluation is better than every one before."""
        return found is not None and (self.best is None or found.score(self.recipe.metric) > self.best)

    def save_due(self, t: Training) -> bool:
        """Whether enough time or episodes went by since the last checkpoint."""
        settings = self.recipe.checkpoints
        lived = t.counters.episodes - self.saved_episodes
        by_episodes = settings.every_episodes is not None and lived >= settings.every_episodes
        return by_episodes or time.monotonic() - self.saved >= 60 * settings.minutes

    def is_kept(self, t: Training) -> bool:
        """Whether the last checkpoint is one of this very moment."""
        return self.kept == (t.counters.env_steps, self.owed)

    def note_kept(self, t: Training) -> None:
        """There is a checkpoint of this moment."""
        self.saved, self.saved_episodes = time.monotonic(), t.counters.episodes
        self.kept = (t.counters.env_steps, self.owed)
