"""Interquartile mean and its bootstrap interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from townlet.rng import Streams
from townlet.runs.statistics import RESAMPLES, bootstrap_interval, iqm, iqm_curve


@pytest.mark.parametrize(
    ("scores", "mean"),
    [
        ([7.0], 7),
        ([1.0, 3.0], 2),
        ([0.0, 6.0, 90.0], 32),  # a quarter of three scores is less than one
        ([0.0, 1.0, 2.0, 3.0, 1000.0], 2),  # of five, one at each end
        ([0.0, 1.0, 3.0, 1000.0], 2),  # the middle two
        ([5.0, -1e9, 1.0, 2.0, 3.0, 4.0, 1e9, 6.0], 3.5),  # the middle four, in any order
    ],
)
def test_interquartile_mean_equals_a_manual_computation(scores: list[float], mean: float) -> None:
    assert iqm(scores) == pytest.approx(mean)


@settings(deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=10))
def test_interval_contains_the_mean_and_lies_within_the_scores(scores: list[float]) -> None:
    low, high = bootstrap_interval(scores)
    slack = 1e-9 * max(1.0, *map(abs, scores))
    assert min(scores) - slack <= low <= iqm(scores) + slack
    assert iqm(scores) - slack <= high <= max(scores) + slack


def test_interval_narrows_with_more_seeds() -> None:
    def width(scores: list[float]) -> float:
        low, high = bootstrap_interval(scores)
        return high - low

    assert width([400.0, 450.0, 500.0] * 20) < width([400.0, 450.0, 500.0]) / 2


def test_interval_of_two_scores_equals_a_manual_computation() -> None:
    # Resampling 0 and 1 gives the means 0, 1/2 and 1 with probabilities 1/4, 1/2 and 1/4.
    assert bootstrap_interval([0.0, 1.0]) == (0, 1)
    # A resample of these 40 practically never has the outlier eleven times, so its middle half is 0.
    assert bootstrap_interval([0.0] * 39 + [1.0]) == (0, 0)


def test_tasks_are_resampled_separately() -> None:
    tasks = [[1.0, 3.0]] * 4  # every run scores 1 in the first task and 3 in the second
    assert bootstrap_interval(tasks) == (2, 2)
    low, high = bootstrap_interval(np.ravel(tasks))  # as one task, resamples contain more of one score
    assert low < 2 < high


def slow_interval(scores: np.ndarray, seed: int) -> tuple[float, float]:
    """The interval from loops over resamples, tasks and runs."""
    runs, tasks = scores.shape
    chosen = Streams(seed).numpy("bootstrap").integers(runs, size=(RESAMPLES, runs, tasks))
    means = []
    for draw in chosen:
        pooled = sorted(float(scores[draw[run, task], task]) for run in range(runs) for task in range(tasks))
        for _ in range(len(pooled) // 4):
            del pooled[0], pooled[-1]
        means.append(sum(pooled) / len(pooled))
    means.sort()

    def quantile(fraction: float) -> float:
        position = fraction * (len(means) - 1)
        below = int(position)
        return means[below] + (means[min(below + 1, len(means) - 1)] - means[below]) * (position - below)

    return quantile(0.025), quantile(0.975)


@pytest.mark.parametrize(("runs", "tasks"), [(3, 1), (5, 2), (4, 3)])
def test_interval_agrees_with_a_slow_reference(runs: int, tasks: int) -> None:
    scores = np.random.default_rng(7).normal(100, 20, (runs, tasks))
    assert bootstrap_interval(scores, 3) == pytest.approx(slow_interval(scores, 3))


def test_interval_is_reproducible() -> None:
    scores = np.random.default_rng(1).normal(0, 1, 12)
    assert bootstrap_interval(scores, 1) == bootstrap_interval(scores, 1) != bootstrap_interval(scores, 2)


def test_curve_has_iqm_and_interval_of_each_point() -> None:
    curves = np.random.default_rng(2).normal(0, 1, (5, 4))
    curve = iqm_curve(curves)
    for point in range(4):
        assert curve.iqm[point] == pytest.approx(iqm(curves[:, point]))
        assert (curve.low[point], curve.high[point]) == pytest.approx(bootstrap_interval(curves[:, point]))
    assert iqm_curve(np.zeros((3, 0))).iqm.shape == (0,)
