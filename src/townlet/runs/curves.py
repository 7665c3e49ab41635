"""Lives over time, for plots: single episodes and whole intervals brought together, in stretches of env_steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet.runs.metrics_reader import MetricsReader

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Lives:
    """One entry for each episode or interval: columns [n], and dictionaries of counts or values."""

    moment: Floats  # env_steps
    count: Floats
    score: Floats  # mean length, or return
    low: Floats  # the tenth percentile
    high: Floats  # the ninetieth
    causes: list[dict[str, float]]
    stages: list[dict[str, float]]
    meters: list[dict[str, float]]


@dataclass(frozen=True)
class Stretches:
    """The run in equal stretches: the middle of each, and which entries lie in it."""

    edges: Floats
    place: NDArray[np.int64]

    @property
    def middle(self) -> Floats:
        """env_steps at the middle of each stretch."""
        return np.asarray((self.edges[:-1] + self.edges[1:]) / 2)

    def means(self, values: Floats, weight: Floats) -> Floats:
        """The weighted mean in each stretch, NaN where nothing ended."""
        size = len(self.edges) - 1
        total = np.bincount(self.place, weight, size)
        sums = np.bincount(self.place, values * weight, size)
        means: Floats = np.divide(sums, total, out=np.full(size, np.nan), where=total > 0)
        return means

    def quantile(self, share: float, lives: Lives) -> Floats:
        """A quantile of scores in each stretch; an interval counts as its tenth, mean and ninetieth percentile."""
        values = np.concatenate([lives.low, lives.score, lives.high])
        weight = np.concatenate([0.2 * lives.count, 0.6 * lives.count, 0.2 * lives.count])
        place = np.tile(self.place, 3)
        found = np.full(len(self.edges) - 1, np.nan)
        order = np.lexsort((values, place))
        for at, part in zip(*_groups(place[order], order), strict=True):
            sums = np.cumsum(weight[part])
            found[at] = values[part][min(np.searchsorted(sums, share * sums[-1]), len(part) - 1)]
        return found

    def shares(self, counts: Sequence[dict[str, float]]) -> dict[str, Floats]:
        """The share of each label in each stretch: numbers in their order, words by how frequent they are."""
        size = len(self.edges) - 1
        found: dict[str, Floats] = defaultdict(lambda: np.zeros(size))
        for place, labels in zip(self.place.tolist(), counts, strict=True):
            for label, count in labels.items():
                found[label][place] += count
        total = np.maximum(sum(found.values(), np.zeros(size)), 1e-12)
        numbers = all(label.isdigit() for label in found)
        order = sorted(found, key=lambda one: int(one) if numbers else -float(found[one].sum()))
        return {label: found[label] / total for label in order}


def lives(store: MetricsReader, metric: str = "length") -> Lives:
    """All that ended, by length or return. Where an interval counts all of them, whole ones in it are left out."""
    intervals = store.read("episode_intervals")
    single = store.read("episodes", ("env_steps", metric, "cause", "stage", "meters"))
    begin, end = (np.asarray(intervals[name], np.float64) for name in ("start", "env_steps"))
    moment = np.asarray(single["env_steps"], np.float64)
    keep = ~_inside(moment, begin, end)

    def kept(values: Sequence[Any]) -> list[Any]:
        return [value for value, stays in zip(values, keep, strict=True) if stays]

    score = _numbers(kept(single[metric]))

    def both(name: str) -> Floats:
        return np.concatenate([_numbers(intervals[name]), score])

    when = np.concatenate([end, moment[keep]])
    mean = both(f"{metric}_mean")
    order = [i for i in np.argsort(when, kind="stable").tolist() if np.isfinite(mean[i])]

    def sorted_labels(labels: list[dict[str, float]]) -> list[dict[str, float]]:
        return [labels[i] for i in order]

    return Lives(
        when[order],
        np.concatenate([_numbers(intervals["count"]), np.ones(len(score))])[order],
        mean[order],
        _filled(both(f"{metric}_p10"), mean)[order],
        _filled(both(f"{metric}_p90"), mean)[order],
        sorted_labels(_counts(intervals["causes"]) + [_one(cause) for cause in kept(single["cause"])]),
        sorted_labels(_counts(intervals["stages"]) + [_one(stage) for stage in kept(single["stage"])]),
        sorted_labels(_counts(intervals["meters"]) + _counts(kept(single["meters"]))),
    )


def stretches(moment: Floats, size: int) -> Stretches:
    """The time from the first step to the last entry in `size` equal stretches."""
    edges = np.linspace(0.0, max(float(moment.max()), 1.0), size + 1)
    place = np.clip(np.searchsorted(edges, moment, side="left") - 1, 0, size - 1)
    return Stretches(edges, place.astype(np.int64))


def mean_of(values: Iterable[dict[str, float]]) -> dict[str, float]:
    """The mean of each name over those that have it."""
    sums: dict[str, list[float]] = defaultdict(list)
    for one in values:
        for name, value in one.items():
            sums[name].append(value)
    return {name: float(np.mean(found)) for name, found in sums.items()}


def _inside(moment: Floats, begin: Floats, end: Floats) -> NDArray[np.bool_]:
    """Which moments lie in one of the intervals (begin, end], which follow each other."""
    if not len(end):
        return np.zeros(len(moment), bool)
    which = np.minimum(np.searchsorted(end, moment, side="left"), len(end) - 1)
    return np.asarray((moment > begin[which]) & (moment <= end[which]))


def _groups(place: NDArray[np.int64], order: NDArray[np.int64]) -> tuple[list[int], list[NDArray[np.int64]]]:
    """The entries of each place, where `order` sorts by place."""
    cuts = np.flatnonzero(np.diff(place)) + 1
    return place[np.concatenate([[0], cuts])].tolist(), np.split(order, cuts)


def _numbers(values: Sequence[Any]) -> Floats:
    return np.array([np.nan if value is None else float(value) for value in values], np.float64)


def _filled(values: Floats, mean: Floats) -> Floats:
    return np.where(np.isfinite(values), values, mean)


def _counts(values: Sequence[Any]) -> list[dict[str, float]]:
    """Dictionaries of numbers; what is anything else counts as empty."""
    return [
        {str(k): float(v) for k, v in value.items() if isinstance(v, int | float)} if isinstance(value, dict) else {}
        for value in values
    ]


def _one(label: Any) -> dict[str, float]:
    return {} if label is None else {str(label): 1.0}
