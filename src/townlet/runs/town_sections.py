"""Report sections of towns: meters, recorded episodes, visited cells, transitions between affordances."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, PowerNorm, to_rgb
from matplotlib.figure import Figure

from townlet.errors import TownletError
from townlet.interfaces.counters import format_count
from townlet.runs.curves import EpisodeCurve, Floats
from townlet.runs.markup import Section
from townlet.runs.metric_catalog import METER_PREFIX
from townlet.runs.metrics_reader import MetricsReader, as_rows, counted_fraction
from townlet.runs.plots import COLORS, INK, WIDTH, Plot, draw, final_meters, meter_history, truncate_label
from townlet.town.episode_recorder import Recording
from townlet.town.state import OUT_OF_TIME

TABLE: Final = "recordings"
COLUMNS: Final = ("kind", "env_steps", "row", "stage", "length", "cause", "return")
MAX_POINTS: Final = 150  # in a curve
MAX_ROWS: Final = 50  # in a table
MAX_LABELED: Final = 16  # cells per side; in larger grids, cells do not show their values
# One color with rising opacity: small values differ from zero on white and on black, and text stays readable.
HEAT: Final = ListedColormap([(*to_rgb(COLORS[0]), alpha) for alpha in np.linspace(0.06, 0.72, 64)])


def meters_section(store: MetricsReader, curve: EpisodeCurve) -> Section | None:
    """Meters during training and at the end of episodes."""
    names = [name for name in store.names() if name.startswith(METER_PREFIX)]
    series = {name.removeprefix(METER_PREFIX): store.series(name, MAX_POINTS) for name in names}
    plots = [meter_history(series)] if series else []
    plots += [final_meters(curve)] if any(curve.meters) else []
    if not plots:
        return None
    about = "During training, and at the end of episodes, in the first and the last tenth of them."
    about += _coverage(store)
    return Section("Meters", [about] if len(plots) == 2 else [], plots=plots)


def highlights_section(store: MetricsReader, meters: Sequence[str]) -> Section | None:
    """All recorded episodes in order, with plots of the first and of the longest; None without recordings."""
    recorded = store.read(TABLE, ("number", *COLUMNS))
    if not recorded["number"]:
        return None
    lengths = recorded["length"]
    plotted = dict.fromkeys([0, max(range(len(lengths)), key=lambda k: (lengths[k], k))])
    recordings = [r for k in plotted if (r := _read_recording(store, int(recorded["number"][k]), len(meters)))]
    names = [name for name in COLUMNS if name != "stage" or any(recorded["stage"])]
    rows = [tuple(_format_entry(name, recorded[name][k]) for name in names) for k in range(len(lengths))]
    about = "A few episodes are recorded completely; the live page replays each of them step by step."
    plots = [_meters_plot(recordings, meters)] if recordings and meters else []
    header = [{"kind": "recorded as", "cause": "ended by"}.get(name, name) for name in names]
    return Section("Recorded episodes", [about], header=header, rows=rows, plots=plots)


def _format_entry(name: str, value: Any) -> str:
    if name == "return":
        return f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _read_recording(store: MetricsReader, number: int, meters: int) -> tuple[str, Recording] | None:
    """The title and the recording of an episode; None if it is damaged or has other meters."""
    (row,) = as_rows(store.read(TABLE, where={"number": number}))
    try:
        recording = Recording.from_bytes(row["data"])
    except TownletError:
        return None
    if recording.meters.shape[1:] != (meters,):
        return None
    ended = "reached the limit" if row["cause"] == OUT_OF_TIME else f"died without {row['cause']}"
    title = f"{row['kind']}, after {row['env_steps']:,} steps of training: {row['length']} steps, {ended}"
    return title, recording


def _meters_plot(recordings: Sequence[tuple[str, Recording]], meters: Sequence[str]) -> Plot:
    """Every meter over each episode; episodes are stacked on the same scale."""

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(recordings), 1, sharex=True, squeeze=False)
        for (title, recording), axes in zip(recordings, grid[:, 0], strict=True):
            for m, name in enumerate(meters):
                color, label = COLORS[m % len(COLORS)], truncate_label(name)
                axes.plot(recording.age, recording.meters[:, m], color=color, linewidth=1.3, label=label)
            axes.axhline(0, color=INK, alpha=0.4, linewidth=1)
            axes.set_title(title, fontsize=10, loc="left")
            axes.set_ylim(-0.03, 1.03)
        grid[0, 0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        grid[-1, 0].set_xlabel("step of the episode")

    return draw("highlights", "meters over an episode", (WIDTH, 0.6 + 2.2 * len(recordings)), paint)


def transitions_section(store: MetricsReader, meta: Mapping[str, Any]) -> Section | None:
    """Transitions between affordances in the last quarter of the run: current behavior, not early exploration."""
    env_steps = store.read("affordance_transitions", ("env_steps",))["env_steps"]
    if not env_steps:
        return None
    since = max(env_steps) * 3 // 4
    totals = store.totals("affordance_transitions", ("from", "to"), since)
    counts = {(str(a), str(b)): n for (a, b), n in totals.items()}
    about = f"Which affordance (below) followed which (left) after env_steps {since:,}."
    plot = transitions_plot(counts, list(meta.get("places") or ()))
    return Section("Transitions between affordances", [about + _coverage(store)], plots=[plot])


def _coverage(store: MetricsReader) -> str:
    """A sentence if visits and transitions were not counted in all steps, else ""."""
    fraction = counted_fraction(store)
    return "" if fraction >= 1 else f" Counted in {100 * fraction:.0f} % of the steps."


def cells_section(store: MetricsReader, meta: Mapping[str, Any]) -> Section | None:
    """Visits in the whole run, and the last novelty of each cell where it was recorded."""
    visits = {cell: n for (cell,), n in store.totals("cell_visits", ("cell",)).items() if isinstance(cell, int)}
    if not visits:
        return None
    columns = store.read("cell_visits", ("cell", "novelty"))
    novelty = {
        c: n for c, n in zip(columns["cell"], columns["novelty"], strict=True) if isinstance(c, int) and n is not None
    }
    size = meta.get("size") or []
    shape = size if all(0 < n <= 4096 for n in size) else []
    places = meta.get("places") or {}
    plots = [cells_plot(visits, shape, places, "cells", "visits")]
    plots += [cells_plot(novelty, shape, places, "novelty", "novelty")] if novelty else []
    about = f"How many steps ended on each cell, in the whole run.{_coverage(store)}"
    if novelty:
        about += " Below, the novelty of each cell at the end."
    if drawn := [plot for plot in plots if plot]:
        return Section("Visited cells", [about], plots=drawn)
    # The map cannot be drawn: it has three or more axes, or its size is unknown.
    most_visited = sorted(visits.items(), key=lambda item: -item[1])[:MAX_ROWS]
    rows = [(str(cell), f"{count:,}") for cell, count in most_visited]
    return Section("Visited cells", [about], header=("cell", "visits"), rows=rows)


def cells_plot(
    values: Mapping[int, float], size: Sequence[int], places: Mapping[str, int], name: str, unit: str
) -> Plot | None:
    """A value for each cell of a map with one or two axes: x to the right, y down, places labeled; else None."""
    if len(size) not in (1, 2):
        return None
    width, height = size[0], size[1] if len(size) == 2 else 1
    grid = np.full(width * height, np.nan)
    for cell, value in values.items():
        if 0 <= cell < grid.size:
            grid[cell] = value or np.nan

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        labeled = max(width, height) <= MAX_LABELED
        _heat_map(figure, axes, grid.reshape(height, width), unit, colorbar=not labeled)
        axes.set_xticks(range(0, width, math.ceil(width / MAX_LABELED)))
        axes.set_yticks(range(0, height, math.ceil(height / MAX_LABELED)))
        axes.set_xlabel("x")
        axes.set_ylabel("y")
        labels = {cell: place for place, cell in places.items()} if labeled else {}
        for cell in range(grid.size) if labeled else ():
            x, y = cell % width, cell // width
            if np.isfinite(grid[cell]):
                axes.text(x, y + 0.27, _format_amount(grid[cell]), ha="center", va="center", fontsize=8)
            if cell in labels:
                label = truncate_label(labels[cell], 10)
                axes.text(x, y - 0.15, label, ha="center", va="center", fontsize=7, weight="bold")

    side = min(9.0, max(3.0, 0.72 * width + 0.8))
    return draw(name, f"{unit} by cell of the map", (side, max(1.6, side * height / width)), paint)


def transitions_plot(counts: Mapping[tuple[str, str], int], order: Sequence[str] = ()) -> Plot:
    """How often one affordance followed another; names in the given order, then alphabetically."""
    known = {name for pair in counts for name in pair}
    names = [name for name in order if name in known] + sorted(known - set(order))
    grid = np.full((len(names), len(names)), np.nan)
    for (before, after), count in counts.items():
        grid[names.index(before), names.index(after)] = count or np.nan

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        labeled = len(names) <= MAX_LABELED
        _heat_map(figure, axes, grid, "times", colorbar=not labeled)
        labels = list(map(truncate_label, names))
        axes.set_xticks(range(len(names)), labels, rotation=50, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(names)), labels)
        axes.set_xlabel("to")
        axes.set_ylabel("from")
        for y, x in np.argwhere(np.isfinite(grid)) if labeled else ():
            axes.text(x, y, _format_amount(grid[y, x]), ha="center", va="center", fontsize=8)

    side = 1.8 + 0.48 * len(names)
    return draw("transitions", "transitions between affordances", (side, side), paint)


def _format_amount(value: float) -> str:
    return format_count(value) if value >= 10 else f"{value:.2g}"


def _heat_map(figure: Figure, axes: Axes, grid: Floats, unit: str, colorbar: bool) -> None:
    """A heat map drawn as vector graphics, not as a bitmap; cells without a value are transparent.

    Opacity grows with the square root of the value, since a few cells get most of the visits.
    """
    height, width = grid.shape
    edges = np.arange(width + 1) - 0.5, np.arange(height + 1) - 0.5
    shown: Any = np.ma.masked_invalid(grid)
    norm = PowerNorm(0.5, vmin=0, vmax=float(np.nanmax(grid, initial=1e-12)))
    mesh = axes.pcolormesh(*edges, shown, cmap=HEAT, norm=norm)
    axes.set_aspect("equal")
    axes.invert_yaxis()
    axes.grid(False)
    axes.set_xticks(edges[0], minor=True)
    axes.set_yticks(edges[1], minor=True)
    axes.grid(True, which="minor")
    axes.tick_params(which="both", length=0)
    if colorbar:
        figure.colorbar(mesh, ax=axes, label=unit, shrink=0.8)
