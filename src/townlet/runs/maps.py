"""Plots of places: which cells of the map were visited, and in which order affordances were used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, PowerNorm, to_rgb
from matplotlib.figure import Figure

from townlet.interfaces.counters import format_count
from townlet.runs.curves import Floats
from townlet.runs.plots import COLOURS, Plot, draw, shortened

WRITTEN: Final = 16  # cells a side up to which each shows its value
# One colour from hardly there to strong: little is told from nothing on white and on black, and text stays readable.
STRENGTH: Final = ListedColormap([(*to_rgb(COLOURS[0]), alpha) for alpha in np.linspace(0.06, 0.72, 64)])


def cells(
    values: Mapping[int, float], size: Sequence[int], places: Mapping[str, int], name: str, unit: str
) -> Plot | None:
    """A value for each cell of a map with one or two axes: x to the right, y downwards, places by name."""
    if len(size) not in (1, 2):
        return None
    width, height = size[0], size[1] if len(size) == 2 else 1
    grid = np.full(width * height, np.nan)
    for cell, value in values.items():
        if 0 <= cell < grid.size:
            grid[cell] = value or np.nan

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        written = max(width, height) <= WRITTEN
        _heat(figure, axes, grid.reshape(height, width), unit, bar=not written)
        axes.set_xticks(range(0, width, -(-width // WRITTEN)))
        axes.set_yticks(range(0, height, -(-height // WRITTEN)))
        axes.set_xlabel("x")
        axes.set_ylabel("y")
        here = {cell: place for place, cell in places.items()} if written else {}
        for cell in range(grid.size) if written else ():
            x, y = cell % width, cell // width
            if np.isfinite(grid[cell]):
                axes.text(x, y + 0.27, _amount(grid[cell]), ha="center", va="center", fontsize=8)
            if cell in here:
                axes.text(x, y - 0.15, shortened(here[cell], 10), ha="center", va="center", fontsize=7, weight="bold")

    side = min(9.0, max(3.0, 0.72 * width + 0.8))
    return draw(name, f"{unit} by cell of the map", (side, max(1.6, side * height / width)), paint)


def transitions(counts: Mapping[tuple[str, str], int], order: Sequence[str] = ()) -> Plot:
    """How often one affordance followed another; names in the given order, the others by alphabet."""
    found = {name for pair in counts for name in pair}
    names = [name for name in order if name in found] + sorted(found - set(order))
    grid = np.full((len(names), len(names)), np.nan)
    for (before, after), count in counts.items():
        grid[names.index(before), names.index(after)] = count or np.nan

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        written = len(names) <= WRITTEN
        _heat(figure, axes, grid, "times", bar=not written)
        labels = list(map(shortened, names))
        axes.set_xticks(range(len(names)), labels, rotation=50, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(names)), labels)
        axes.set_xlabel("to")
        axes.set_ylabel("from")
        for y, x in np.argwhere(np.isfinite(grid)) if written else ():
            axes.text(x, y, _amount(grid[y, x]), ha="center", va="center", fontsize=8)

    side = 1.8 + 0.48 * len(names)
    return draw("transitions", "from which affordance to which", (side, side), paint)


def _amount(value: float) -> str:
    return format_count(value) if value >= 10 else f"{value:.2g}"


def _heat(figure: Figure, axes: Axes, grid: Floats, unit: str, bar: bool) -> None:
    """A heat map as cells, not as an embedded bitmap; where nothing happened the page shows through.

    Strength goes with the square root, since a few places get most of the visits.
    """
    height, width = grid.shape
    edges = np.arange(width + 1) - 0.5, np.arange(height + 1) - 0.5
    shown: Any = np.ma.masked_invalid(grid)
    norm = PowerNorm(0.5, vmin=0, vmax=float(np.nanmax(grid, initial=1e-12)))
    drawn = axes.pcolormesh(*edges, shown, cmap=STRENGTH, norm=norm)
    axes.set_aspect("equal")
    axes.invert_yaxis()
    axes.grid(False)
    axes.set_xticks(edges[0], minor=True)
    axes.set_yticks(edges[1], minor=True)
    axes.grid(True, which="minor")
    axes.tick_params(which="both", length=0)
    if bar:
        figure.colorbar(drawn, ax=axes, label=unit, shrink=0.8)
