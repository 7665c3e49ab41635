"""Comparison of runs: groups that differ only in their seed, with IQM and interval, and their curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from townlet.errors import TownletError
from townlet.runs import disk
from townlet.runs.overview import Overview
from townlet.runs.provenance import experiment_hash
from townlet.runs.statistics import Floats, IqmCurve, bootstrap_interval, iqm, iqm_curve, score_text
from townlet.runs.summary_text import TOWN_TERMS, ReportTerms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from townlet.runs.plots import Paint

COMPARISON_SIZE: Final = (8.0, 4.5)  # inches
PLOT_SUFFIXES: Final = (".png", ".svg", ".html")


@dataclass(frozen=True)
class CurveGroup:
    """Runs that are drawn as one curve, by label; their scores are pooled."""

    runs: Mapping[str, Overview]

    @property
    def recipe(self) -> str:
        return self._first.recipe

    @property
    def metric(self) -> str:
        return self._first.score_metric

    @property
    def terms(self) -> ReportTerms:
        return self._first.terms

    @property
    def _first(self) -> Overview:
        return next(iter(self.runs.values()))

    @property
    def scores(self) -> list[float]:
        """The score of each run's last evaluation."""
        return [run.last for run in self.runs.values() if run.last is not None]

    @property
    def evaluated(self) -> list[Overview]:
        """Its runs that have been evaluated."""
        return [run for run in self.runs.values() if run.curve]

    @property
    def curve(self) -> tuple[Floats, IqmCurve]:
        """The env_steps at which all evaluated runs were evaluated, and the IQM of the evaluations there."""
        name, runs = self.terms.curve_metric, self.evaluated
        curves = [dict(zip(run.evaluations["env_steps"], run.evaluations[name], strict=True)) for run in runs]
        known = [{x for x, y in curve.items() if y is not None} for curve in curves]
        shared = sorted(set.intersection(*known)) if known else []
        values = np.asarray([[curve[step] for step in shared] for curve in curves], np.float64)
        return np.asarray(shared, np.float64), iqm_curve(values)

    def legend(self, name: str) -> str:
        """The label of its curve."""
        runs = self.evaluated
        if len(runs) < 2:
            return f"{name} seed {(runs or [self._first])[0].seed}"
        kind = "seeds" if len({run.seed for run in runs}) == len(runs) else "runs"
        missing = f" of {len(self.runs)}" if len(runs) < len(self.runs) else ""
        return f"{name}: IQM of {len(runs)}{missing} {kind} (band: 95% interval)"

    def as_json(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe,
            "metric": self.metric,
            "labels": list(self.runs),
            "runs": [run.run.name for run in self.runs.values()],
            "iqm": iqm(self.scores),
            "interval": bootstrap_interval(self.scores),
        }


def seed_groups(overviews: Mapping[str, Overview]) -> list[CurveGroup]:
    """Groups of finished runs that differ only in their seed, each of at least two seeds.

    Of several runs with the same seed, which are repetitions, only the first counts.
    """
    experiments: dict[tuple[Any, ...], dict[int | None, str]] = defaultdict(dict)
    for label, o in overviews.items():
        if o.last is not None and o.state == "finished":
            experiments[experiment_hash(o.run), o.meta.get("world"), o.recipe].setdefault(o.seed, label)
    groups = [{label: overviews[label] for label in seeds.values()} for seeds in experiments.values()]
    return [CurveGroup(runs) for runs in groups if len(runs) > 1]


def with_single_runs(runs: Mapping[str, Overview], groups: Sequence[CurveGroup]) -> list[CurveGroup]:
    """The groups, and after them each run that is in none."""
    grouped = {label for group in groups for label in group.runs}
    return [*groups, *(CurveGroup({label: run}) for label, run in runs.items() if label not in grouped)]


def write_comparison(runs: Mapping[str, Overview], groups: Sequence[CurveGroup], path: Path) -> None:
    """Write a plot of the evaluations of several runs, given by label, as PNG, SVG or HTML.

    A group of seeds is one curve, its IQM, with a band for the interval.
    """
    from townlet.runs import markup, plots  # lazily: tables need no matplotlib

    suffix = path.suffix.lower()
    if suffix not in PLOT_SUFFIXES:
        fix = f"name a file that ends in {', '.join(PLOT_SUFFIXES)}"
        raise TownletError(f"the file type of '{path.name}' is not supported", fix, None)
    if not path.parent.is_dir():
        raise TownletError(f"there is no folder {path.parent}", "create it first, or write elsewhere")
    curves = with_single_runs(runs, groups)
    paint = comparison_plot([(f"{', '.join(group.runs)} {group.recipe}", group) for group in curves])
    if suffix == ".png":
        disk.replace_file(path, plots.png(COMPARISON_SIZE, paint))
        return
    plot = plots.draw("compare", "evaluations over env_steps", COMPARISON_SIZE, paint)
    if suffix == ".svg":
        disk.replace_file(path, plot.standalone())
        return
    rows = [
        (label, run.run.name, run.recipe, str(run.seed), "" if run.best is None else score_text(run.best))
        for label, run in runs.items()
    ]
    header = ("", "run", "recipe", "seed", "best")
    section = markup.Section("Evaluations", header=header, rows=rows, plots=[plot])
    page = markup.html("Comparison of runs", "Evaluations without exploration.", [section])
    disk.replace_file(path, page.encode("utf-8", "replace"))


def comparison_plot(curves: Sequence[tuple[str, CurveGroup]]) -> Paint:
    """A function that paints the evaluations of named groups over env_steps: the IQM, with a band for the interval."""
    from townlet.runs import plots

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for name, group in curves:
            env_steps, (iqms, low, high) = group.curve
            (line,) = axes.plot(env_steps, iqms, "o-", markersize=3, label=group.legend(name))
            if len(group.evaluated) > 1:
                axes.fill_between(env_steps, low, high, color=line.get_color(), alpha=0.25, linewidth=0)
        terms = {group.terms for _, group in curves}
        axes.set_ylabel(" / ".join(sorted(f"{kind.axis_label}, evaluated" for kind in terms)))
        if terms == {TOWN_TERMS}:
            axes.set_ylim(bottom=0)
        plots.format_env_steps(axes)
        axes.legend(loc="best")

    return paint
