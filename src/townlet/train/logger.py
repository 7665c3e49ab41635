"""What a run says of itself: gathered between marks, handed to the store and the sinks at each mark.

Marks lie at fixed env_steps, so that two runs that do the same say the same, however fast they are; what was
gathered since the last mark is part of a checkpoint.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from townlet.curriculum.curriculum import StageChange
from townlet.interfaces.counters import Counters
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Episodes, FinalObs
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.evaluation import Evaluated
from townlet.train.build import Training
from townlet.train.episode_table import COLUMNS, WHOLE, Finished, Table
from townlet.train.monitors import Monitors
from townlet.train.sinks import Mark, Sink
from townlet.train.tuning import Change

FRESH: Final = 1.0  # seconds after which readers see a mark; a checkpoint brings everything to disk anyway
NEARLY: Final = 0.95  # of the longest life
QUANTILES: Final = {"p10": 0.1, "p50": 0.5, "p90": 0.9}


@dataclass
class Sum:
    """A figure since the last mark."""

    total: float = 0.0
    count: int = 0


class Journal:
    """Listens to one run. `every` is in env_steps; `whole` episodes of each interval are kept entire."""

    def __init__(self, t: Training, every: int, whole: int, store: MetricsStore, sinks: Sequence[Sink]) -> None:
        self._t, self._every, self._whole, self._store, self._sinks = t, every, whole, store, sinks
        self.env_metrics = t.task.env_metrics(t, store)
        self._finished = Finished(self.env_metrics, t.task.extras, t.rows)
        self._monitors = Monitors(f"episode_{t.recipe.metric}", _goal(t))
        self._updates: list[Mapping[str, float]] = []  # not yet added up
        self._sums: dict[str, Sum] = {}
        self._epsilon = t.agent.metrics().get("epsilon", 0.0)  # as of the last update
        self._since = 0
        self._flushed = time.monotonic()
        self._last = self._now()

    @property
    def _counters(self) -> Counters:
        return self._t.counters

    @property
    def _moment(self) -> dict[str, int]:
        """What every row of the store begins with."""
        return {"env_steps": self._counters.env_steps, "updates": self._counters.updates}

    def stepped(self, actions: Tensor) -> None:
        """A step of all rows was made by these actions."""
        self.env_metrics.stepped(actions)

    def episodes(self, over: Episodes, ended: FinalObs) -> None:
        """Episodes that ended in the last step."""
        t = self._t
        stage = t.curriculum.stage[over.rows] if t.curriculum else None
        extras = t.task.last(t.env, ended)
        self._finished.add(t.counters, self._epsilon, over, stage, extras)
        self.env_metrics.episodes(over, stage, extras)

    def lives(self, over: Episodes, extras: NDArray[np.float32], ago: NDArray[np.float64] | None = None) -> None:
        """Episodes that ended in a round into which nobody looked."""
        self._finished.add(self._t.counters, self._epsilon, over, None, extras, ago)

    def stages(self, changes: list[StageChange]) -> None:
        """Rows that went on or back."""
        self._store.add("stage_changes", [{**self._moment, **vars(change)} for change in changes])
        self.env_metrics.stages(changes)

    def update(self, figures: Mapping[str, float]) -> None:
        """Figures of one update."""
        self._epsilon = figures.get("epsilon", 0.0)
        self._updates.append(figures)

    def _add_up(self) -> dict[str, Sum]:
        """The figures of all updates since the last mark."""
        for figures in self._updates:
            for name, value in figures.items():
                if name not in self._sums:
                    self._sums[name] = Sum()
                known = self._sums[name]
                known.total += value
                known.count += 1
        self._updates.clear()
        return self._sums

    def evaluated(self, found: Evaluated, policy: str = "greedy") -> None:
        """An evaluation, of the agent or of a yardstick."""
        columns = found.columns(policy, self._t.recipe.metric)
        self._store.add("evaluations", [{**self._moment, **columns}])
        for sink in self._sinks:
            sink.evaluated(self._counters, columns)

    def changed(self, change: Change) -> None:
        """A setting of the agent has another value from now on."""
        self._store.add("setting_changes", [{**self._moment, **change._asdict()}])
        self.note(str(change))

    def alert(self, name: str, message: str, value: float | None = None, tip: str = "") -> None:
        """Something that a person should look at, with what may help."""
        told = {"name": name, "message": message, "tip": tip, "value": value}
        self._store.add("alerts", [{**self._moment, **told}])
        self.note(f"{name}: {message}" + (f". Tip: {tip}" if tip else ""))

    def note(self, text: str) -> None:
        """A sentence for people, which is no figure."""
        for sink in self._sinks:
            sink.note(text)

    def tick(self) -> None:
        """After every round: the sinks may show progress, and a mark may be due."""
        for sink in self._sinks:
            sink.tick(self._counters)
        if self._counters.env_steps // self._every > self._since // self._every:
            self.mark()

    def finish(self) -> None:
        """The run is over: what was gathered since the last mark is not lost."""
        if self._counters.env_steps > self._since:
            self.mark()

    def mark(self) -> None:
        """Hand on what was gathered, and begin anew."""
        now = self._counters
        figures = {name: s.total / s.count for name, s in self._add_up().items() if s.count}
        figures |= self._write_episodes() | self.env_metrics.mark(self._store, self._moment) | self._speed()
        self._store.add("updates", {**self._moment, "name": list(figures), "value": list(figures.values())})
        for alert in self._monitors.look(figures):
            self.alert(alert.name, alert.message, alert.value, alert.tip)
        if self._last[0] - self._flushed >= FRESH:
            self._flushed = self._last[0]
            self._store.flush()
        self._sums, self._since = {}, now.env_steps
        self._finished.clear()
        mark = Mark(now.env_steps, now.updates, now.episodes, figures, self._t.agent.parameters())
        for sink in self._sinks:
            sink.mark(mark)

    def _now(self) -> tuple[float, int, int]:
        return time.monotonic(), self._counters.env_steps, self._counters.updates

    def _speed(self) -> dict[str, float]:
        """What depends on the machine, since the last mark."""
        before, self._last = self._last, self._now()
        seconds, env_steps, updates = (b - a for a, b in zip(before, self._last, strict=True))
        speed = {"steps_per_second": env_steps, "updates_per_second": updates}
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return {name: count / max(1e-9, seconds) for name, count in speed.items()} | {"memory_mb": most / 1e6}

    def _write_episodes(self) -> dict[str, float]:
        """Write the episodes of the interval; their means."""
        table = self._finished.table()
        if not len(table):
            return {}
        meters, causes = self._t.task.extras, self.env_metrics.causes
        by_name = {name: table[:, place] for place, name in enumerate(COLUMNS)}
        final = table[:, len(COLUMNS) :]
        kept = slice(0, self._whole)
        whole: dict[str, Any] = {n: (v[kept].astype(np.int64) if n in WHOLE else v[kept]) for n, v in by_name.items()}
        whole["cause"] = [causes[int(code)] for code in by_name["cause"][kept]]
        whole["meters"] = [dict(zip(meters, line, strict=True)) for line in final[kept].round(4).tolist()]
        if self._whole:
            self._store.add("episodes", whole)
        stages = [str(stage) for stage in range(int(by_name["stage"].max()) + 1)]
        self._store.add("episode_intervals", [{
            **self._moment,
            "start": self._since,
            "count": len(table),
            **_spread(table, ("length", "return")),
            "extrinsic": by_name["extrinsic"].mean(),
            "intrinsic": by_name["intrinsic"].mean(),
            "causes": _counts(causes, by_name["cause"]),
            "stages": _counts(stages, by_name["stage"]),
            "meters": dict(zip(meters, final.mean(0).round(4).tolist(), strict=True)),
        }])  # fmt: skip
        means = {
            "episode_length": by_name["length"],
            "episode_return": by_name["return"],
            "extrinsic": by_name["extrinsic"],
        }
        if by_name["intrinsic"].any():
            means["intrinsic"] = by_name["intrinsic"]
        if self._t.curriculum:
            means["stage"] = self._t.curriculum.stage.double().numpy()
        return {name: float(values.mean()) for name, values in means.items()}

    def state(self) -> State:
        """What was gathered since the last mark."""
        sums = {name: [s.total, s.count] for name, s in self._add_up().items()}
        return {
            "finished": self._finished.state(),
            "sums": sums,
            "epsilon": self._epsilon,
            "since": self._since,
            "env_metrics": self.env_metrics.state(),
            "monitors": self._monitors.state(),
        }

    def take_back(self, state: State) -> None:
        """What was said since `state` was taken, at this very moment, never happened."""
        self.restore(state)
        self._store.flush()
        self._store.rewind(self._counters.env_steps)

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        self._finished.restore(state["finished"])
        self._updates.clear()
        self._sums = {name: Sum(float(total), int(count)) for name, (total, count) in state["sums"].items()}
        self._epsilon, self._since = float(state["epsilon"]), int(state["since"])
        self.env_metrics.restore(state["env_metrics"])
        self._monitors.restore(state["monitors"])
        self._last = self._now()


def _goal(t: Training) -> float | None:
    """The score from which on it need not rise; None where nobody knows."""
    if t.recipe.metric == "return":
        return t.task.threshold
    return None if t.task.limit is None else NEARLY * t.task.limit


def _spread(table: Table, names: Sequence[str]) -> dict[str, float]:
    """Mean, extremes and quantiles of some columns."""
    values = table[:, [COLUMNS.index(name) for name in names]]
    ordered = np.sort(values, axis=0)
    figures = {"mean": values.mean(0), "min": ordered[0], "max": ordered[-1]}
    figures |= {what: _quantile(ordered, share) for what, share in QUANTILES.items()}
    return {f"{name}_{what}": float(of[k]) for k, name in enumerate(names) for what, of in figures.items()}


def _quantile(ordered: Table, share: float) -> NDArray[np.float64]:
    """A quantile of each column, to the bit what np.quantile says, which takes ten times as long at every mark."""
    place = share * (len(ordered) - 1)
    below = int(place)
    low, high, way = ordered[below], ordered[min(below + 1, len(ordered) - 1)], place - below
    found: NDArray[np.float64] = low + (high - low) * way if way < 0.5 else high - (high - low) * (1 - way)
    return found


def _counts(names: Sequence[str], codes: NDArray[np.float64]) -> dict[str, int]:
    counts = np.bincount(codes.astype(np.int64), minlength=len(names)).tolist()
    return {name: count for name, count in zip(names, counts, strict=True) if count}
