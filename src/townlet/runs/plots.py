"""Plots as SVG for dark and light pages: text and lines take the color of the surrounding text."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from townlet.runs.curves import Bins, EpisodeCurve, Floats, mean_by_name
from townlet.runs.metric_catalog import describe_metric
from townlet.runs.summary_text import TOWN_TERMS, ReportTerms

INK: Final = "#0a0b0c"  # placeholder for the text color until the SVG is written
# Six of Okabe and Ito's colors, an olive and a gray: distinguishable with color blindness, on white and on black.
COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#999933", "#888888")
MAX_LABEL: Final = 20  # characters
WIDTH: Final = 9.6  # inches
CURVE_SIZE: Final = (WIDTH, 3.6)
LEFT_MARGIN, ROW_MARGIN, BOTTOM_MARGIN = 0.62, 0.62, 0.42  # inches for text: left, between rows, below
LENGTH_COLUMNS: Final = ("env_steps", "length", "length_min", "length_max", "limit")
RETURN_COLUMNS: Final = ("env_steps", "return")
SETTINGS: Final[Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # names may contain "$"
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": f"cycler('color', {list(COLORS)})",
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "axes.grid": True,
    "axes.axisbelow": True,
}
ON_WHITE: Final[Any] = {**SETTINGS, "figure.facecolor": "white", "axes.facecolor": "white"}


@dataclass(frozen=True)
class Plot:
    """A plot: its file name, a description, and its SVG."""

    name: str
    about: str
    svg: str

    def standalone(self) -> bytes:
        """The SVG as a separate file, with a text color that follows the reader's light or dark mode."""
        style = "<style>svg{color:#222}@media(prefers-color-scheme:dark){svg{color:#ddd}}</style>"
        opening, rest = self.svg.split(">", 1)
        return f'<?xml version="1.0" encoding="utf-8"?>\n{opening}>{style}{rest}'.encode()


Paint = Callable[[Figure], None]


def draw(name: str, about: str, size: tuple[float, float], paint: Paint, *, constrained: bool = True) -> Plot:
    """A plot painted on a new figure, without global state.

    Constrained layout measures all text, which takes half of the time; without it, `paint` must set the margins.
    """
    page = io.StringIO()
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained" if constrained else None)
        paint(figure)
        figure.savefig(page, format="svg", metadata={"Date": None, "Creator": None})
    svg = page.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    # Several plots share one page, so their ids must be unique.
    return Plot(name, about, re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg))


class NotebookFigure(Figure):
    """A matplotlib figure on white that notebooks display without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        with matplotlib.rc_context(ON_WHITE):
            self.savefig(file, format="png", dpi=120)
        return file.getvalue()


def figure(size: tuple[float, float], paint: Paint | None) -> NotebookFigure:
    """A figure for notebooks and scripts; empty without `paint`."""
    with matplotlib.rc_context(ON_WHITE):
        white = NotebookFigure(figsize=size, layout="constrained")
        if paint is not None:
            paint(white)
    return white


def png(size: tuple[float, float], paint: Paint) -> bytes:
    """A PNG on white: PNG cannot follow the color of a page."""
    return figure(size, paint)._repr_png_()


def score_curve(
    terms: ReportTerms,
    curve: EpisodeCurve,
    bins: Bins,
    evaluations: Mapping[str, list[Any]],
    random_score: float | None,
    marks: Mapping[str, float],
) -> Paint:
    """A function that paints scores over env_steps, with evaluations, step limit, random agent and named scores."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        mean = bins.means(curve.score, curve.count)
        low, high = bins.quantile(0.1, curve), bins.quantile(0.9, curve)
        finite = np.isfinite(mean)
        axes.fill_between(bins.centers[finite], low[finite], high[finite], color=COLORS[5], alpha=0.25, linewidth=0)
        axes.plot(bins.centers[finite], mean[finite], color=COLORS[5], label="training (band: 10–90 %)")
        columns = LENGTH_COLUMNS if terms is TOWN_TERMS else RETURN_COLUMNS
        known = [row for row in zip(*(evaluations[name] for name in columns), strict=True) if row[1] is not None]
        if known:
            env_steps, score, *bounds = zip(*known, strict=True)
            least, most, limits = bounds or ([None] * len(known),) * 3
            spread = [(x, low, high) for x, low, high in zip(env_steps, least, most, strict=True) if low is not None]
            if spread:
                axes.vlines(*zip(*spread, strict=True), color=COLORS[3], alpha=0.35, linewidth=1.5)
            label = "evaluation (bar: min to max)" if spread else "evaluation"
            axes.plot(env_steps, score, "o-", markersize=4, color=COLORS[3], label=label)
            if limits[-1] is not None:
                axes.axhline(limits[-1], color=INK, alpha=0.5, linewidth=1, label=f"limit: {limits[-1]}")
        if random_score is not None:
            label = f"a random agent: {terms.format_score(random_score)}"
            axes.axhline(random_score, color=COLORS[7], linestyle="--", label=label)
        for (name, mark), style in zip(marks.items(), (":", "-."), strict=False):
            axes.axhline(mark, color=COLORS[2], linestyle=style, label=f"{name} {terms.format_score(mark)}")
        if terms is TOWN_TERMS:
            axes.set_ylim(bottom=0)
        axes.set_ylabel(terms.axis_label)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        format_env_steps(axes)

    return paint


def stacked_fractions(name: str, about: str, bins: Bins, fractions: dict[str, Floats]) -> Plot:
    """Fractions of labels over env_steps, stacked; labels after the first seven are combined."""
    max_labels = len(COLORS) - 1
    shown = dict(list(fractions.items())[:max_labels])
    if rest := list(fractions.values())[max_labels:]:
        shown["others"] = np.sum(rest, axis=0)

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        nonempty = np.sum(list(shown.values()), axis=0) > 0
        # Matplotlib omits labels that begin with "_", so the legend gets its labels explicitly.
        layers = axes.stackplot(bins.centers[nonempty], [values[nonempty] for values in shown.values()], alpha=0.8)
        axes.legend(layers, list(map(truncate_label, shown)), loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes.set_ylim(0, 1)
        axes.set_ylabel("fraction of episodes")
        format_env_steps(axes)

    return draw(name, about, (WIDTH, 2.8), paint)


def final_meters(curve: EpisodeCurve) -> Plot:
    """Meters at the end of episodes, in the first and in the last tenth of them."""
    tenth = max(1, len(curve.meters) // 10)
    first, last = mean_by_name(curve.meters[:tenth]), mean_by_name(curve.meters[-tenth:])
    names = list(dict.fromkeys([*first, *last]))

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        positions = np.arange(len(names))
        for shift, values, label in ((-0.2, first, "first tenth of episodes"), (0.2, last, "last tenth of episodes")):
            axes.barh(positions + shift, [values.get(name, 0.0) for name in names], 0.38, label=label)
        axes.set_yticks(positions, list(map(truncate_label, names)))
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel("mean at the end of an episode")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))

    return draw("meters", "meters at the end of episodes", (WIDTH, 1.2 + 0.32 * len(names)), paint)


def meter_history(series: Mapping[str, tuple[list[int], list[float]]]) -> Plot:
    """Mean of each meter during training."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        lines = [axes.plot(env_steps, values, linewidth=1.4)[0] for env_steps, values in series.values()]
        axes.legend(lines, list(map(truncate_label, series)), loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes.set_ylim(0, 1)
        axes.set_ylabel("mean over the sampled rows")
        format_env_steps(axes)

    return draw("history", "mean meters over env_steps, during training", (WIDTH, 3.0), paint)


def metric_grid(series: Mapping[str, tuple[list[int], list[float]]]) -> Plot:
    """A grid of small plots, one per metric of updates."""
    columns = 3
    rows = math.ceil(len(series) / columns)
    height = 1.8 * rows + 0.2

    def paint(figure: Figure) -> None:
        grid = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
        w, h = (WIDTH - 0.1) / columns - LEFT_MARGIN, (height - 0.2) / rows - ROW_MARGIN  # size of one plot in inches
        figure.subplots_adjust(
            left=LEFT_MARGIN / WIDTH, right=1 - 0.1 / WIDTH, bottom=BOTTOM_MARGIN / height,
            top=1 - (0.2 + ROW_MARGIN - BOTTOM_MARGIN) / height, wspace=LEFT_MARGIN / w, hspace=ROW_MARGIN / h
        )  # fmt: skip
        for index, (axes, (name, (env_steps, values))) in enumerate(zip(grid, series.items(), strict=False)):
            axes.plot(env_steps, values, linewidth=1.2, marker="." if len(values) < 3 else "")
            metric = describe_metric(name)
            axes.set_title(f"{name} ({metric.unit})" if metric and metric.unit else truncate_label(name), fontsize=9)
            axes.locator_params(nbins=5)
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.tick_params(labelsize=8)
            if index + columns >= len(series):  # nothing is below this plot
                axes.set_xlabel("env_steps", fontsize=8)
        for axes in grid[len(series) :]:
            axes.set_visible(False)

    return draw("learning", "metrics of updates over env_steps", (WIDTH, height), paint, constrained=False)


def truncate_label(label: str, length: int = MAX_LABEL) -> str:
    return label if len(label) <= length else f"{label[: length - 1]}…"


def format_env_steps(axes: Axes) -> None:
    """Label the x axis as env_steps from 0, with units such as k and M."""
    axes.set_xlabel("env_steps")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
