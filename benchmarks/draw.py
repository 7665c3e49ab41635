"""Plots for the docs from the measurements of `benchmarks/curves.py`: `python benchmarks/draw.py`."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator

from curves import RESULTS, SIZES
from townlet.runs.plots import COLORS, SETTINGS

DOCS: Final = Path(__file__).parents[1] / "docs"
WHITE: Final[Any] = {"figure.facecolor": "white", "axes.facecolor": "white", **dict.fromkeys(
    ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), "#222222")}  # fmt: skip
MIN_ROWS: Final = 1 << 18  # of the memory curves: with fewer rows most memory belongs to the process itself
SUPERSCRIPT: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
Curves = dict[str, list[tuple[int, float]]]


def read(file: Path) -> tuple[dict[str, Curves], Curves]:
    """Environment steps per second by varied property, and bytes per row.

    The fastest of all rounds of a size counts, because the speed of processors varies.
    """
    best: dict[tuple[str, str, int], float] = defaultdict(float)
    memory: dict[str, dict[int, float]] = defaultdict(dict)
    for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        name = f"{line['engine']} on {'one core' if line['device'] == 'cpu' else 'a GPU'}"
        key = line["varied"], name, line["size"]
        best[key] = max(best[key], line["best_per_wall_s"])
        if line["varied"] == "rows" and line["size"] >= MIN_ROWS:
            memory[name][line["size"]] = line["bytes"] / line["size"]
    rates: dict[str, Curves] = defaultdict(lambda: defaultdict(list))
    for (varied, name, size), rate in best.items():
        rates[varied][name].append((size, rate))
    return rates, {name: list(points.items()) for name, points in memory.items()}


def plot(file: Path) -> None:
    """`docs/cost-rows.svg`: steps per second and memory. `docs/cost-world.svg`: time relative to the smallest world."""
    rates, memory = read(file)
    with matplotlib.rc_context({**SETTINGS, **WHITE, "svg.hashsalt": "townlet"}):
        figure = Figure((9.6, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(2, 1))
        left.set_yscale("log")
        _by_rows(left, rates["rows"], "environment steps per second")
        left.legend(frameon=False)
        _by_rows(right, memory, "bytes per row")
        right.set_ylim(0)
        _save(figure, "cost-rows")
        figure = Figure((9.6, 3.4), layout="constrained")
        for axes, what in zip(figure.subplots(1, len(SIZES)), SIZES, strict=True):
            _by_size(axes, what, rates[what])
        _save(figure, "cost-world")


def _curves(axes: Axes, curves: Curves) -> None:
    for color, (name, points) in zip(COLORS, curves.items(), strict=False):
        axes.plot(*zip(*sorted(points), strict=True), "o-", color=color, label=name)


def _by_rows(axes: Axes, curves: Curves, what: str) -> None:
    _curves(axes, curves)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="rows", ylabel=what)
    axes.xaxis.set_major_locator(LogLocator(base=4))
    axes.xaxis.set_major_formatter(lambda rows, _: f"2{str(round(math.log2(rows))).translate(SUPERSCRIPT)}")
    axes.yaxis.set_major_formatter(EngFormatter())


def _relative(curves: Curves) -> Curves:
    """The time of a step relative to that of the smallest size."""
    return {name: [(x, min(points)[1] / rate) for x, rate in points] for name, points in curves.items()}


def _by_size(axes: Axes, what: str, curves: Curves) -> None:
    _curves(axes, _relative(curves))
    labels = {"grid": "map width", "meters": "number of meters", "affordances": "number of affordances"}
    axes.set(xlabel=labels[what], ylim=(0, None))
    if what == "meters":
        axes.set_ylabel("relative time of a step")
        axes.legend(frameon=False, fontsize=8)


def _save(figure: Figure, name: str) -> None:
    figure.savefig(DOCS / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    plot(RESULTS)
