"""Runs side by side: in which settings they differ, and their curves in one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from townlet.errors import TownletError
from townlet.runs import disk, markup, plots
from townlet.runs.folder import Run
from townlet.runs.overview import Overview
from townlet.runs.provenance import flat_settings
from townlet.runs.summary_text import TOWN_TERMS

SIZE: Final = (8.0, 4.5)  # inches
ENDINGS: Final = (".png", ".svg", ".html")


def differences(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Settings that are not the same in all runs, each with its values; None where a run has no such key."""
    found = [flat_settings(run) for run in runs]
    keys = dict.fromkeys(key for one in found for key in one)
    values = {key: [one.get(key) for one in found] for key in keys}
    return {key: these for key, these in values.items() if any(value != these[0] for value in these)}


def write_curves(runs: Mapping[str, Overview], path: Path) -> None:
    """The evaluations of all runs over env_steps, by label, as PNG, SVG or HTML."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise TownletError(f"cannot draw a '{path.name}'", f"name a file that ends in {', '.join(ENDINGS)}", None)
    if not path.parent.is_dir():
        raise TownletError(f"there is no folder {path.parent}", "make it first, or write elsewhere")

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for label, one in runs.items():
            title = f"{label} {one.recipe} seed {one.seed}"
            axes.plot(one.evaluations["env_steps"], one.evaluations[one.told.metric], "o-", markersize=3, label=title)
        axes.set_xlabel("env_steps")
        told = {one.told for one in runs.values()}
        axes.set_ylabel(" / ".join(sorted(f"{one.axis}, evaluated" for one in told)))
        axes.set_xlim(left=0)
        if told == {TOWN_TERMS}:
            axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.legend(loc="best")

    if ending == ".png":
        disk.replace_file(path, plots.png(SIZE, paint))
        return
    plot = plots.draw("compare", "evaluations over env_steps", SIZE, paint)
    if ending == ".svg":
        disk.replace_file(path, plot.standalone())
        return
    rows = [(label, one.run.name, one.recipe, str(one.seed), _figure(one.best)) for label, one in runs.items()]
    section = markup.Section("Evaluations", header=("", "run", "recipe", "seed", "best"), rows=rows, plots=[plot])
    disk.replace_file(
        path, markup.html("Runs side by side", "Evaluations without exploration.", [section]).encode("utf-8", "replace")
    )


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
