"""`townlet train`: train a recipe, or resume a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from townlet.cli.console import echo, echo_err, err, out
from townlet.cli.live import Port, interrupt_with_parent, page_server
from townlet.cli.options import ROOT, AllowCode, RecipeOverrides, Root, parse_steps, run_command
from townlet.distributed import launched_with_others
from townlet.errors import EXIT_INTERRUPTED, TownletError

if TYPE_CHECKING:
    from townlet.distributed.process_group import ProcessGroup
    from townlet.interfaces.counters import Sink
    from townlet.recipes.schema import Recipe
    from townlet.runs.folder import Run
    from townlet.train.multi_seed import SeedResult
    from townlet.train.session import TrainingOutcome

DEFAULT_RECIPE = "town"
Output = Literal["progress", "metrics", "nothing"]  # what the console shows during training


class SessionOptions(NamedTuple):
    """Options of one training session."""

    root: Path
    pause_at: int | None
    live_page: bool
    port: int | None  # of the live page; None: the default one, or the next free one
    open_page: bool
    group: ProcessGroup | None
    output: Output = "progress"
    with_parent: bool = False


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
    seeds: Annotated[int, typer.Option(min=1, help="Train with N seeds and summarize them.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="With --seeds: run up to N at a time, each in its own process.")] = 1,
    pause_at: Annotated[
        int | None,
        typer.Option(parser=parse_steps, metavar="N", help="Save and exit after N steps; continue with --resume."),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Serve the live page during training.")] = False,
    show: Annotated[bool, typer.Option("--open", help="Serve the live page and open it in your browser.")] = False,
    port: Port = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print only errors and, at the end, the folder of the run.")
    ] = False,
    with_parent: Annotated[
        bool,
        typer.Option(hidden=True, help="Print the folder of the run at once, and stop when the parent process exits."),
    ] = False,
    metrics: Annotated[bool, typer.Option("--metrics", help="Show every metric during training.")] = False,
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
    if quiet and metrics:
        raise TownletError("--quiet and --metrics contradict each other", "use one of them")
    if jobs > 1 and seeds == 1:
        raise TownletError(f"--jobs {jobs} trains several seeds at a time, but there is only one", "add --seeds N")
    if jobs > 1 and metrics:
        raise TownletError("--metrics shows one run at a time, but --jobs trains several", "drop one")
    output: Output = "nothing" if quiet else "metrics" if metrics else "progress"
    if with_parent:
        interrupt_with_parent()
    options = SessionOptions(root, pause_at, live or show, port, show, group, output, with_parent)
    if resume is not None:
        if name is not None:
            raise TownletError(f"--resume {resume} already has a recipe", f"drop '{name}'")
        if seeds > 1:
            raise TownletError("--resume continues one run, but --seeds starts several", "drop one of them")
        _resume(resume, words, options)
    elif seeds > 1:
        if pause_at is not None:
            raise TownletError("--pause-at cannot be used with --seeds", "drop one of them")
        _train_seeds(name or DEFAULT_RECIPE, words, root, seeds, jobs, output)
    else:
        _start(name or DEFAULT_RECIPE, words, options)


def _start(name: str, words: list[str], options: SessionOptions) -> None:
    from townlet.distributed.process_group import SINGLE_PROCESS
    from townlet.runs.lock import Lock
    from townlet.tasks.experiment import load_experiment
    from townlet.train.session import create_session

    experiment = load_experiment(name, words)
    session = create_session(experiment, options.root, options.group or SINGLE_PROCESS)
    if options.with_parent:
        echo(str(session.run.path))
        out().file.flush()
    try:
        with Lock(session.run.path) as lock, _live_page(session.run, options):
            sinks = [console_sink(experiment.recipe, options.output)]
            _print_outcome(session.train(lock, sinks, options.pause_at), options.output)
    except TownletError:
        session.run.withdraw()
        raise


def _resume(name: str, words: list[str], options: SessionOptions) -> None:
    from townlet.distributed.process_group import SINGLE_PROCESS
    from townlet.runs.folder import Run
    from townlet.tasks.experiment import reopen
    from townlet.train.session import resume

    run = Run.open(name, options.root)
    sink = console_sink(reopen(run, words).recipe, options.output)
    with _live_page(run, options):
        group = options.group or SINGLE_PROCESS
        outcome = resume(run, words, sinks=[sink], pause_at=options.pause_at, group=group)
        _print_outcome(outcome, options.output)


@contextmanager
def _live_page(run: Run, options: SessionOptions) -> Iterator[None]:
    """Serve the live page if requested; at a terminal it stays up after the training until Ctrl-C."""
    if not options.live_page:
        yield
        return
    with page_server(run, "127.0.0.1", options.port, options.open_page) as (link, server):
        echo(f"Watch it: {link}")
        yield
        if out().is_terminal:
            echo(f"The page stays at {link} until Ctrl-C.")
            with suppress(KeyboardInterrupt):
                server.wait()


def console_sink(recipe: Recipe, output: Output = "progress") -> Sink:
    """Progress on stderr, in the form that suits the console."""
    from townlet.interfaces.counters import Sink
    from townlet.train.sinks import console_sink

    return Sink() if output == "nothing" else console_sink(err(), recipe, all_metrics=output == "metrics")


def _print_outcome(outcome: TrainingOutcome, output: Output) -> None:
    if output == "nothing":
        echo(str(outcome.run.path))
        if outcome.ending.why == "interrupted":
            raise typer.Exit(EXIT_INTERRUPTED)
        return
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


def _train_seeds(name: str, words: list[str], root: Path, seeds: int, jobs: int, output: Output) -> None:
    from townlet.train.multi_seed import RunHooks, train_seeds

    quiet = output == "nothing"
    if jobs > 1:
        from townlet.train.seed_processes import train_seeds_in_parallel

        show = (lambda _: None) if quiet else echo_err
        results = train_seeds_in_parallel(name, words, root, seeds, min(jobs, seeds), show)
    else:
        results = train_seeds(name, words, root, seeds, lambda run, recipe: RunHooks([console_sink(recipe, output)]))
    if quiet:
        echo(*(str(result.run.path) for result in results.results if result.ended_normally and result.run is not None))
    else:
        echo(*(f"seed {result.seed}: {_seed_line(result)}" for result in results.results), results.summary())
        unfinished = [result.run for result in results.results if result.run is not None and not result.ended_normally]
        for number, run in enumerate(unfinished):
            echo(f"{'Resume:' if number == 0 else '':8}{run_command('train --resume', run)}")
    if results.exit_code:
        raise typer.Exit(results.exit_code)


def _seed_line(result: SeedResult) -> str:
    from townlet.runs.statistics import score_text

    if result.run is None:
        return f"  failed  {result.failure}" if result.failure else "not started"
    if result.failure:
        return f"  failed  {result.failure}  {result.run.path}"
    if not result.ended_normally:
        return f"stopped and saved  {result.run.path}"
    score = "" if result.score is None else score_text(result.score)
    return f"{score:>8}  {result.seconds:.0f} s  {result.run.path}"
