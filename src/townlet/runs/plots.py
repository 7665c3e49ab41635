"""Plots as SVG that suit a dark and a light page: text and lines take the colour of the text around them."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from townlet.runs.curves import Floats, Lives, Stretches, mean_of
from townlet.runs.metric_catalog import describe_metric
from townlet.runs.summary_text import TOWN_TERMS, ReportTerms

INK: Final = "#0a0b0c"  # stands for the colour of the text until the SVG is written
# Okabe and Ito's colours without black: told apart by nearly everyone, on white and on black.
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#999933", "#888888")
LABEL: Final = 20  # letters
WIDTH: Final = 9.6  # inches
CURVE: Final = (WIDTH, 3.6)
NUMBERS, TITLES, BELOW = 0.62, 0.62, 0.42  # inches that small plots leave for texts: left, above and below, below
EVALUATED: Final = ("env_steps", "length", "length_min", "length_max", "limit")
RETURNS: Final = ("env_steps", "return")
SETTINGS: Final[Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # names may contain "$"
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": f"cycler('color', {list(COLOURS)})",
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "axes.grid": True,
    "axes.axisbelow": True,
}


@dataclass(frozen=True)
class Plot:
    """A picture with its name (of the file), what it shows, and its SVG."""

    name: str
    about: str
    svg: str

    def standalone(self) -> bytes:
        """The SVG as a file of its own, which chooses its ink by the reader's preference."""
        style = "<style>svg{color:#222}@media(prefers-color-scheme:dark){svg{color:#ddd}}</style>"
        opening, rest = self.svg.split(">", 1)
        return f'<?xml version="1.0" encoding="utf-8"?>\n{opening}>{style}{rest}'.encode()


Paint = Callable[[Figure], None]


def draw(name: str, about: str, size: tuple[float, float], paint: Paint, *, fitted: bool = True) -> Plot:
    """A plot painted on a fresh figure; no state is shared with any other figure. One that is not `fitted` to its texts
    by measuring them, which takes half of its time, sets its margins itself."""
    page = io.StringIO()
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained" if fitted else None)
        paint(figure)
        figure.savefig(page, format="svg", metadata={"Date": None, "Creator": None})
    svg = page.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    # Several plots share one page: their names must not meet.
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    return Plot(name, about, svg)


def png(size: tuple[float, float], paint: Paint) -> bytes:
    """A picture on white paper: PNG cannot follow the colour of a page."""
    file = io.BytesIO()
    with matplotlib.rc_context({**SETTINGS, "figure.facecolor": "white", "axes.facecolor": "white"}):
        figure = Figure(figsize=size, layout="constrained")
        paint(figure)
        figure.savefig(file, format="png", dpi=120)
    return file.getvalue()


def progress(
    told: ReportTerms,
    lives: Lives,
    part: Stretches,
    evaluations: Mapping[str, list[Any]],
    random: float | None,
    goal: float | None = None,
) -> Paint:
    """Scores over env_steps, with evaluations, the limit of a life, the yardstick of a random agent and the goal."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        mean = part.means(lives.score, lives.count)
        low, high = part.quantile(0.1, lives), part.quantile(0.9, lives)
        there = np.isfinite(mean)
        axes.fill_between(part.middle[there], low[there], high[there], color=COLOURS[5], alpha=0.25, linewidth=0)
        axes.plot(part.middle[there], mean[there], color=COLOURS[5], label="while training (band: 10–90 %)")
        columns = EVALUATED if told is TOWN_TERMS else RETURNS
        known = [row for row in zip(*(evaluations[name] for name in columns), strict=True) if row[1] is not None]
        if known:
            moments, score, *bounds = zip(*known, strict=True)
            least, most, limits = bounds if bounds else ([None] * len(known),) * 3
            spread = [(x, low, high) for x, low, high in zip(moments, least, most, strict=True) if low is not None]
            if spread:
                axes.vlines(*zip(*spread, strict=True), color=COLOURS[3], alpha=0.35, linewidth=1.5)
            axes.plot(
                moments,
                score,
                "o-",
                markersize=4,
                color=COLOURS[3],
                label="evaluated (bar: all lives)" if spread else "evaluated",
            )
            if limits[-1] is not None:
                axes.axhline(limits[-1], color=INK, alpha=0.5, linewidth=1, label=f"limit: {limits[-1]}")
        if random is not None:
            axes.axhline(random, color=COLOURS[7], linestyle="--", label=f"a random agent: {told.figure(random)}")
        if goal is not None:
            axes.axhline(goal, color=COLOURS[2], linestyle=":", label=f"solved from {told.figure(goal)}")
        if told is TOWN_TERMS:
            axes.set_ylim(bottom=0)
        axes.set_ylabel(told.axis)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        _moments(axes)

    return paint


def shares(name: str, about: str, part: Stretches, found: dict[str, Floats]) -> Plot:
    """Shares of labels over env_steps, one above the other; rare labels are put together."""
    few = len(COLOURS) - 1
    shown = dict(list(found.items())[:few])
    if rest := list(found.values())[few:]:
        shown["others"] = np.sum(rest, axis=0)

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        some = np.sum(list(shown.values()), axis=0) > 0
        # A label that begins with "_" would be left out of the legend, so the legend is told its labels.
        layers = axes.stackplot(part.middle[some], [values[some] for values in shown.values()], alpha=0.8)
        axes.legend(layers, list(map(shortened, shown)), loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes.set_ylim(0, 1)
        axes.set_ylabel("share of episodes")
        _moments(axes)

    return draw(name, about, (WIDTH, 2.8), paint)


def final_meters(lives: Lives) -> Plot:
    """Meters at the end of life, in the first and the last tenth of the episodes."""
    tenth = max(1, len(lives.meters) // 10)
    first, last = mean_of(lives.meters[:tenth]), mean_of(lives.meters[-tenth:])
    names = list(dict.fromkeys([*first, *last]))

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        place = np.arange(len(names))
        for shift, values, label in ((-0.2, first, "first tenth of lives"), (0.2, last, "last tenth of lives")):
            axes.barh(place + shift, [values.get(name, 0.0) for name in names], 0.38, label=label)
        axes.set_yticks(place, list(map(shortened, names)))
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel("mean at the end of an episode")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))

    return draw("meters", "meters at the end of life", (WIDTH, 1.2 + 0.32 * len(names)), paint)


def meter_history(series: Mapping[str, tuple[list[int], list[float]]]) -> Plot:
    """How full each meter was while training."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        lines = [axes.plot(moments, values, linewidth=1.4)[0] for moments, values in series.values()]
        axes.legend(lines, list(map(shortened, series)), loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes.set_ylim(0, 1)
        axes.set_ylabel("mean of all watched rows")
        _moments(axes)

    return draw("history", "meters while training over env_steps", (WIDTH, 3.0), paint)


def learning(series: Mapping[str, tuple[list[int], list[float]]]) -> Plot:
    """Small plots of the figures of updates."""
    columns = 3
    rows = -(-len(series) // columns)
    height = 1.8 * rows + 0.2

    def paint(figure: Figure) -> None:
        grid = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
        wide = (WIDTH - 0.1) / columns - NUMBERS, (height - 0.2) / rows - TITLES  # of one plot, in inches
        figure.subplots_adjust(
            left=NUMBERS / WIDTH, right=1 - 0.1 / WIDTH, bottom=BELOW / height, top=1 - (0.2 + TITLES - BELOW) / height,
            wspace=NUMBERS / wide[0], hspace=TITLES / wide[1],
        )  # fmt: skip
        for place, (axes, (name, (moments, values))) in enumerate(zip(grid, series.items(), strict=False)):
            axes.plot(moments, values, linewidth=1.2, marker="." if len(values) < 3 else "")
            metric = describe_metric(name)
            axes.set_title(f"{name} ({metric.unit})" if metric and metric.unit else shortened(name), fontsize=9)
            axes.locator_params(nbins=5)
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.tick_params(labelsize=8)
            if place + columns >= len(series):
                axes.set_xlabel("env_steps", fontsize=8)
        for axes in grid[len(series) :]:
            axes.set_visible(False)

    return draw("learning", "figures of learning over env_steps", (WIDTH, height), paint, fitted=False)


def shortened(label: str, letters: int = LABEL) -> str:
    """A label that leaves room for the plot."""
    return label if len(label) <= letters else f"{label[: letters - 1]}…"


def _moments(axes: Axes) -> None:
    axes.set_xlabel("env_steps")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
