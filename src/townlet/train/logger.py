"""The metrics of a run: collected over intervals, then written to the store and the sinks.

Intervals end at fixed env_steps, so that equal runs log the same metrics, however fast they are. A checkpoint includes
what was collected since the end of the last interval.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from townlet.curriculum.curriculum import StageChange
from townlet.interfaces.counters import MetricsInterval, Sink
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Episodes, FinalObs
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.evaluation import EvaluationResult
from townlet.train.episodes import COLUMNS, INTEGER_COLUMNS, EpisodeTable, RolloutListener, Table
from townlet.train.monitors import Monitors
from townlet.train.training import Training
from townlet.train.tuning import SettingChange

FLUSH_SECONDS: Final = 1.0  # least time between flushes, which show intervals to readers; a checkpoint always flushes
GOAL_FRACTION: Final = 0.95  # fraction of the time limit that is a good enough episode length
QUANTILES: Final = {"p10": 0.1, "p50": 0.5, "p90": 0.9}


class MetricsLogger(RolloutListener):
    """Logs a run every `every` env_steps; the first `whole_episodes` of each interval are stored individually."""

    def __init__(
        self, t: Training, every: int, whole_episodes: int, store: MetricsStore, sinks: Sequence[Sink]
    ) -> None:
        self._t, self._every, self._store, self._sinks = t, every, store, sinks
        self._whole_episodes = whole_episodes
        self._counters = t.counters
        self.env_metrics = t.task.make_metrics(t.recipe, t.env, t.agent, t.counters, t.curriculum, store)
        self._episodes = EpisodeTable(self.env_metrics.cause_codes, len(t.task.final_value_names), t.rows)
        self._monitors = Monitors(f"episode_{t.recipe.metric}", _goal(t))
        self._updates: list[Mapping[str, float]] = []  # metrics of updates that are not in `_sums` yet
        self._sums: dict[str, list[Any]] = {}  # total and count of each metric since the last interval
        self._epsilon = t.agent.metrics().get("epsilon", 0.0)  # as of the last update
        self._best_return: float | None = None
        self._since = 0  # env_steps at the start of the interval
        self._flushed = time.monotonic()
        self._last = self._now()

    @property
    def _position(self) -> dict[str, int]:
        """The first columns of every row of the store."""
        return {"env_steps": self._counters.env_steps, "updates": self._counters.updates}

    def on_step(self, actions: Tensor) -> None:
        self.env_metrics.on_step(actions)

    def on_episodes(self, episodes: Episodes, ended: FinalObs) -> None:
        t = self._t
        stage = t.curriculum.stage[episodes.rows] if t.curriculum else None
        final_values = t.task.final_values(t.env, ended)
        self._episodes.add(t.counters, self._epsilon, episodes, stage, final_values)
        self.env_metrics.on_episodes(episodes, stage, final_values)

    def on_rollout_episodes(
        self, episodes: Episodes, final_values: NDArray[np.float32], ago: NDArray[np.float64] | None = None
    ) -> None:
        self._episodes.add(self._t.counters, self._epsilon, episodes, None, final_values, ago)

    def on_stage_changes(self, changes: list[StageChange]) -> None:
        self._store.add("stage_changes", [{**self._position, **vars(change)} for change in changes])
        self.env_metrics.on_stage_changes(changes)

    def on_update(self, metrics: Mapping[str, float]) -> None:
        self._epsilon = metrics.get("epsilon", 0.0)
        self._updates.append(metrics)

    def _sum_updates(self) -> dict[str, list[Any]]:
        """Total and count of each metric of all updates since the last interval."""
        for metrics in self._updates:
            for name, value in metrics.items():
                sums = self._sums.setdefault(name, [0.0, 0])
                sums[0] += value
                sums[1] += 1
        self._updates.clear()
        return self._sums

    def on_evaluation(self, result: EvaluationResult, policy: str = "greedy") -> None:
        """Log an evaluation of the agent or of a baseline."""
        evaluation = result.columns(policy, self._t.recipe.metric)
        self._store.add("evaluations", [{**self._position, **evaluation}])
        for sink in self._sinks:
            sink.on_evaluation(self._counters, evaluation)
        score, error = evaluation["score"], result.standard_error(self._t.recipe.metric)
        for alert in self._monitors.check_evaluation(score, error, random=policy == "random"):
            self.alert(alert.name, alert.message, alert.value, alert.tip)

    def on_video(self, path: Path) -> None:
        for sink in self._sinks:
            sink.on_video(self._counters, path)

    def on_setting_change(self, change: SettingChange) -> None:
        self._store.add("setting_changes", [{**self._position, **change._asdict()}])
        self.message(str(change))

    def alert(self, name: str, message: str, value: float | None = None, tip: str = "") -> None:
        """Log something that needs attention, with a remedy (`tip`)."""
        self._store.add("alerts", [{**self._position, "name": name, "message": message, "tip": tip, "value": value}])
        self.message(f"{name}: {message}" + (f". Tip: {tip}" if tip else ""))

    def message(self, text: str) -> None:
        for sink in self._sinks:
            sink.message(text)

    def on_rollout_end(self) -> None:
        """Show progress after a rollout and its update, and end the interval if it is due."""
        for sink in self._sinks:
            sink.on_rollout(self._counters)
        if self._counters.env_steps // self._every > self._since // self._every:
            self.end_interval()

    def finish(self) -> None:
        """End the last interval of the run."""
        if self._counters.env_steps > self._since:
            self.end_interval()

    def end_interval(self) -> None:
        """Write the metrics of the interval, and start a new one."""
        now = self._counters
        metrics = {name: total / count for name, (total, count) in self._sum_updates().items()}
        metrics |= self._write_episodes() | self.env_metrics.flush(self._store, self._position) | self._speed()
        self._store.add("updates", {**self._position, "name": list(metrics), "value": list(metrics.values())})
        for alert in self._monitors.check(metrics):
            self.alert(alert.name, alert.message, alert.value, alert.tip)
        if self._last[0] - self._flushed >= FLUSH_SECONDS:
            self._flushed = self._last[0]
            self._store.flush()
        self._sums, self._since = {}, now.env_steps
        self._episodes.clear()
        interval = MetricsInterval(now.env_steps, now.updates, now.episodes, metrics, self._t.agent.parameters())
        for sink in self._sinks:
            sink.on_interval(interval)

    def _now(self) -> tuple[float, int, int]:
        return time.monotonic(), self._counters.env_steps, self._counters.updates

    def _speed(self) -> dict[str, float]:
        """Speed since the last call, and peak memory: metrics that depend on the machine."""
        before, self._last = self._last, self._now()
        seconds, env_steps, updates = (b - a for a, b in zip(before, self._last, strict=True))
        counts = {"steps_per_second": env_steps, "updates_per_second": updates}
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return {name: count / max(1e-9, seconds) for name, count in counts.items()} | {"memory_mb": memory / 1e6}

    def _write_episodes(self) -> dict[str, float]:
        """Write the episodes of the interval to the store. Returns their means as metrics."""
        table = self._episodes.table()
        if not len(table):
            return {}
        meters, causes = self._t.task.final_value_names, self.env_metrics.causes
        column = {name: table[:, index] for index, name in enumerate(COLUMNS)}
        final_values = table[:, len(COLUMNS) :]
        if self._whole_episodes:
            first = slice(0, self._whole_episodes)
            whole: dict[str, Any] = {
                name: values[first].astype(np.int64) if name in INTEGER_COLUMNS else values[first]
                for name, values in column.items()
            }
            whole["cause"] = [causes[int(code)] for code in column["cause"][first]]
            whole["meters"] = [dict(zip(meters, line, strict=True)) for line in final_values[first].round(4).tolist()]
            self._store.add("episodes", whole)
        stages = [str(stage) for stage in range(int(column["stage"].max()) + 1)]
        self._store.add("episode_intervals", [{
            **self._position,
            "start": self._since,
            "count": len(table),
            **_distribution(table, ("length", "return")),
            "extrinsic": column["extrinsic"].mean(),
            "intrinsic": column["intrinsic"].mean(),
            "causes": _counts(causes, column["cause"]),
            "stages": _counts(stages, column["stage"]),
            "meters": dict(zip(meters, final_values.mean(0).round(4).tolist(), strict=True)),
        }])  # fmt: skip
        best = float(column["return"].max())
        self._best_return = best if self._best_return is None else max(best, self._best_return)
        means = {
            "episode_length": column["length"], "episode_return": column["return"], "extrinsic": column["extrinsic"],
        }  # fmt: skip
        if column["intrinsic"].any():
            means["intrinsic"] = column["intrinsic"]
        if self._t.curriculum:
            means["stage"] = self._t.curriculum.stage.double().numpy()
        return {name: float(values.mean()) for name, values in means.items()} | {"best_return": self._best_return}

    def state(self) -> State:
        return {
            "episodes": self._episodes.state(),
            "means": {name: list(sums) for name, sums in self._sum_updates().items()},
            "epsilon": self._epsilon,
            "since": self._since,
            "best_return": self._best_return,
            "env_metrics": self.env_metrics.state(),
            "monitors": self._monitors.state(),
        }

    def roll_back(self, state: State) -> None:
        """Undo what was logged since `state` was taken; the counters are already those of that time."""
        self.restore(state)
        self._store.flush()
        self._store.rewind(self._counters.env_steps)

    def restore(self, state: State) -> None:
        self._episodes.restore(state["episodes"])
        self._updates.clear()
        self._sums = {name: [float(total), int(count)] for name, (total, count) in state["means"].items()}
        self._epsilon, self._since = float(state["epsilon"]), int(state["since"])
        self._best_return = state.get("best_return")  # missing in version 0.2.0
        self.env_metrics.restore(state["env_metrics"])
        self._monitors.restore(state["monitors"])
        self._last = self._now()


def _goal(t: Training) -> float | None:
    """The score that is good enough; None if unknown."""
    if t.recipe.metric == "return":
        return t.task.goal
    return None if t.task.limit is None else GOAL_FRACTION * t.task.limit


def _distribution(table: Table, names: Sequence[str]) -> dict[str, float]:
    """Mean, extremes and quantiles of some columns."""
    values = table[:, [COLUMNS.index(name) for name in names]]
    ordered = np.sort(values, axis=0)
    statistics = {"mean": values.mean(0), "min": ordered[0], "max": ordered[-1]}
    statistics |= {label: _quantile(ordered, fraction) for label, fraction in QUANTILES.items()}
    return {f"{name}_{label}": float(row[k]) for k, name in enumerate(names) for label, row in statistics.items()}


def _quantile(ordered: Table, fraction: float) -> NDArray[np.float64]:
    """A quantile of each sorted column; bit-identical to np.quantile, which takes ten times as long."""
    position = fraction * (len(ordered) - 1)
    below = int(position)
    low, high, weight = ordered[below], ordered[min(below + 1, len(ordered) - 1)], position - below
    quantile: NDArray[np.float64] = low + (high - low) * weight
    if weight >= 0.5:
        quantile = high - (high - low) * (1 - weight)
    return quantile


def _counts(names: Sequence[str], codes: NDArray[np.float64]) -> dict[str, int]:
    counts = np.bincount(codes.astype(np.int64), minlength=len(names)).tolist()
    return {name: count for name, count in zip(names, counts, strict=True) if count}
