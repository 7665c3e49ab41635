"""A run in the Python API: evaluate, resume, metrics as tables, plots, and its display in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.console import Console

from townlet.agents.agent import no_interrupt
from townlet.config.merge import format_overrides
from townlet.errors import TownletError
from townlet.interfaces.counters import Sink
from townlet.recipes.schema import Recipe
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader
from townlet.runs.overview import make_overview
from townlet.runs.statistics import score_text
from townlet.runs.tables import Table, as_pandas, evaluation_table, metrics_table
from townlet.tasks.evaluation import EvaluationResult
from townlet.tasks.experiment import reopen
from townlet.train.callbacks import Callback, CallbackSink, callback_errors
from townlet.train.checkpointer import choose_checkpoint
from townlet.train.multi_seed import MakeHooks, RunHooks
from townlet.train.notebook import NotebookLines, NotebookProgress, in_notebook
from townlet.train.policies import TrainedPolicy, Which, load_checkpoint, load_policy
from townlet.train.session import TrainingOutcome, resume
from townlet.train.sinks import console_sink

if TYPE_CHECKING:
    from townlet.runs.plots import NotebookFigure

Overrides = Mapping[str, Any] | Sequence[str] | str
EPISODES: Final = 100  # of an evaluation


class TrainedRun(Run):
    """A run: the result of `townlet.train`, or an existing one from `townlet.open_run`.

    Everything is read from its folder when it is needed. Notebooks show it as a table with its learning curve.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path.absolute())  # the program may change its working directory

    @property
    def policy(self) -> TrainedPolicy:
        """The policy of the best checkpoint so far: `run.policy.act(obs, mask)`."""
        best = choose_checkpoint(self)
        known: TrainedPolicy | None = self.__dict__.get("_policy")
        if known is None or known.checkpoint.path != best.path:
            known = self.__dict__["_policy"] = load_checkpoint(self, best)
        return known

    def load(self, which: Which = "best") -> TrainedPolicy:
        """Load the policy of the best or last checkpoint, or the one saved nearest to a step; see `townlet.load`."""
        return load_policy(self, which)

    @property
    def finished(self) -> bool:
        """Whether a stopping condition of the recipe was met: False if interrupted, paused or stopped by a callback."""
        return bool(self.meta().get("finished"))

    @property
    def score(self) -> float | None:
        """The last evaluation's mean length or return (the recipe's metric); None before the first evaluation."""
        return make_overview(self).last

    @property
    def summary(self) -> list[str]:
        """What the agent learned and did not learn, in sentences; [] if the run is not finished."""
        return list(self.meta().get("summary", ()))

    def evaluate(
        self, episodes: int = EPISODES, *, seed: int | None = None, greedy: bool | None = None, which: Which = "best"
    ) -> EvaluationResult:
        """Evaluate the agent on complete episodes.

        Args:
            episodes: the number of episodes, by default 100.
            seed: determines the episodes; by default they differ from those of the run's own evaluations.
            greedy: whether to take the most probable action instead of sampling; by default as in the recipe.
            which: the checkpoint, as in `townlet.load`.
        """
        require_count("episodes", episodes)
        trained = self.policy if which == "best" else self.load(which)
        recipe, greedy = trained.loaded.recipe, trained.use_greedy(None if greedy is None else not greedy)
        trained.require_probabilities(greedy)
        seed = recipe.evaluation.seed + 1 if seed is None else require_count("seed", seed, least=0)
        changes = {"episodes": episodes, "deterministic": greedy, "seed": seed}
        evaluation = type(recipe.evaluation).model_validate(recipe.evaluation.model_dump() | changes)
        changed = recipe.model_copy(update={"evaluation": evaluation, "device": "cpu"})
        return trained.loaded.task.evaluate(trained.policy(), changed, no_interrupt)

    def resume(
        self,
        steps: float | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        overrides: Overrides = (),
        progress: bool | None = None,
        **settings: Any,
    ) -> TrainedRun:
        """Continue training from the last checkpoint, and return this run.

        Args:
            steps: how many env_steps to add, beyond the budget if necessary; by default those left of the budget.
            callbacks: as in `townlet.train`.
            overrides: changed keys of the recipe.
            progress: whether to show progress; by default it is shown in notebooks only.
            settings: changed keys of the recipe as keyword arguments.
        """
        changes = [*format_overrides(overrides), *format_overrides(settings)]
        pause_at = None
        if steps is not None:
            last, budget = checkpoint.latest(self.checkpoints), reopen(self, changes).recipe.budget.env_steps
            end = require_steps("steps", steps) + (last.env_steps if last else 0)
            if budget is None or end < budget:
                pause_at = end
            else:
                changes.append(f"budget.env_steps={end}")
        recipe = reopen(self, changes).recipe
        sinks, stop_reason = make_hooks(callbacks, progress)(self, recipe)
        with callback_errors():
            outcome = resume(self, changes, sinks=sinks, pause_at=pause_at, stop_reason=stop_reason)
        raise_interrupt(outcome)
        return self

    def metrics(self, pandas: bool = False) -> Any:
        """All metrics, one row per metrics interval.

        Values are NaN where an interval has none, such as `loss` before the first update.

        Args:
            pandas: return a `pandas.DataFrame` instead of a dictionary of NumPy arrays.
        """
        return self._table(metrics_table, pandas)

    def evaluations(self, pandas: bool = False) -> Any:
        """The evaluations during training, one row each; `pandas` as in `metrics`."""
        return self._table(evaluation_table, pandas)

    def _table(self, read: Any, pandas: bool) -> Any:
        with MetricsReader(self.metrics_file) as store:
            table: Table = read(store)
        return as_pandas(table) if pandas else table

    def plot(self) -> NotebookFigure:
        """Plot the learning curve, with evaluations and a random agent, as a matplotlib figure."""
        from townlet.runs import plots, report  # lazily: they import matplotlib

        return plots.figure(plots.CURVE_SIZE, report.learning_curve(self))

    def _repr_html_(self) -> str:
        """Key figures and the learning curve, for notebooks."""
        from townlet.runs import plots, report

        overview = make_overview(self)
        random = overview.random_evaluation.get("score")
        scores = {"best": overview.best, "last": overview.last, "random agent": random}
        rows = {"recipe": f"{overview.recipe}, seed {overview.seed}", "state": overview.state}
        rows |= {"steps": f"{overview.env_steps:,}"}
        rows |= {f"{overview.score_metric}, {name}": score_text(v) for name, v in scores.items() if v is not None}
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows.items())
        paint = report.learning_curve(self)
        svg = plots.draw(f"curve-{self.name[-6:]}", "learning curve", plots.CURVE_SIZE, paint).svg if paint else ""
        return f"<div><b>{escape(self.name)}</b><table>{cells}</table>{svg}</div>"


def make_hooks(callbacks: Sequence[Callback], progress: bool | None) -> MakeHooks:
    """A function that returns the callbacks and the progress display of a run."""
    _require_functions(callbacks)

    def hooks_of(run: Run, recipe: Recipe) -> RunHooks:
        observer = CallbackSink(callbacks, TrainedRun(run.path), recipe.budget.env_steps)
        shown = [_progress_sink(recipe)] if _show_progress(progress) else []
        return RunHooks([observer, *shown], observer.stop_reason)

    return hooks_of


def _require_functions(callbacks: object) -> None:
    if not isinstance(callbacks, Sequence):
        raise TownletError(f"`callbacks` is a {type(callbacks).__name__}", "give a list of functions: callbacks=[…]")
    for callback in callbacks:
        if not callable(callback):
            what = f"a callback of type {type(callback).__name__} cannot be called"
            raise TownletError(what, "give a function that takes a townlet.train.callbacks.RunProgress")


def require_count(name: str, value: object, least: int = 1) -> int:
    """The value as an int; raises an error unless it is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise TownletError(
            f"{name}={value!r} is not a whole number of at least {least}", f"write {name}=5, for example"
        )
    return int(value)


def require_steps(name: str, value: object) -> int:
    """A number of env_steps as an int, also if it is given as 1e5; raises an error unless it is at least 1."""
    return require_count(name, int(value) if isinstance(value, float) and value.is_integer() else value)


def seeds_progress(progress: bool | None) -> Callable[[str], None]:
    """A function that shows the lines of several seeds, which start with "seed N: "."""
    if not _show_progress(progress):
        return lambda line: None
    return NotebookLines() if in_notebook() else partial(print, file=sys.stderr, flush=True)


def _progress_sink(recipe: Recipe) -> Sink:
    """Progress in place in a notebook, otherwise on stderr."""
    return NotebookProgress(recipe) if in_notebook() else console_sink(Console(stderr=True), recipe)


def _show_progress(progress: bool | None) -> bool:
    """By default progress is shown in notebooks only."""
    return in_notebook() if progress is None else progress


def raise_interrupt(outcome: TrainingOutcome) -> None:
    """Interrupt the program as usual after Ctrl-C; the run is saved."""
    if outcome.ending.why == "interrupted":
        raise KeyboardInterrupt(f"the run is saved: townlet.open_run({str(outcome.run.path)!r}).resume()")
