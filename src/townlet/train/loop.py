"""The training loop: collect → learn → log → evaluate → save. It depends neither on towns nor on algorithms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from torch import Tensor

from townlet.agents.agent import no_interrupt
from townlet.interfaces.state import clone_state
from townlet.tasks.evaluation import EvaluationResult
from townlet.train.checkpointer import Checkpointer
from townlet.train.collect import collect
from townlet.train.logger import MetricsLogger
from townlet.train.monitors import check_metrics, check_weights
from townlet.train.stop_conditions import Interrupted, StopConditions
from townlet.train.training import Training


@dataclass(frozen=True)
class LoopResult:
    """Why the loop ended, and the evaluation of its last step."""

    why: str
    finished: bool  # False if the loop was interrupted or paused
    evaluation: EvaluationResult | None  # None if the last step was not evaluated


def train_loop(
    t: Training, stop: StopConditions, logger: MetricsLogger, checkpointer: Checkpointer,
    evaluate: Callable[[], EvaluationResult],
) -> LoopResult:  # fmt: skip
    """Train until the budget is spent or a stop is requested; the run is saved either way.

    A step is saved after everything about it has been logged, so a run that is killed resumes exactly.
    """
    if stop.already_over:
        return LoopResult(stop.already_over, True, evaluate())
    last, why, weights = None, None, t.agent.parameters()
    # The evaluation of the last step may have been interrupted; a resumed run starts with it.
    collected = stop.evaluation_pending or (t.counters.env_steps > 0 and stop.end_reason(t, None) is not None)
    stopped = None if collected else stop.pause_reason(t)
    while not stopped:
        with suppress(Interrupted):  # the rollout was undone, or its evaluation is pending
            if not collected:
                _collect_and_learn(t, weights, logger, stop.check_interrupt)
            collected, last = False, None
            last, why = _evaluate_if_due(t, stop, logger, evaluate)
        stopped = why or stop.pause_reason(t)
        if why:
            logger.finish()
        if stop.snapshot_due(t, why) and not stop.evaluation_pending:
            checkpointer.save_snapshot(_score(stop, last))
        if stopped or stop.is_best(last) or stop.save_due(t):
            _save(t, stop, checkpointer, last, why)
    return LoopResult(stopped, bool(why), last)


def _collect_and_learn(
    t: Training, weights: Mapping[str, Tensor], logger: MetricsLogger, check_interrupt: Callable[[], None]
) -> None:
    """One rollout and its update; raises if metrics or weights are not finite.

    The rollout of an `interruptible` agent is undone when it is interrupted: the state before it is restored. Other
    agents have short rollouts or too large a state, and several processes cannot be rolled back together.
    """
    undo = t.agent.interruptible and t.graphed is None and t.parallel_training is None
    before = clone_state({"training": t.state(), "logger": logger.state()}) if undo else None
    check = check_interrupt if undo else no_interrupt
    try:
        if t.parallel_training:
            t.parallel_training.start_rollout()
        collect(t, t.agent.update_interval, logger, check)
        t.tuning.apply_edits(logger)
        if t.parallel_training:
            t.parallel_training.sync_settings()
        metrics = t.agent.learn(check)
        if t.parallel_training:
            t.parallel_training.end_update()
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
    t: Training, stop: StopConditions, logger: MetricsLogger, evaluate: Callable[[], EvaluationResult]
) -> tuple[EvaluationResult | None, str | None]:
    """Evaluate if it is due or the run is over. Returns the result, and why the run is over; each may be None."""
    stop.evaluation_pending = True
    last = _evaluate(t, logger, evaluate) if stop.evaluation_due(t) else None
    if (why := stop.end_reason(t, last)) and last is None:
        last = _evaluate(t, logger, evaluate)
    stop.evaluation_pending = False
    return last, why


def _evaluate(t: Training, logger: MetricsLogger, evaluate: Callable[[], EvaluationResult]) -> EvaluationResult:
    logger.on_evaluation(result := evaluate())
    t.tuning.on_evaluation(result.score(t.recipe.metric), logger)
    return result


def _save(
    t: Training, stop: StopConditions, checkpointer: Checkpointer, last: EvaluationResult | None, why: str | None
) -> None:
    """Save a checkpoint unless this step is already saved, and update the best score."""
    if not why and stop.last_saved == (t.counters.env_steps, stop.evaluation_pending):
        return
    score = _score(stop, last)
    checkpointer.save(score, why)
    stop.best = score if stop.is_best(last) else stop.best
    stop.mark_saved(t)


def _score(stop: StopConditions, last: EvaluationResult | None) -> float | None:
    return None if last is None else last.score(stop.recipe.metric)
