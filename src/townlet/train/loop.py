"""The training loop: collect → learn → log → evaluate → save. It knows neither towns nor algorithms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from townlet.agents.agent import no_interrupt
from townlet.interfaces.state import State, Stateful, clone_state
from townlet.tasks.evaluation import EvaluationResult
from townlet.train.collect import collect
from townlet.train.episodes import RolloutListener
from townlet.train.monitors import check_metrics, check_weights
from townlet.train.stop_conditions import Interrupted, StopConditions
from townlet.train.training import Training
from townlet.train.tuning import TuningListener


class Saver(Protocol):
    """Writes checkpoints; see `townlet.train.checkpointer.Checkpointer`."""

    def save(self, score: float | None = None, ended: str | None = None) -> None:
        """Save the run; `score` is that of an evaluation at this step, `ended` why the run is over."""


class Logger(RolloutListener, TuningListener, Stateful, Protocol):
    """Writes metrics; see `townlet.train.logger.MetricsLogger`."""

    def on_update(self, metrics: Mapping[str, float]) -> None:
        """Metrics of one update."""

    def on_evaluation(self, result: EvaluationResult) -> None:
        """An evaluation of the agent."""

    def on_rollout_end(self) -> None:
        """Called after every rollout and update."""

    def finish(self) -> None:
        """The run is over."""

    def roll_back(self, state: State) -> None:
        """Undo what was logged since `state` was taken, at the current step."""


@dataclass(frozen=True)
class LoopResult:
    """How a loop ended."""

    why: str
    finished: bool  # False if it was only interrupted or paused
    last: EvaluationResult | None  # the evaluation at its end


def train_loop(
    t: Training, stop: StopConditions, logger: Logger, saver: Saver, evaluate: Callable[[], EvaluationResult]
) -> LoopResult:
    """Train until the budget is spent or a stop is requested; the run is saved either way.

    Each step is saved at most once, after everything has been logged, so a run that is killed resumes exactly.
    """
    if stop.already_over:
        return LoopResult(stop.already_over, True, evaluate())
    last, why, weights = None, None, t.agent.parameters()
    # A resumed run may first owe the evaluation of its last step.
    collected = stop.evaluation_pending or (t.counters.env_steps > 0 and stop.ending(t, None) is not None)
    stopped = None if collected else stop.pausing(t)
    while not stopped:
        with suppress(Interrupted):  # the rollout was undone, or its evaluation is pending
            if not collected:
                _collect_and_learn(t, weights, logger, stop.check_interrupt)
            collected, last = False, None
            last, why = _evaluate_if_due(t, stop, logger, evaluate)
        stopped = why or stop.pausing(t)
        if why:
            logger.finish()
        if stopped or stop.is_best(last) or stop.save_due(t):
            _save(t, stop, saver, last, why)
    return LoopResult(stopped, bool(why), last)


def _collect_and_learn(
    t: Training, weights: Mapping[str, Tensor], logger: Logger, check_interrupt: Callable[[], None]
) -> None:
    """One rollout and its update; raises if metrics or weights are not finite.

    The rollout of an `interruptible` agent is undone when it is interrupted: the state before it is restored. Other
    agents have short rollouts or too large a state, and several processes cannot go back together.
    """
    undo = t.agent.interruptible and t.graphed is None and t.multi_process is None
    before = clone_state({"training": t.state(), "logger": logger.state()}) if undo else None
    check = check_interrupt if undo else no_interrupt
    try:
        if t.multi_process:
            t.multi_process.start_rollout()
        collect(t, t.agent.update_interval, logger, check)
        t.tuning.follow(logger)
        if t.multi_process:
            t.multi_process.sync_settings()
        metrics = t.agent.learn(check)
        if t.multi_process:
            t.multi_process.end_update()
    except Interrupted:
        assert before is not None
        t.restore(before["training"])
        logger.roll_back(before["logger"])
        raise
    if metrics is not None:
        when = f"at env_steps {t.counters.env_steps}"
        check_metrics(metrics, when)
        check_weights(weights, when)
        logger.on_update(metrics)
    logger.on_rollout_end()


def _evaluate_if_due(
    t: Training, stop: StopConditions, logger: Logger, evaluate: Callable[[], EvaluationResult]
) -> tuple[EvaluationResult | None, str | None]:
    """The evaluation that is due now, and why the run is over; the end is always evaluated."""
    stop.evaluation_pending = True
    last = _evaluate(t, logger, evaluate) if stop.evaluation_due(t) else None
    if (why := stop.ending(t, last)) and last is None:
        last = _evaluate(t, logger, evaluate)
    stop.evaluation_pending = False
    return last, why


def _evaluate(t: Training, logger: Logger, evaluate: Callable[[], EvaluationResult]) -> EvaluationResult:
    logger.on_evaluation(result := evaluate())
    t.tuning.on_evaluation(result.score(t.recipe.metric), logger)
    return result


def _save(t: Training, stop: StopConditions, saver: Saver, last: EvaluationResult | None, why: str | None) -> None:
    """Save, unless this very step is saved already; an evaluation of this step may be the best so far."""
    if not why and stop.is_saved(t):
        return
    score = None if last is None else last.score(stop.recipe.metric)
    saver.save(score, why)
    stop.best = score if stop.is_best(last) else stop.best
    stop.mark_saved(t)
