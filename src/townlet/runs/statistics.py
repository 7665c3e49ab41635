"""Statistics over several runs (Agarwal et al. 2021): interquartile mean (IQM) with stratified bootstrap intervals.

Scores are [n] of n runs, or [n, tasks] of n runs of each task. A task is a stratum: resampling draws runs with
replacement separately within each task, and the IQM is over the scores of all tasks together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from townlet.rng import Streams

RESAMPLES: Final = 2000
CONFIDENCE: Final = 0.95
Floats = NDArray[np.float64]


class IqmCurve(NamedTuple):
    """IQM of several runs at each of k points, with its interval, each [k]."""

    iqm: Floats
    low: Floats
    high: Floats


def iqm(scores: ArrayLike) -> float:
    """The interquartile mean: the mean without the lowest and the highest ⌊n/4⌋ scores, as SciPy's `trim_mean`."""
    return float(_iqms(np.asarray(scores, np.float64).reshape(1, -1))[0])


def bootstrap_interval(scores: ArrayLike, seed: int = 0) -> tuple[float, float]:
    """The 95% bootstrap confidence interval of the IQM, from resampling within each task."""
    values = np.asarray(scores, np.float64)
    values = values[:, None] if values.ndim == 1 else values
    runs, tasks = values.shape
    chosen = _generator(seed).integers(runs, size=(RESAMPLES, runs, tasks))
    draws = values[chosen, np.arange(tasks)]
    low, high = np.quantile(_iqms(draws.reshape(RESAMPLES, -1)), _BOUNDS)
    return float(low), float(high)


def iqm_curve(curves: Sequence[ArrayLike] | Floats, seed: int = 0) -> IqmCurve:
    """IQM and 95% interval at each point of the curves [n, k] of n runs, resampled as whole curves."""
    values = np.asarray(curves, np.float64)
    chosen = _generator(seed).integers(len(values), size=(RESAMPLES, len(values)))
    points = [_iqms(column[chosen]) for column in values.T]  # one point at a time keeps memory small
    low, high = np.quantile(np.reshape(points, (-1, RESAMPLES)), _BOUNDS, axis=1)
    return IqmCurve(_iqms(values.T), low, high)


_BOUNDS: Final = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)


def _generator(seed: int) -> np.random.Generator:
    return Streams(seed).numpy("bootstrap")


def _iqms(samples: NDArray[Any]) -> Floats:
    """The interquartile mean [k] of each of k samples [k, n]."""
    n = samples.shape[1]
    cut = n // 4
    means: Floats = np.sort(samples)[:, cut : n - cut].mean(1)
    return means


def score_text(score: float) -> str:
    """A score with two decimals below 10, else one."""
    return f"{score:z.1f}" if abs(score) >= 10 else f"{score:z.2f}"


def interval_text(low: float, high: float) -> str:
    """The 95% interval in words."""
    return f"95% interval {score_text(low)} to {score_text(high)}"
