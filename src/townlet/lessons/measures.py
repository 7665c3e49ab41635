"""Measures of runs, their values over several seeds, and expectations about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.lessons.schema import Expectation, Lesson, Measure
from townlet.runs.curves import make_bins, read_episode_curve
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader
from townlet.runs.statistics import bootstrap_interval, iqm

Floats = NDArray[np.float64]
Values = Mapping[str, Mapping[str, Sequence[float]]]  # by arm and measure, one for each seed
POINTS: Final = 40  # of the curve of a measure that is not an evaluation


class Curve(NamedTuple):
    """A measure over env_steps, both [n]."""

    env_steps: Floats
    values: Floats


class Summary(NamedTuple):
    """The interquartile mean over seeds, and the ends of its 95% interval."""

    iqm: float
    low: float
    high: float


def read_curve(run: Run, measure: Measure) -> Curve:
    """The measure during training, as recorded so far."""
    with MetricsReader(run.metrics_file) as metrics:
        if measure.evaluation is not None:
            table = metrics.read("evaluations", ("env_steps", measure.evaluation, "policy"))
            rows = [(x, y) for x, y, policy in zip(*table.values(), strict=True) if policy != "random"]
            return _curve([(x, y) for x, y in rows if y is not None])
        if measure.metric is not None:
            return _curve(list(zip(*metrics.series(measure.metric, POINTS), strict=True)))
        assert measure.training is not None
        episodes = read_episode_curve(metrics, measure.training)
        if not len(episodes.env_steps):
            return _curve([])
        bins = make_bins(episodes.env_steps, POINTS)
        means = bins.means(episodes.score, episodes.count)
        return _curve([(x, y) for x, y in zip(bins.centers, means, strict=True) if np.isfinite(y)])


def _curve(points: Sequence[tuple[float, float]]) -> Curve:
    values = np.asarray(points, np.float64).reshape(-1, 2)
    return Curve(values[:, 0], values[:, 1])


def read_value(run: Run, measure: Measure) -> float:
    """The value of the measure at the end of the training; raises TownletError if nothing was recorded."""
    curve = read_curve(run, measure)
    if not len(curve.values):
        source = measure.evaluation or measure.training or measure.metric
        raise TownletError(f"{run.name} has no '{source}'", "train it longer, or correct the measure", run.metrics_file)
    if measure.evaluation is not None:
        return float(curve.values[-1])
    return float(curve.values[curve.env_steps >= (1 - measure.last) * curve.env_steps[-1]].mean())


def summarize(values: Sequence[float]) -> Summary:
    """The interquartile mean over seeds with its 95% interval; for one seed, its value."""
    return Summary(iqm(values), *bootstrap_interval(values))


def failed_expectations(lesson: Lesson, values: Values, quick: bool = False) -> list[str]:
    """Expectations that do not hold for every seed, each as a sentence."""
    expectations = (quick and lesson.quick.expect) or lesson.expect
    return [text for e in expectations if (text := _failure(lesson, e, values))]


def _failure(lesson: Lesson, expectation: Expectation, values: Values) -> str | None:
    measure = lesson.measures[expectation.measure]
    bound = expectation.above if expectation.below is None else expectation.below
    found = values[expectation.arm][expectation.measure]
    others = values[bound][expectation.measure] if isinstance(bound, str) else [float(bound or 0)] * len(found)
    limits = [expectation.times * other for other in others]
    higher = expectation.below is None
    wrong = [(v, w) for v, w in zip(found, limits, strict=True) if not (v > w if higher else v < w)]
    if not wrong:
        return None
    value, limit = wrong[0]
    times = "" if expectation.times == 1 else f"{expectation.times:g} × "
    whose = f"that of '{bound}', " if isinstance(bound, str) else ""
    side = "above" if higher else "below"
    return (
        f"{measure.label} of '{expectation.arm}' is {measure.text(value)}, expected {side} {times}{whose}"
        f"{measure.text(limit)}"
    )


def wrong_intervals(lesson: Lesson, values: Values) -> list[str]:
    """Measures in `apart` whose intervals overlap, and in `overlap` whose intervals do not, each as a sentence."""
    first, second, *_ = lesson.arms
    *_, last = lesson.arms
    found = []
    for names, other, expected in ((lesson.apart, last, False), (lesson.overlap, second, True)):
        for name in names:
            a, b = summarize(values[first][name]), summarize(values[other][name])
            if (a.low <= b.high and b.low <= a.high) != expected:
                text = lesson.measures[name].text
                ends = f"{text(a.low)} to {text(a.high)} and {text(b.low)} to {text(b.high)}"
                verb = "do not overlap" if expected else "overlap"
                found.append(f"the intervals of {lesson.measures[name].label} {verb}: {ends}")
    return found
