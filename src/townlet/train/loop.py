"""The training loop: collect → learn → log → evaluate → save. It knows the contract and nothing of towns or agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from townlet.agents.agent import no_interrupt
from townlet.interfaces.state import State, Stateful, clone_state
from townlet.tasks.evaluation import Evaluated
from townlet.train.build import Training
from townlet.train.collect import Listener, collect
from townlet.train.guards import check_figures, check_weights
from townlet.train.signals import Interrupted
from townlet.train.stop_conditions import Limits
from townlet.train.tuning import Change


class Keeper(Protocol):
    """Who writes checkpoints."""

    def save(self, score: float | None = None, ended: str | None = None) -> None:
        """Commit the run as it is now; `score` is that of an evaluation at this moment, `ended` why it is over."""


class Log(Listener, Stateful, Protocol):
    """Who writes down what happens; see `townlet.train.logger.Journal`."""

    def update(self, figures: Mapping[str, float]) -> None:
        """Figures of one update."""

    def changed(self, change: Change) -> None:
        """A setting of the agent has another value from now on."""

    def note(self, text: str) -> None:
        """A sentence for people."""

    def tick(self) -> None:
        """After every round."""

    def evaluated(self, found: Evaluated) -> None:
        """An evaluation of the agent."""

    def finish(self) -> None:
        """The run is over."""

    def take_back(self, state: State) -> None:
        """What was said since `state` was taken, at this very moment, never happened."""


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
    last, why, weights = None, None, t.agent.parameters()
    lived = limits.owed or (t.counters.env_steps > 0 and limits.ending(t, None) is not None)  # before it was resumed
    stop = None if lived else limits.pausing(t)
    while not stop:
        with suppress(Interrupted):  # then the round never happened, or its evaluation is owed
            if not lived:
                _round(t, weights, log, limits.ask)
            lived, last = False, None
            last, why = _judge(t, limits, log, evaluate)
        stop = why or limits.pausing(t)
        if why:
            log.finish()
        if stop or limits.best_yet(last) or limits.save_due(t):
            _save(t, limits, keeper, last, why)
    return Ending(stop, bool(why), last)


def _round(t: Training, weights: Mapping[str, Tensor], log: Log, ask: Callable[[], None]) -> None:
    """Collect and learn; nothing that is not a number goes on.

    A round of an `interruptible` agent is undone when it is interrupted: the state before it is restored. Other agents
    have short rounds or too large a state, and several processes cannot go back together.
    """
    slow = t.agent.interruptible and t.whole is None and t.company.size == 1
    before = clone_state({"training": t.state(), "log": log.state()}) if slow else None
    try:
        t.company.begin_round()
        collect(t, t.agent.update_interval, log, ask if before else no_interrupt)
        t.tuning.follow(log)
        t.company.agree()
        figures = t.agent.learn(ask if before else no_interrupt)
        t.company.end_round()
    except Interrupted:
        assert before is not None
        t.restore(before["training"])
        log.take_back(before["log"])
        raise
    when = f"at env_steps {t.counters.env_steps}"
    if figures is not None:
        check_figures(figures, when)
        check_weights(weights, when)
        log.update(figures)
    log.tick()


def _judge(
    t: Training, limits: Limits, log: Log, evaluate: Callable[[], Evaluated]
) -> tuple[Evaluated | None, str | None]:
    """The evaluation that is due now, and why the run is over, if it is: then there is one in any case."""
    limits.owed = True
    last = _evaluate(t, log, evaluate) if limits.evaluation_due(t) else None
    if (why := limits.ending(t, last)) and last is None:
        last = _evaluate(t, log, evaluate)
    limits.owed = False
    return last, why


def _evaluate(t: Training, log: Log, evaluate: Callable[[], Evaluated]) -> Evaluated:
    log.evaluated(found := evaluate())
    t.tuning.evaluated(found.score(t.recipe.metric), log)
    return found


def _save(t: Training, limits: Limits, keeper: Keeper, last: Evaluated | None, why: str | None) -> None:
    """Commit; an evaluation made at this very moment goes with it, and may be the best so far."""
    if not why and limits.is_kept(t):
        return
    score = None if last is None else last.score(limits.recipe.metric)
    keeper.save(score, why)
    limits.best = score if limits.best_yet(last) else limits.best
    limits.note_kept(t)
