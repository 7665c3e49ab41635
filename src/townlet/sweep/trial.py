"""One trial of a sweep: ordinary runs with what was drawn, cut short where others were better by then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from townlet.config.scalar import to_flow_yaml
from townlet.interfaces.counters import Counters
from townlet.recipes.schema import Recipe
from townlet.runs.lock import Lock
from townlet.sweep.space import Space, drawn, is_whole
from townlet.tasks.experiment import load_experiment
from townlet.train.session import begin, report
from townlet.train.sinks import Mark, Sink

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.trial import FrozenTrial

PRUNED: Final = "pruned"  # why a run ended that was cut short
START: Final = "start"  # a trial of the recipe as it is; with it those of its values that could be drawn
RUNS: Final = "runs"  # names of what a trial trained


@dataclass(frozen=True)
class Experiment:
    """What all trials of a sweep share."""

    study: str
    asked: str
    words: tuple[str, ...]  # changes that hold for all
    recipe: Recipe
    space: Space
    root: Path
    seeds: int = 1


class Watch:
    """Tells the study each evaluation as it comes, and hears whether the trial is worth going on with."""

    def __init__(self, trial: Trial, every: int) -> None:
        self._trial, self._every, self._told = trial, every, -1
        self.pruned = False

    def evaluated(self, counters: Counters, columns: Mapping[str, Any]) -> None:
        """Trials are compared by the number of an evaluation: updates of other sizes end at other env_steps."""
        number = counters.env_steps // self._every
        if columns["policy"] != "random" and number > self._told:
            self._told = number
            self._trial.report(columns["score"], number)
            self.pruned = self._trial.should_prune()

    def stop(self) -> str | None:
        """Why the run should end here, if it should."""
        return PRUNED if self.pruned else None

    def tick(self, counters: Counters) -> None:
        """Only evaluations count."""

    def mark(self, mark: Mark) -> None:
        """Only evaluations count."""

    def note(self, text: str) -> None:
        """Text stays with the log."""

    def close(self) -> None:
        """Nothing to give back."""


def draw(trial: Trial, experiment: Experiment) -> None:
    """Let the study choose what this trial tries; of the recipe as it is, it only hears the values."""
    start = trial.user_attrs.get(START)
    for path, searched in experiment.space.items():
        if start is not None and path not in start:
            continue  # its own value is not one that could be drawn
        low, high, by_factors = searched.low, searched.high, searched.by_factors
        if low is None or high is None:
            trial.suggest_categorical(path, [to_flow_yaml(choice) for choice in searched.choices])
        elif is_whole(experiment.recipe, path, searched):
            trial.suggest_int(path, int(low), int(high), log=by_factors)
        else:
            trial.suggest_float(path, low, high, log=by_factors)


def words_of(trial: Trial | FrozenTrial) -> list[str]:
    """`key=value` of what a trial tries; nothing for the recipe as it is. Choices are texts already."""
    if START in trial.user_attrs:
        return []
    return [f"{path}={v if isinstance(v, str) else to_flow_yaml(drawn(v))}" for path, v in trial.params.items()]


def train(trial: Trial, experiment: Experiment, sink: Callable[[Recipe], Sink] | None = None) -> float:
    """The score of one trial: of its last evaluation, with several seeds the median. Only the first may be pruned."""
    from optuna import TrialPruned

    draw(trial, experiment)
    words = words_of(trial)
    scores: list[float] = []
    for number in range(experiment.seeds):
        seed = f"seed={experiment.recipe.seed + number}"
        loaded = load_experiment(experiment.asked, [*experiment.words, *words, seed])
        begun = begin(loaded, experiment.root)
        begun.run.note(sweep={"study": experiment.study, "trial": trial.number})
        trial.set_user_attr(RUNS, [*trial.user_attrs.get(RUNS, ()), begun.run.name])
        watch = Watch(trial, loaded.recipe.evaluate_every)
        sinks: Sequence[Sink] = [*([sink(loaded.recipe)] if sink else ()), *([] if number else [watch])]
        with Lock(begun.run.path) as lock:
            outcome = begun.train(lock, sinks, stop=watch.stop)
        if outcome.ending.why == PRUNED:
            report(begun.run, loaded.recipe)
            raise TrialPruned
        if outcome.summary is None or outcome.ending.last is None:
            raise KeyboardInterrupt
        scores.append(outcome.ending.last.score(loaded.recipe.metric))
    return median(scores)
