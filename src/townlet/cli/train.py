"""`townlet train`: train a recipe, or go on with a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from townlet.cli.console import err, out
from townlet.cli.live import PORT, page_server
from townlet.cli.options import ROOT, AllowCode, Root, resume_command, run_command
from townlet.distributed import launched_with_others
from townlet.errors import EXIT_INTERRUPTED, TownletError

if TYPE_CHECKING:
    from townlet.distributed.process_group import ProcessGroup
    from townlet.recipes.schema import Recipe
    from townlet.runs.folder import Run
    from townlet.train.session import Outcome
    from townlet.train.sinks import Sink

DEFAULT = "town"


class PageOptions(NamedTuple):
    """Where the page is to be, and whether a browser is opened."""

    port: int
    show: bool


def parse_steps(text: str) -> int:
    """A number of steps as people write it."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 1 <= number < 1e18 or number % 1:
        raise typer.BadParameter(f"'{text[:40]}' is no number of steps; write it like 100000 or 1e5")
    return int(number)


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(metavar="ENV:VARIANT", help=f"What to train, {DEFAULT} by default; see `townlet recipes`."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes to the recipe, as in agent.lr=1e-3")
    ] = None,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Go on with this run, to the bit.")] = None,
    steps: Annotated[
        int | None,
        typer.Option(parser=parse_steps, metavar="N", help="End after so many steps of all rows (budget.env_steps)."),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="End after so many minutes (budget.minutes).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Another seed, another run of the same experiment.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train so many seeds, one after the other, and compare.")] = 1,
    pause_at: Annotated[
        int | None,
        typer.Option(parser=parse_steps, metavar="N", help="Stop here on the way to the budget; --resume goes on."),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Show it in a browser while it trains.")] = False,
    show: Annotated[bool, typer.Option("--open", help="The same, and open the page in your browser.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where the page is, or one of the next ports.")] = PORT,
    allow_code: AllowCode = False,
    root: Root = ROOT,
) -> None:
    """Train an agent, or go on with a run.

    Ctrl-C saves and leaves; a second one leaves at once.
    """
    # `townlet train --resume RUN key=value` has no recipe: the first word is a change already.
    words = [word for word in (recipe, *(overrides or ())) if word is not None]
    asked = words.pop(0) if words and "=" not in words[0].partition(":")[0] else None
    if steps is not None:
        words.append(f"budget.env_steps={steps}")
    if minutes is not None:
        words.append(f"budget.minutes={minutes}")
    if seed is not None:
        words.append(f"seed={seed}")
    if resume is None:
        from townlet.train.wandb import sweep_words

        words += sweep_words()
    group = _process_group(seeds)
    if group and not group.is_leader:
        _follow(group)
        return
    place = PageOptions(port, show) if live or show else None
    if place and seeds > 1:
        raise TownletError(
            "--live and --open show one run, and --seeds trains several",
            "leave one of them out, or type `townlet live` in another terminal",
        )
    if resume is not None:
        if asked is not None:
            raise TownletError(f"--resume {resume} knows its recipe", f"leave out '{asked}'")
        if seeds > 1:
            raise TownletError("--resume goes on with one run, and --seeds starts several", "leave one of them out")
        _resume(resume, words, root, pause_at, place, group)
    elif seeds > 1:
        if pause_at is not None:
            raise TownletError("--seeds trains each seed to its end", "leave out --pause-at, or pause one --seed")
        _several(asked or DEFAULT, words, root, seeds)
    else:
        _start(asked or DEFAULT, words, root, pause_at, place, group)


def _process_group(seeds: int) -> ProcessGroup | None:
    """Those who train one run together, as torchrun has started them; None for one that trains alone."""
    if not launched_with_others():
        return None
    if seeds > 1:
        raise TownletError("--seeds trains one run after the other", "leave it out, or start it without torchrun")
    from townlet.distributed.process_group import ProcessGroup

    return ProcessGroup.from_torchrun()


def _follow(group: ProcessGroup) -> None:
    from townlet.train.follower import follow

    follow(group)


def _start(
    asked: str,
    words: list[str],
    root: Path,
    pause_at: int | None,
    place: PageOptions | None,
    group: ProcessGroup | None,
) -> None:
    from townlet.distributed.process_group import SINGLE_PROCESS
    from townlet.runs.lock import Lock
    from townlet.tasks.experiment import load_experiment
    from townlet.train.session import begin

    loaded = load_experiment(asked, words)
    begun = begin(loaded, root, group or SINGLE_PROCESS)
    with Lock(begun.run.path) as lock, _shown(begun.run, place):
        outcome = begun.train(lock, [console_sink(loaded.recipe)], pause_at)
        _finish(outcome)


def _resume(
    name: str, words: list[str], root: Path, pause_at: int | None, place: PageOptions | None, group: ProcessGroup | None
) -> None:
    from townlet.distributed.process_group import SINGLE_PROCESS
    from townlet.runs.folder import Run
    from townlet.train.reopen import reopen
    from townlet.train.session import resume

    run = Run.open(name, root)
    sink = console_sink(reopen(run, words).recipe)
    with _shown(run, place):
        _finish(resume(run, words, sinks=[sink], pause_at=pause_at, group=group or SINGLE_PROCESS))


@contextmanager
def _shown(run: Run, place: PageOptions | None) -> Iterator[None]:
    """With a place, the page beside the training; at a terminal it stays until Ctrl-C once training is over."""
    if place is None:
        yield
        return
    with page_server(run, "127.0.0.1", place.port, place.show) as shown:
        out().print(f"Watch it: {shown.link}", soft_wrap=True)
        yield
        if out().is_terminal:
            out().print(f"The page stays at {shown.link} until Ctrl-C.", soft_wrap=True)
            with suppress(KeyboardInterrupt):
                shown.wait()


def console_sink(recipe: Recipe) -> Sink:
    """A bar at a terminal, plain lines in a pipe."""
    from townlet.train.sinks import on_console

    return on_console(err(), recipe)


def _finish(outcome: Outcome) -> None:
    """Say what came of it, or how to go on."""
    console = out()
    if not outcome.ending.finished:
        console.print(f"Saved after {outcome.seconds:.0f} s. Go on with:")
        console.print(resume_command(outcome.run), markup=False, soft_wrap=True)
        if outcome.ending.why == "interrupted":
            raise typer.Exit(EXIT_INTERRUPTED)
        return
    said = outcome.summary.sentences() if outcome.summary else []
    said.append(_over(outcome))
    said.append(f"Run:     {outcome.run.path}")
    if outcome.run.report_html.is_file():
        said.append(f"Report:  {outcome.run.report_html}")
    said += [f"Watch:   {run_command('play', outcome.run)}", f"Measure: {run_command('eval', outcome.run)}"]
    for line in said:
        console.print(line, markup=False, soft_wrap=True)


def _over(outcome: Outcome) -> str:
    """Why it is over; of a run that was over before, also how to go on."""
    from townlet.train.stop_conditions import ENDS

    why = outcome.ending.why
    if outcome.trained:
        return f"Trained for {outcome.seconds:.0f} s; {why}."
    key = next((f"budget.{key}" for key, end in ENDS.items() if end == why), "budget.env_steps")
    return f"It is finished: {why}. To go on give it a larger one: {resume_command(outcome.run, f'{key}=…')}"


def _several(asked: str, words: list[str], root: Path, seeds: int) -> None:
    from townlet.train.multi_seed import several

    found = several(asked, words, root, seeds, console_sink)
    lines = {}
    for outcome in found.outcomes:
        last = outcome.ending.last
        score = "" if last is None else f"{last.score(found.metric):.1f}"
        lines[outcome.seed] = f"{score:>8}  {outcome.seconds:.0f} s  {outcome.run.path}"
    for one in found.failed:
        lines[one.seed] = f"  failed  {one.why}  {one.run.path}"
    for line in [*(f"seed {seed}: {lines[seed]}" for seed in sorted(lines)), found.in_words()]:
        out().print(line, markup=False, soft_wrap=True)
    if found.exit_code:
        raise typer.Exit(found.exit_code)
