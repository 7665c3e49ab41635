"""`townlet sweep`: search for better settings of a recipe."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from townlet.cli.console import echo, echo_err, format_number, out, plain_table, plural
from townlet.cli.options import ROOT, AllowCode, Root, parse_steps, program_name
from townlet.cli.train import console_sink
from townlet.errors import EXIT_INTERRUPTED, TownletError

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from townlet.sweep.trial import SweepConfig

MAX_SHOWN_TRIALS: Final = 5


def sweep(
    recipe: Annotated[str, typer.Argument(metavar="ENV:VARIANT", help="Recipe to improve, or the path of its file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUES",
            help="Search space: agent.lr=1e-5..1e-2 or agent.n_steps=16,32,64; by default that of the recipe or "
            "its agent. A single value applies to all trials.",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Total number of trials, over all processes.")] = 20,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the sweep, ENV:VARIANT by default.")] = None,
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Database shared by several machines; sweeps.db in --root by default."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(parser=parse_steps, metavar="N", help="Steps of each trial (budget.env_steps).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the search.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Train each trial with N seeds and use the median score.")] = 1,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output file for the recipe with the best settings.")
    ] = None,
    allow_code: AllowCode = False,
    root: Root = ROOT,
) -> None:
    """Search for better settings of a recipe.

    The first trial is the unchanged recipe. Each trial is a run, stopped early if it scores below the median of the
    others. The best settings are written as a recipe. Repeat the command to continue a sweep, or run it in several
    terminals at once.
    """
    from townlet.sweep import study as studies

    studies.require_optuna()
    if to is not None and (to.is_dir() or not to.parent.is_dir()):
        what = f"{to} is a folder" if to.is_dir() else f"there is no folder {to.parent}"
        raise TownletError(f"--to: {what}", "name a file in an existing folder")
    config = _sweep_config(recipe, overrides or [], steps, name, seeds, root)
    study = studies.open_study(config, storage, seed)
    keys = ", ".join(config.space)
    echo_err(f"Sweep {config.study}: {plural(trials, 'trial')} over {keys}. The first one is the unchanged recipe.")
    completed = studies.run_sweep(study, config, trials, console_sink, _print_trial)
    _print_results(study, config)
    _write_best(study, config, to)
    if not completed:
        echo(f"Resume with: {_command()}")
        raise typer.Exit(EXIT_INTERRUPTED)
    if studies.best_trial(study) is None:
        raise typer.Exit(1)


def _sweep_config(
    title: str, overrides: list[str], steps: int | None, name: str | None, seeds: int, root: Path
) -> SweepConfig:
    from townlet.sweep.space import check_space, search_space, split_overrides
    from townlet.sweep.trial import SweepConfig
    from townlet.tasks.experiment import load_experiment

    fixed, ranges = split_overrides(overrides)
    fixed += [] if steps is None else [f"budget.env_steps={steps}"]
    recipe = load_experiment(title, fixed).recipe
    space = search_space(recipe, ranges)
    check_space(title, fixed, space)
    return SweepConfig(name or recipe.title, title, tuple(fixed), recipe, space, root, seeds)


def _print_trial(trial: FrozenTrial, best_score: float | None) -> None:
    from townlet.runs.statistics import score_text
    from townlet.sweep.study import ERROR

    best = "" if best_score is None else f"; best so far {score_text(best_score)}"
    score = {"COMPLETE": score_text(trial.value or 0), "PRUNED": "stopped early", "FAIL": "failed"}[trial.state.name]
    error = f" ({trial.user_attrs[ERROR]})" if ERROR in trial.user_attrs else ""
    echo_err(f"trial {trial.number}: {score}{error}{best}. {_settings(trial)}")


def _settings(trial: FrozenTrial) -> str:
    from townlet.sweep.trial import trial_overrides

    return ", ".join(trial_overrides(trial)) or "unchanged recipe"


def _print_results(study: Study, config: SweepConfig) -> None:
    """Print the best trials, the baseline, and the importance of each setting."""
    from townlet.sweep.study import baseline_trial, counted_trials, parameter_importance
    from townlet.sweep.trial import RUNS

    trials = counted_trials(study)
    best = sorted((t for t in trials if t.state.name == "COMPLETE"), key=lambda t: -(t.value or 0.0))[:MAX_SHOWN_TRIALS]
    baseline = baseline_trial(study)
    table = plain_table("trial>", f"{config.recipe.metric}>", "settings", "run")
    shown = best if baseline is None or baseline in best else [*best, baseline]
    for trial in shown:
        runs = trial.user_attrs.get(RUNS, ["–"])
        table.add_row(str(trial.number), format_number(trial.value), _settings(trial), " ".join(runs))
    out().print(table)
    states = [trial.state.name for trial in trials]
    names = {"finished": "COMPLETE", "stopped early": "PRUNED", "failed": "FAIL", "running": "RUNNING"}
    counts = ", ".join(f"{states.count(state)} {name}" for name, state in names.items() if state in states)
    echo(f"{plural(len(trials), 'trial')}: {counts}.")
    if importance := parameter_importance(study):
        echo("Importance: " + ", ".join(f"{path} {fraction:.0%}" for path, fraction in importance.items()) + ".")


def _write_best(study: Study, config: SweepConfig, to: Path | None) -> None:
    """Write the best trial as a recipe and print how to train it."""
    from townlet.sweep.study import baseline_trial, best_recipe_path, best_trial, describe_result, write_best_recipe
    from townlet.sweep.trial import trial_overrides

    best, baseline = best_trial(study), baseline_trial(study)
    if best is None or best.value is None:
        echo("No trial finished, so no recipe was written.")
        return
    path = to or best_recipe_path(config)
    baseline_score = None if baseline is None else baseline.value
    unchanged = baseline is not None and baseline.number == best.number
    description = describe_result(config.recipe, best.value, baseline_score, unchanged=unchanged)
    write_best_recipe(path, config, trial_overrides(best), description, _command())
    echo(f"Wrote {path}: {description}", f"Train it: {program_name()} train {shlex.quote(str(path))}")


def _command() -> str:
    """The command line of this sweep, without database passwords."""
    from townlet.runs.provenance import without_passwords

    return without_passwords(" ".join([program_name(), *map(shlex.quote, sys.argv[1:])]))
