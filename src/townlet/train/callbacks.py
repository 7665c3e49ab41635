"""Callbacks of the Python API: functions that observe a training run, and may stop it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from townlet.interfaces.counters import Counters, MetricsInterval, Sink
from townlet.runs.folder import Run
from townlet.runs.overview import STOPPED


@dataclass(frozen=True)
class RunProgress:
    """State of a training run at the end of a metrics interval, or after an evaluation; read-only.

    Attributes:
        run: the run.
        event: what the callback was called after.
        env_steps: the env_steps so far.
        updates: the gradient steps so far.
        episodes: the finished episodes so far.
        budget: env_steps of the whole run; None if they are not limited.
        metrics: means over the latest interval, such as `episode_return` and `loss`.
        evaluation: the latest evaluation of this session: `score`, `return`, `length`, …; None before the first.
    """

    run: Run
    event: Literal["interval", "evaluation"]
    env_steps: int
    updates: int
    episodes: int
    budget: int | None
    metrics: Mapping[str, float]
    evaluation: Mapping[str, Any] | None


class CallbackFailed(Exception):
    """Carries the exception of a callback, its `__cause__`, through the training; see `callback_errors`."""


@contextmanager
def callback_errors() -> Iterator[None]:
    """Raises the exception of a callback as the callback raised it."""
    try:
        yield
    except CallbackFailed as failed:
        cause = failed.__cause__
        assert cause is not None
        raise cause from cause.__cause__


Callback = Callable[[RunProgress], Any]  # returning False stops the training


class CallbackSink(Sink):
    """Calls the callbacks after every metrics interval and evaluation; `stop_reason` says whether one returned False.

    An evaluation follows the interval of its step, so callbacks that are called only at intervals would miss the last.
    """

    def __init__(self, callbacks: Sequence[Callback], run: Run, budget: int | None) -> None:
        self._callbacks, self._run, self._budget = callbacks, run, budget
        self._metrics: Mapping[str, float] = MappingProxyType({})
        self._evaluation: Mapping[str, Any] | None = None
        self._stopped = False

    def stop_reason(self) -> str | None:
        return STOPPED if self._stopped else None

    def on_interval(self, interval: MetricsInterval) -> None:
        self._metrics = MappingProxyType(dict(interval.metrics))
        self._call("interval", interval.env_steps, interval.updates, interval.episodes)

    def on_evaluation(self, counters: Counters, evaluation: Mapping[str, Any]) -> None:
        if evaluation["policy"] != "random":
            known = {name: value for name, value in evaluation.items() if value is not None}
            self._evaluation = MappingProxyType(known)
            self._call("evaluation", counters.env_steps, counters.updates, counters.episodes)

    def _call(self, event: Literal["interval", "evaluation"], env_steps: int, updates: int, episodes: int) -> None:
        counters = env_steps, updates, episodes, self._budget
        progress = RunProgress(self._run, event, *counters, self._metrics, self._evaluation)
        for callback in self._callbacks:
            try:
                answer = callback(progress)
            except Exception as error:
                raise CallbackFailed from error
            if isinstance(answer, bool | np.bool_) and not answer:  # None and other values continue
                self._stopped = True
