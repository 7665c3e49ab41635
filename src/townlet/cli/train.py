"""`townlet train`: train a recipe, or resume a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from townlet.cli.console import echo, err, out
from townlet.cli.live import PORT, page_server
from townlet.cli.options import ROOT, AllowCode, Port, RecipeOverrides, Root, run_command
from townlet.distributed import launched_with_others
from townlet.errors import EXIT_INTERRUPTED, TownletError

if TYPE_CHECKING:
    from townlet.distributed.process_group import ProcessGroup
    from townlet.interfaces.counters import Sink
    from townlet.recipes.schema import Recipe
    from townlet.runs.folder import Run
    from townlet.train.session import TrainingOutcome

DEFAULT_RECIPE = "town"


class SessionOptions(NamedTuple):
    """Options of one training session."""

    root: Path
    pause_at: int | None
    page_port: int | None  # None without the live page
    open_page: bool
    group: ProcessGroup | None


def parse_steps(text: str) -> int:
    """Parse a number of steps such as 100000 or 1e5."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 1 <= number < 1e18 or number % 1:
        raise typer.BadParameter(f"'{text[:40]}' is not a number of steps; write it like 100000 or 1e5")
    return int(number)


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="ENV:VARIANT",
            help=f"Recipe to train, or the path of its file; {DEFAULT_RECIPE} by default. See `townlet recipes`.",
        ),
    ] = None,
    overrides: RecipeOverrides = None,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Resume this run from its last checkpoint.")] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            parser=parse_steps, metavar="N", help="Stop after N steps, summed over all environments (budget.env_steps)."
        ),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after N minutes (budget.minutes).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed of the run.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train N seeds, one after the other, and compare them.")] = 1,
    pause_at: Annotated[
        int | None,
        typer.Option(parser=parse_steps, metavar="N", help="Save and exit after N steps; continue with --resume."),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Serve the live page during training.")] = False,
    show: Annotated[bool, typer.Option("--open", help="Serve the live page and open it in your browser.")] = False,
    port: Port = PORT,
    allow_code: AllowCode = False,
    root: Root = ROOT,
) -> None:
    """Train an agent, or resume a run.

    Ctrl-C saves a checkpoint and exits; a second Ctrl-C exits immediately.
    """
    # `townlet train --resume RUN key=value` has no recipe: the first word is an override.
    words = [word for word in (recipe, *(overrides or ())) if word is not None]
    name = words.pop(0) if words and "=" not in words[0].partition(":")[0] else None
    for key, value in (("budget.env_steps", steps), ("budget.minutes", minutes), ("seed", seed)):
        if value is not None:
            words.append(f"{key}={value}")
    if resume is None:
        from townlet.train.wandb import sweep_overrides

        words += sweep_overrides()
    group = None
    if launched_with_others():
        if seeds > 1:
            raise TownletError("--seeds cannot be used with torchrun", "drop it, or start without torchrun")
        from townlet.distributed.process_group import ProcessGroup

        group = ProcessGroup.from_torchrun()
        if not group.is_leader:
            from townlet.train.session import run_worker

            run_worker(group)
            return
    if (live or show) and seeds > 1:
        what = "--live and --open show one run, but --seeds trains several"
        raise TownletError(what, "drop one of them, or run `townlet live` in another terminal")
    options = SessionOptions(root, pause_at, port if live or show else None, show, group)
    if resume is not None:
        if name is not None:
            raise TownletError(f"--resume {resume} already has a recipe", f"drop '{name}'")
        if seeds > 1:
            raise TownletError("--resume continues one run, but --seeds starts several", "drop one of them")
        _resume(resume, words, options)
    elif seeds > 1:
        if pause_at is not None:
            raise TownletError("--pause-at cannot be used with --seeds", "drop one of them")
        _train_seeds(name or DEFAULT_RECIPE, words, root, seeds)
    else:
        _start(name or DEFAULT_RECIPE, words, options)


def _start(name: str, words: list[str], options: SessionOptions) -> None:
    from townlet.distributed.process_group import SINGLE_PROCESS
    from townlet.runs.lock import Lock
    from townlet.tasks.experiment import load_experiment
    from townlet.train.session import create_session

    experiment = load_experiment(name, words)
    session = create_session(experiment, options.root, options.group or SINGLE_PROCESS)
    with Lock(session.run.path) as lock, _live_page(session.run, options):
        _print_outcome(session.train(lock, [console_sink(experiment.recipe)], options.pause_at))


def _resume(name: str, words: list[str], options: SessionOptions) -> None:
    from townlet.distributed.process_group import SINGLE_PROCESS
    from townlet.runs.folder import Run
    from townlet.tasks.experiment import reopen
    from townlet.train.session import resume

    run = Run.open(name, options.root)
    sink = console_sink(reopen(run, words).recipe)
    with _live_page(run, options):
        group = options.group or SINGLE_PROCESS
        _print_outcome(resume(run, words, sinks=[sink], pause_at=options.pause_at, group=group))


@contextmanager
def _live_page(run: Run, options: SessionOptions) -> Iterator[None]:
    """Serve the live page if requested; at a terminal it stays up after the training until Ctrl-C."""
    if options.page_port is None:
        yield
        return
    with page_server(run, "127.0.0.1", options.page_port, options.open_page) as (link, server):
        echo(f"Watch it: {link}")
        yield
        if out().is_terminal:
            echo(f"The page stays at {link} until Ctrl-C.")
            with suppress(KeyboardInterrupt):
                server.wait()


def console_sink(recipe: Recipe) -> Sink:
    """Progress on stderr, in the form that suits the console."""
    from townlet.train.sinks import console_sink

    return console_sink(err(), recipe)


def _print_outcome(outcome: TrainingOutcome) -> None:
    if not outcome.ending.finished:
        echo(f"Saved after {outcome.seconds:.0f} s. Resume with:", run_command("train --resume", outcome.run))
        if outcome.ending.why == "interrupted":
            raise typer.Exit(EXIT_INTERRUPTED)
        return
    echo(*(outcome.summary.sentences() if outcome.summary else ()), _ending(outcome), f"Run:      {outcome.run.path}")
    if outcome.run.report_html.is_file():
        echo(f"Report:   {outcome.run.report_html}")
    echo(f"Watch:    {run_command('play', outcome.run)}", f"Evaluate: {run_command('eval', outcome.run)}")


def _ending(outcome: TrainingOutcome) -> str:
    """Why training stopped; for a run that had finished before, also how to continue it."""
    from townlet.train.stop_conditions import END_REASONS

    why = outcome.ending.why
    if outcome.trained:
        return f"Trained for {outcome.seconds:.0f} s; {why}."
    key = next((f"budget.{key}" for key, end in END_REASONS.items() if end == why), "budget.env_steps")
    command = run_command("train --resume", outcome.run, f"{key}=…")
    return f"This run had already finished: {why}. To continue, raise the limit: {command}"


def _train_seeds(name: str, words: list[str], root: Path, seeds: int) -> None:
    from townlet.train.multi_seed import train_seeds

    results = train_seeds(name, words, root, seeds, console_sink)
    lines = {}
    for outcome in results.outcomes:
        last = outcome.ending.evaluation
        score = "" if last is None else f"{last.score(results.metric):.1f}"
        lines[outcome.seed] = f"{score:>8}  {outcome.seconds:.0f} s  {outcome.run.path}"
    for failure in results.failed:
        lines[failure.seed] = f"  failed  {failure.why}  {failure.run.path}"
    echo(*(f"seed {seed}: {lines[seed]}" for seed in sorted(lines)), results.summary())
    if results.exit_code:
        raise typer.Exit(results.exit_code)
