"""`townlet sweep`: search for better settings of a recipe."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from townlet.cli.console import err, format_number, out, plain_table
from townlet.cli.options import ROOT, AllowCode, Root, program_name
from townlet.cli.train import console_sink, parse_steps
from townlet.errors import EXIT_INTERRUPTED, TownletError

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from townlet.sweep.study import TrialResult
    from townlet.sweep.trial import SweepConfig

SHOWN = 5  # trials in the table at the end


def sweep(
    recipe: Annotated[str, typer.Argument(metavar="ENV:VARIANT", help="What to search settings for.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUES",
            help="What to search: agent.lr=1e-5..1e-2 or agent.n_steps=16,32,64. KEY=VALUE holds for all trials.",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Trials of the whole sweep, all processes together.")] = 20,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the sweep is called, ENV:VARIANT by default.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A database that machines share; sweeps.db beside the runs by default."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(parser=parse_steps, metavar="N", help="Steps of each trial (budget.env_steps).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed draws other values.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Train each trial with so many seeds; the median counts.")] = 1,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the recipe with the best values is written.")
    ] = None,
    allow_code: AllowCode = False,
    root: Root = ROOT,
) -> None:
    """Search for better settings of a recipe.

    The first trial is the recipe as it is. Each one is an ordinary run, cut short where others were better by then; the
    best becomes a recipe. The same command again goes on with a sweep, and in another terminal helps it along.
    """
    from townlet.sweep import study as studies

    studies.require_optuna()
    _require_place(to)
    experiment = _experiment(recipe, words or [], steps, name, seeds, root)
    study = studies.open_study(experiment, storage, seed)
    err().print(_opening(experiment, trials), markup=False, soft_wrap=True)
    whole = studies.run_sweep(study, experiment, trials, console_sink, lambda told: _tell(told, study))
    _print_found(study, experiment)
    _write(study, experiment, to)
    if not whole:
        out().print(f"Go on with: {_command()}", markup=False, soft_wrap=True)
        raise typer.Exit(EXIT_INTERRUPTED)
    if studies.best_trial(study) is None:
        raise typer.Exit(1)


def _require_place(to: Path | None) -> None:
    """Refuse now what could not be written after the last trial."""
    if to is not None and (to.is_dir() or not to.parent.is_dir()):
        what = f"{to} is a folder" if to.is_dir() else f"there is no folder {to.parent}"
        raise TownletError(f"--to: {what}", "name a file in a folder that exists")


def _experiment(
    asked: str, words: list[str], steps: int | None, name: str | None, seeds: int, root: Path
) -> SweepConfig:
    """What is swept, checked before the first trial."""
    from townlet.sweep.space import check_space, search_space, split_overrides
    from townlet.sweep.trial import SweepConfig
    from townlet.tasks.experiment import load_experiment

    plain, said = split_overrides(words)
    plain += [] if steps is None else [f"budget.env_steps={steps}"]
    recipe = load_experiment(asked, plain).recipe
    space = search_space(recipe, said)
    check_space(asked, plain, space)
    return SweepConfig(name or recipe.title, asked, tuple(plain), recipe, space, root, seeds)


def _opening(experiment: SweepConfig, trials: int) -> str:
    keys = ", ".join(experiment.space)
    return f"Sweep {experiment.study}: {_counted(trials)} over {keys}. The first is the recipe as it is."


def _counted(trials: int) -> str:
    return f"{trials} trial" + "s" * (trials != 1)


def _tell(told: TrialResult, study: Study) -> None:
    """A line for each trial as it ends."""
    from townlet.sweep.study import ERROR

    trial, best = told.trial, "" if told.best_score is None else f"; the best is {told.best_score:.1f}"
    said = {"COMPLETE": f"{trial.value or 0:.1f}", "PRUNED": "cut short", "FAIL": "failed"}[trial.state.name]
    why = f" ({trial.user_attrs[ERROR]})" if ERROR in trial.user_attrs else ""
    err().print(f"trial {trial.number}: {said}{why}{best}. {_values(trial)}", markup=False, soft_wrap=True)


def _values(trial: FrozenTrial) -> str:
    """What a trial tried, in a line."""
    from townlet.sweep.space import round_suggested
    from townlet.sweep.trial import BASELINE

    if BASELINE in trial.user_attrs:
        return "the recipe as it is"
    return ", ".join(f"{path}={round_suggested(value)}" for path, value in trial.params.items())


def _print_found(study: Study, experiment: SweepConfig) -> None:
    """The best trials beside the start, and what mattered."""
    from townlet.sweep.study import baseline_trial, counted_trials, parameter_importance
    from townlet.sweep.trial import RUNS

    every = counted_trials(study)
    done = sorted((t for t in every if t.state.name == "COMPLETE"), key=lambda t: -(t.value or 0.0))
    first = baseline_trial(study)
    shown = done[:SHOWN] + ([first] if first is not None and first not in done[:SHOWN] else [])
    console, table = out(), plain_table("trial>", f"{experiment.recipe.metric}>", "values", "run")
    for trial in shown:
        runs = trial.user_attrs.get(RUNS, ["–"])
        table.add_row(str(trial.number), format_number(trial.value), _values(trial), " ".join(runs))
    console.print(table)
    states = [trial.state.name for trial in every]
    counts = {"finished": "COMPLETE", "cut short": "PRUNED", "failed": "FAIL", "under way": "RUNNING"}
    told = ", ".join(f"{states.count(state)} {said}" for said, state in counts.items() if state in states)
    console.print(f"{_counted(len(every))}: {told}.")
    if shares := parameter_importance(study):
        console.print("What mattered: " + ", ".join(f"{path} {share:.0%}" for path, share in shares.items()) + ".")


def _write(study: Study, experiment: SweepConfig, to: Path | None) -> None:
    """The best trial as a recipe, and how to train it."""
    from townlet.sweep.study import baseline_trial, best_recipe_path, best_trial, describe_result, write_best_recipe
    from townlet.sweep.trial import trial_overrides

    won, first = best_trial(study), baseline_trial(study)
    if won is None or won.value is None:
        out().print("No trial came to its end, so there is nothing to write.")
        return
    path = to or best_recipe_path(experiment)
    begin, same = (None, False) if first is None else (first.value, first.number == won.number)
    what = describe_result(experiment.recipe, won.value, begin, unchanged=same)
    write_best_recipe(path, experiment, trial_overrides(won), what, _command())
    out().print(f"Wrote {path}: {what}", markup=False, soft_wrap=True)
    out().print(f"Train it: {program_name()} train {shlex.quote(str(path))}", markup=False, soft_wrap=True)


def _command() -> str:
    """The words of this sweep, without a database's password."""
    from townlet.train.fingerprint import without_secrets

    return without_secrets(" ".join([program_name(), *map(shlex.quote, sys.argv[1:])]))
