"""The figure of a lesson: one panel per measure, one curve per arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from townlet.lessons.measures import Curve, read_curve
from townlet.lessons.schema import Lesson, Measure
from townlet.runs import plots
from townlet.runs.folder import Run
from townlet.runs.statistics import iqm_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL: Final = (5.4, 3.6)  # inches
TITLE_HEIGHT: Final = 0.9  # inches, with the legend
ARM_COLORS: Final = tuple(plots.COLORS[k] for k in (3, 0, 2, 4))
POINTS: Final = 60  # at which the curves of several seeds are interpolated


def figure_size(lesson: Lesson) -> tuple[float, float]:
    return PANEL[0] * len(lesson.measures), PANEL[1] + TITLE_HEIGHT


def paint_figure(lesson: Lesson, runs: Mapping[str, Sequence[Run]]) -> plots.Paint:
    """A function that paints the runs of each arm: their interquartile mean, with a band for its 95% interval."""
    curves = {
        (arm, name): [read_curve(run, measure) for run in runs[arm]]
        for arm in lesson.arms
        for name, measure in lesson.measures.items()
    }

    def paint(figure: Figure) -> None:
        panels = figure.subplots(1, len(lesson.measures), squeeze=False)[0]
        for axes, (name, measure) in zip(panels, lesson.measures.items(), strict=True):
            for arm, color in zip(lesson.arms, ARM_COLORS, strict=False):
                _paint_arm(axes, curves[arm, name], lesson.arms[arm].label, color)
            _label(axes, measure)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=11)
        figure.suptitle(lesson.title, fontsize=15)

    return paint


def _paint_arm(axes: Axes, curves: Sequence[Curve], label: str, color: str) -> None:
    known = [curve for curve in curves if len(curve.values)]
    if not known:
        axes.plot([], [], color=color, label=label)
        return
    if len(known) == 1:
        axes.plot(*known[0], color=color, linewidth=2.2, label=label)
        return
    end = min(curve.env_steps[-1] for curve in known)
    start = max(curve.env_steps[0] for curve in known)
    env_steps = np.linspace(start, end, POINTS)
    iqms, low, high = iqm_curve([np.interp(env_steps, *curve) for curve in known])
    axes.plot(env_steps, iqms, color=color, linewidth=2.2, label=label)
    axes.fill_between(env_steps, low, high, color=color, alpha=0.2, linewidth=0)


def _label(axes: Axes, measure: Measure) -> None:
    axes.set_ylabel(measure.label, fontsize=11)
    plots.format_env_steps(axes)
    axes.set_xlabel("training steps", fontsize=11)
    if measure.percent:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value * 100:.0f}%")
