"""Episode statistics over env_steps, for plots: single episodes and summarized intervals, in bins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet.runs.metrics_reader import MetricsReader

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EpisodeCurve:
    """One entry per episode or summarized interval: columns [n], and n dictionaries of counts or values by name."""

    env_steps: Floats
    count: Floats
    score: Floats  # mean length, or mean return
    low: Floats  # 10th percentile
    high: Floats  # 90th percentile
    causes: list[dict[str, float]]
    stages: list[dict[str, float]]
    meters: list[dict[str, float]]


@dataclass(frozen=True)
class Bins:
    """Equal bins of env_steps: the edges of all bins, and the bin index of each entry of a curve."""

    edges: Floats
    index: NDArray[np.int64]

    @property
    def centers(self) -> Floats:
        """env_steps at the center of each bin."""
        return np.asarray((self.edges[:-1] + self.edges[1:]) / 2)

    def means(self, values: Floats, weight: Floats) -> Floats:
        """Weighted mean of each bin, NaN where no episode ended."""
        size = len(self.edges) - 1
        total = np.bincount(self.index, weight, size)
        sums = np.bincount(self.index, values * weight, size)
        means: Floats = np.divide(sums, total, out=np.full(size, np.nan), where=total > 0)
        return means

    def quantile(self, q: float, curve: EpisodeCurve) -> Floats:
        """Quantile of the scores in each bin; an interval counts as its 10th percentile, mean and 90th percentile."""
        values = np.concatenate([curve.low, curve.score, curve.high])
        weight = np.concatenate([0.2 * curve.count, 0.6 * curve.count, 0.2 * curve.count])
        index = np.tile(self.index, 3)
        quantiles = np.full(len(self.edges) - 1, np.nan)
        order = np.lexsort((values, index))
        for bin_index, part in zip(*_groups(index[order], order), strict=True):
            sums = np.cumsum(weight[part])
            quantiles[bin_index] = values[part][min(np.searchsorted(sums, q * sums[-1]), len(part) - 1)]
        return quantiles

    def fractions(self, counts: Sequence[dict[str, float]]) -> dict[str, Floats]:
        """Fraction of each label in each bin: numeric labels in order, others by frequency."""
        size = len(self.edges) - 1
        sums: dict[str, Floats] = defaultdict(lambda: np.zeros(size))
        for index, labels in zip(self.index.tolist(), counts, strict=True):
            for label, count in labels.items():
                sums[label][index] += count
        total = np.maximum(sum(sums.values(), np.zeros(size)), 1e-12)
        numeric = all(label.isdigit() for label in sums)
        order = sorted(sums, key=lambda label: int(label) if numeric else -float(sums[label].sum()))
        return {label: sums[label] / total for label in order}


def read_episode_curve(store: MetricsReader, metric: str = "length") -> EpisodeCurve:
    """All ended episodes, scored by length or return; those that an interval already summarizes are left out."""
    intervals = store.read("episode_intervals")
    single = store.read("episodes", ("env_steps", metric, "cause", "stage", "meters"))
    begin, end = (np.asarray(intervals[name], np.float64) for name in ("start", "env_steps"))
    env_steps = np.asarray(single["env_steps"], np.float64)
    keep = ~_inside(env_steps, begin, end)
    score = _numbers([*compress(single[metric], keep)])

    def combined(column: str) -> Floats:
        """A column of the intervals, followed by the scores of the single episodes."""
        return np.concatenate([_numbers(intervals[column]), score])

    when = np.concatenate([end, env_steps[keep]])
    mean = combined(f"{metric}_mean")
    order = [i for i in np.argsort(when, kind="stable").tolist() if np.isfinite(mean[i])]
    causes = _numeric_dicts(intervals["causes"]) + [_single_count(cause) for cause in compress(single["cause"], keep)]
    stages = _numeric_dicts(intervals["stages"]) + [_single_count(stage) for stage in compress(single["stage"], keep)]
    meters = _numeric_dicts(intervals["meters"]) + _numeric_dicts([*compress(single["meters"], keep)])
    return EpisodeCurve(
        when[order],
        np.concatenate([_numbers(intervals["count"]), np.ones(len(score))])[order],
        mean[order],
        _filled(combined(f"{metric}_p10"), mean)[order],
        _filled(combined(f"{metric}_p90"), mean)[order],
        *([labels[i] for i in order] for labels in (causes, stages, meters)),
    )


def make_bins(env_steps: Floats, size: int) -> Bins:
    """`size` equal bins from 0 to the env_steps of the last entry."""
    edges = np.linspace(0.0, max(float(env_steps.max()), 1.0), size + 1)
    index = np.clip(np.searchsorted(edges, env_steps, side="left") - 1, 0, size - 1)
    return Bins(edges, index.astype(np.int64))


def mean_by_name(values: Iterable[dict[str, float]]) -> dict[str, float]:
    """Mean of each name over the dictionaries that have it."""
    values_by_name: dict[str, list[float]] = defaultdict(list)
    for by_name in values:
        for name, value in by_name.items():
            values_by_name[name].append(value)
    return {name: float(np.mean(numbers)) for name, numbers in values_by_name.items()}


def _inside(env_steps: Floats, begin: Floats, end: Floats) -> NDArray[np.bool_]:
    """Whether each of env_steps lies in one of the consecutive intervals (begin, end]."""
    if not len(end):
        return np.zeros(len(env_steps), bool)
    interval = np.minimum(np.searchsorted(end, env_steps, side="left"), len(end) - 1)
    return np.asarray((env_steps > begin[interval]) & (env_steps <= end[interval]))


def _groups(index: NDArray[np.int64], order: NDArray[np.int64]) -> tuple[list[int], list[NDArray[np.int64]]]:
    """The bins that have entries, and the entries of each; `order` sorts the entries by bin, `index` is their bin."""
    cuts = np.flatnonzero(np.diff(index)) + 1
    return index[np.concatenate([[0], cuts])].tolist(), np.split(order, cuts)


def _numbers(values: Sequence[Any]) -> Floats:
    return np.array([np.nan if value is None else float(value) for value in values], np.float64)


def _filled(values: Floats, mean: Floats) -> Floats:
    return np.where(np.isfinite(values), values, mean)


def _numeric_dicts(values: Sequence[Any]) -> list[dict[str, float]]:
    """Dictionaries of numbers; anything else counts as empty."""
    return [
        {str(k): float(v) for k, v in value.items() if isinstance(v, int | float)} if isinstance(value, dict) else {}
        for value in values
    ]


def _single_count(label: Any) -> dict[str, float]:
    return {} if label is None else {str(label): 1.0}
