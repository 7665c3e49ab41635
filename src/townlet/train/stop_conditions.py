"""When a run ends, pauses, evaluates and saves, and the signals that interrupt it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from townlet import child_processes
from townlet.errors import EXIT_INTERRUPTED
from townlet.interrupt import stop_requested
from townlet.recipes.schema import Recipe
from townlet.runs import snapshots
from townlet.tasks.evaluation import EvaluationResult
from townlet.train.training import Training

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# Why a run is over, by the key of the budget.
END_REASONS: Final = {
    "env_steps": "all steps of the budget are spent",
    "minutes": "the time of the budget is spent",
    "episodes": "all episodes of the budget are spent",
    "threshold": "an evaluation reached the threshold",
    "train_threshold": "the last 100 episodes of training reached the threshold",
}


class Interrupted(KeyboardInterrupt):
    """A stop was requested during work that can be repeated; uncaught it acts like Ctrl-C."""


class SignalHandler:
    """Context in which the first Ctrl-C or SIGTERM sets `requested` and the second exits immediately.

    Once `urgent` is set nothing is left to save, and the first one raises KeyboardInterrupt. Then `ignored_repeats`
    more are ignored: torchrun forwards a signal that the terminal has already sent.
    """

    def __init__(self, ignored_repeats: int = 0) -> None:
        self.requested = self.urgent = False
        self._ignored_repeats = ignored_repeats
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> SignalHandler:
        if threading.current_thread() is threading.main_thread():  # Python allows signal handlers nowhere else
            self._previous = {number: signal.signal(number, self._handle) for number in STOP_SIGNALS}
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and self._ignored_repeats:
            self._ignored_repeats -= 1
            return
        if self.requested:
            child_processes.kill_all()  # rows that hang would stay
            os._exit(EXIT_INTERRUPTED)
        self.requested = True
        stop_requested.set()
        if self.urgent:
            raise KeyboardInterrupt

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        stop_requested.clear()


@dataclass
class StopConditions:
    """When the loop ends, evaluates and saves; `evaluate_every` is in env_steps."""

    recipe: Recipe
    evaluate_every: int
    pause_at: int | None = None  # env_steps
    stop_requested: Callable[[], bool] = lambda: False  # whether a signal has requested a stop
    stop_reason: Callable[[], str | None] = lambda: None  # why the calling program stops the run, if it does
    previous_seconds: float = 0.0  # training time in earlier processes
    best: float | None = None  # highest score of an evaluation so far
    already_over: str | None = None  # why the run had ended before this process started
    started: float = field(default_factory=time.monotonic)
    saved_at: float = field(default_factory=time.monotonic)
    saved_episodes: int = 0
    evaluation_pending: bool = False  # whether the evaluation of this step was interrupted
    last_saved: tuple[int, bool] | None = None  # (env_steps, evaluation_pending) of the last checkpoint

    @property
    def seconds(self) -> float:
        """Wall-clock time of training, including earlier processes."""
        return self.previous_seconds + time.monotonic() - self.started

    def end_reason(self, t: Training, last: EvaluationResult | None) -> str | None:
        """Why the run is over, or None."""
        budget, score = self.recipe.budget, None if last is None else last.score(self.recipe.metric)
        limits: dict[str, tuple[float | None, float | None]] = {
            "env_steps": (t.counters.env_steps, budget.env_steps),
            "minutes": (self.seconds / 60, budget.minutes),
            "episodes": (t.counters.episodes, budget.episodes),
            "threshold": (score, budget.threshold),
            "train_threshold": (t.recent.mean, budget.train_threshold),
        }
        for key, (value, limit) in limits.items():
            if value is not None and limit is not None and value >= limit:
                return END_REASONS[key]
        return None

    def pause_reason(self, t: Training) -> str | None:
        """Why the run stops before its end, or None."""
        if self.stop_requested():
            return "interrupted"
        if self.pause_at is not None and t.counters.env_steps >= self.pause_at:
            return "paused"
        return self.stop_reason()

    def check_interrupt(self) -> None:
        """Raise `Interrupted` if a stop was requested; called during long work that can be repeated."""
        if self.stop_requested():
            raise Interrupted

    def evaluation_due(self, t: Training) -> bool:
        """Whether the last rollout passed a multiple of the evaluation interval, and the warm-up is over."""
        now, steps = t.counters.env_steps, t.rows * t.agent.update_interval
        if (warmup := self.recipe.evaluation.warmup) and now < self.recipe.to_env_steps(warmup):
            return False
        return now // self.evaluate_every > (now - steps) // self.evaluate_every

    def is_best(self, result: EvaluationResult | None) -> bool:
        """Whether this evaluation is better than all earlier ones."""
        return result is not None and (self.best is None or result.score(self.recipe.metric) > self.best)

    def save_due(self, t: Training) -> bool:
        """Whether enough time, episodes or env_steps have passed since the last checkpoint."""
        settings = self.recipe.checkpoints
        episodes = t.counters.episodes - self.saved_episodes
        by_episodes = settings.every_episodes is not None and episodes >= settings.every_episodes
        saved_steps, every = self.last_saved[0] if self.last_saved else 0, settings.keep_every
        by_steps = every is not None and t.counters.env_steps // every > saved_steps // every
        return by_episodes or by_steps or time.monotonic() - self.saved_at >= 60 * settings.minutes

    def snapshot_due(self, t: Training, ended: str | None) -> bool:
        """Whether the run is over, or the last rollout passed a step at which a policy snapshot is saved."""
        now, count, budget = t.counters.env_steps, self.recipe.checkpoints.snapshots, self.recipe.budget.env_steps
        passed = snapshots.snapshot_due(now - t.rows * t.agent.update_interval, now, budget, count)
        return passed or (ended is not None and count > 0)

    def mark_saved(self, t: Training) -> None:
        self.saved_at, self.saved_episodes = time.monotonic(), t.counters.episodes
        self.last_saved = (t.counters.env_steps, self.evaluation_pending)
