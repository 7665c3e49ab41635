"""One trial of a sweep: ordinary training runs with the suggested values, pruned if other trials scored better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from townlet.config.scalar import to_flow_yaml
from townlet.interfaces.counters import Counters, Sink
from townlet.recipes.schema import Recipe
from townlet.runs.lock import Lock
from townlet.sweep.space import SearchSpace, encode_choice, is_integer, round_suggested
from townlet.tasks.experiment import load_experiment
from townlet.train.session import create_session, write_run_report

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.trial import FrozenTrial

PRUNED: Final = "pruned"  # why a pruned run ended
BASELINE: Final = "baseline"  # attribute of the trial of the unchanged recipe: its values of the searched keys
RUNS: Final = "runs"  # attribute of a trial: the names of its runs


@dataclass(frozen=True)
class SweepConfig:
    """What all trials of a sweep share."""

    study: str
    recipe_name: str
    overrides: tuple[str, ...]  # common to all trials
    recipe: Recipe
    space: SearchSpace
    root: Path
    seeds: int = 1


class PruningSink(Sink):
    """Reports each evaluation to the study, which decides about pruning; `every` is the evaluation interval."""

    def __init__(self, trial: Trial, every: int) -> None:
        self._trial, self._every, self._reported = trial, every, -1
        self.pruned = False

    def on_evaluation(self, counters: Counters, evaluation: Mapping[str, Any]) -> None:
        """Report the score by evaluation number, since trials with other update sizes evaluate at other env_steps."""
        number = counters.env_steps // self._every
        if evaluation["policy"] != "random" and number > self._reported:
            self._reported = number
            self._trial.report(evaluation["score"], number)
            self.pruned = self._trial.should_prune()

    def stop(self) -> str | None:
        return PRUNED if self.pruned else None


def suggest(trial: Trial, config: SweepConfig) -> None:
    """Let the study suggest the trial's values; for the baseline, it suggests those that were enqueued."""
    baseline = trial.user_attrs.get(BASELINE)
    for path, search_range in config.space.items():
        if baseline is not None and path not in baseline:
            continue  # the recipe's value lies outside the space
        low, high, log = search_range.low, search_range.high, search_range.is_log
        if low is None or high is None:
            trial.suggest_categorical(path, [encode_choice(choice) for choice in search_range.choices])
        elif is_integer(config.recipe, path, search_range):
            trial.suggest_int(path, int(low), int(high), log=log)
        else:
            trial.suggest_float(path, low, high, log=log)


def trial_overrides(trial: Trial | FrozenTrial) -> list[str]:
    """Each suggested value as `key=value`; none for the baseline. Only numbers of a range are rounded."""
    if BASELINE in trial.user_attrs:
        return []
    texts = []
    for path, value in trial.params.items():
        is_choice = hasattr(trial.distributions[path], "choices")
        number = value if is_choice else round_suggested(value)
        texts.append(f"{path}={value if isinstance(value, str) else to_flow_yaml(number)}")
    return texts


def train_trial(trial: Trial, config: SweepConfig, sink: Callable[[Recipe], Sink] | None = None) -> float:
    """Train a trial with all seeds; returns the median of their last scores. Only the first seed can be pruned."""
    from optuna import TrialPruned

    suggest(trial, config)
    overrides = [*config.overrides, *trial_overrides(trial)]
    scores: list[float] = []
    for number in range(config.seeds):
        loaded = load_experiment(config.recipe_name, [*overrides, f"seed={config.recipe.seed + number}"])
        session = create_session(loaded, config.root)
        session.run.update_meta(sweep={"study": config.study, "trial": trial.number})
        trial.set_user_attr(RUNS, [*trial.user_attrs.get(RUNS, ()), session.run.name])
        pruning = PruningSink(trial, loaded.recipe.evaluation_interval)
        sinks = [sink(loaded.recipe)] if sink else []
        if number == 0:
            sinks.append(pruning)
        with Lock(session.run.path) as lock:
            outcome = session.train(lock, sinks, stop_reason=pruning.stop)
        if outcome.ending.why == PRUNED:
            write_run_report(session.run, loaded.recipe)
            raise TrialPruned
        if outcome.summary is None or outcome.ending.evaluation is None:
            raise KeyboardInterrupt  # the user stopped the training
        scores.append(outcome.ending.evaluation.score(loaded.recipe.metric))
    return median(scores)
