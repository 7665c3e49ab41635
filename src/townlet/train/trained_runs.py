"""Runs with several seeds in the Python API: their IQM with interval, tables, and plots with bands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.runs.comparison import COMPARISON_SIZE, CurveGroup, comparison_plot, seed_groups, with_single_runs
from townlet.runs.folder import Run
from townlet.runs.overview import make_overview
from townlet.runs.statistics import bootstrap_interval, interval_text, iqm, score_text
from townlet.runs.tables import Table, as_pandas, concatenate
from townlet.train.multi_seed import MultiSeedResult
from townlet.train.trained_run import TrainedRun

if TYPE_CHECKING:
    from townlet.runs.plots import NotebookFigure

NOTHING_TO_PLOT: Final = TownletError("there are no runs to plot", "give runs or their names, or {label: runs}")
RunGiven = str | Path | Run  # a name below the root, a path, "latest", or the run itself
RunsGiven = RunGiven | Sequence["RunGiven | Sequence[RunGiven]"]


class TrainedRuns(Sequence[TrainedRun]):
    """A sequence of runs that differ only in their seed, in the order of their seeds.

    Attributes:
        failures: why other seeds failed, by seed.
    """

    def __init__(self, runs: Sequence[TrainedRun], failures: Mapping[int, str] = MappingProxyType({})) -> None:
        self._runs, self.failures = tuple(runs), dict(failures)

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, index: int) -> TrainedRun: ...

    @overload
    def __getitem__(self, index: slice) -> TrainedRuns: ...

    def __getitem__(self, index: int | slice) -> TrainedRun | TrainedRuns:
        return TrainedRuns(self._runs[index], self.failures) if isinstance(index, slice) else self._runs[index]

    @property
    def seeds(self) -> list[int]:
        """The seed of each run."""
        return [run.meta()["seed"] for run in self]

    @property
    def scores(self) -> NDArray[np.float64]:
        """The score of each run's last evaluation; NaN for a run that was stopped before its first one."""
        return np.asarray([np.nan if score is None else score for score in (run.score for run in self)], np.float64)

    @property
    def iqm(self) -> float:
        """The interquartile mean of the scores."""
        return iqm(self._known_scores())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% bootstrap confidence interval of the IQM."""
        return bootstrap_interval(self._known_scores())

    def _known_scores(self) -> NDArray[np.float64]:
        scores = self.scores
        if np.isnan(scores).all():
            raise TownletError("none of these runs has been evaluated yet", "continue training: run.resume()")
        return scores[~np.isnan(scores)]

    def metrics(self, pandas: bool = False) -> Any:
        """The metrics of all runs in one table with a column `seed`; see `TrainedRun.metrics`."""
        return self._table(TrainedRun.metrics, pandas)

    def evaluations(self, pandas: bool = False) -> Any:
        """The evaluations of all runs in one table with a column `seed`."""
        return self._table(TrainedRun.evaluations, pandas)

    def _table(self, read: Callable[[TrainedRun], Table], pandas: bool) -> Any:
        table = concatenate({run.meta()["seed"]: read(run) for run in self}, "seed")
        return as_pandas(table) if pandas else table

    def plot(self) -> NotebookFigure:
        """Plot the IQM of the evaluations over env_steps, with a band for its 95% interval."""
        return plot({self._recipe: self} if len(self) else {})

    @property
    def _recipe(self) -> str:
        return str(self[0].meta()["recipe"])

    def __repr__(self) -> str:
        if not len(self):
            return "<no runs>"
        seeds = ", ".join(map(str, self.seeds))
        failed = "".join(f"; seed {seed} failed: {why}" for seed, why in self.failures.items())
        return f"<{len(self)} runs of {self._recipe}, seeds {seeds}: {self._result()}{failed}>"

    def _result(self) -> str:
        metric = self[0].meta()["metric"]
        if np.isnan(self.scores).all():
            return "not evaluated yet"
        low, high = self.interval
        count = f" over {known} of {len(self)} seeds" if (known := len(self._known_scores())) < len(self) else ""
        return f"IQM of {metric}{count} {score_text(self.iqm)}, {interval_text(low, high)}"

    def _repr_html_(self) -> str:
        """The score of each seed, the IQM, and the curve with its band, for notebooks."""
        from townlet.runs import plots  # lazily: it imports matplotlib

        if not len(self):
            return "<div>no runs</div>"
        scored = zip(self, self.scores, strict=True)
        cells = [(run.meta()["seed"], score_text(score), run.name) for run, score in scored]
        cells += [(seed, "failed", why) for seed, why in self.failures.items()]
        rows = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in cells)
        paint = comparison_plot([(self._recipe, _group(self))])
        svg = plots.draw(f"curves-{self[0].name[-6:]}", "evaluations over env_steps", COMPARISON_SIZE, paint).svg
        table = f"<table><tr><th>seed</th><th>score</th><th>run</th></tr>{rows}</table>"
        return f"<div><b>{escape(self._recipe)}</b>: {escape(self._result())}{table}{svg}</div>"


def as_trained_runs(result: MultiSeedResult) -> TrainedRuns:
    """The runs of several seeds; raises KeyboardInterrupt after Ctrl-C, and TownletError if all seeds failed."""
    if result.interrupted:
        paths = [str(seed.run.path) for seed in result.interrupted if seed.run is not None]
        raise KeyboardInterrupt(f"the runs are saved: townlet.open_run(path).resume() for path in {paths}")
    failures = {failed.seed: failed.failure for failed in result.failed}
    runs = [TrainedRun(seed.run.path) for seed in result.results if seed.ended_normally and seed.run is not None]
    if not runs:
        first = result.failed[0]
        log = f"more is in {first.run.log_file}" if first.run is not None else "correct it, and train again"
        raise TownletError(f"no seed finished; seed {first.seed}: {first.failure}", log)
    return TrainedRuns(runs, failures)


def plot(runs: RunsGiven | Mapping[str, RunsGiven], root: str | Path = "runs") -> NotebookFigure:
    """The evaluations of runs over env_steps; see `townlet.plot`."""
    from townlet.runs import plots

    if isinstance(runs, TrainedRuns):
        return runs.plot()
    if isinstance(runs, Mapping):
        if not runs:
            raise NOTHING_TO_PLOT
        curves = [(name, _group(_open(given, Path(root)))) for name, given in runs.items()]
    else:
        overviews = {run.name: make_overview(run) for run in _open(runs, Path(root))}
        groups = with_single_runs(overviews, seed_groups(overviews))
        legends = Counter(group.legend(group.recipe) for group in groups)
        # The name of a run tells experiments apart that have the same recipe with other settings.
        curves = [(g.recipe if legends[g.legend(g.recipe)] == 1 else next(iter(g.runs)), g) for g in groups]
    return plots.figure(COMPARISON_SIZE, comparison_plot(curves))


def _group(runs: Sequence[Run]) -> CurveGroup:
    return CurveGroup({run.name: make_overview(run) for run in runs})


def _open(given: Any, root: Path) -> list[Run]:
    """The runs that are given by name, path or object, perhaps in nested sequences."""
    if isinstance(given, Run):
        return [given]
    if isinstance(given, str | Path):
        return [Run.open(given, root)]
    found = [run for part in given for run in _open(part, root)] if isinstance(given, Sequence) else []
    if not found:
        raise NOTHING_TO_PLOT
    return found
