"""`townlet train`: train a recipe, or go on with a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from townlet.cli.console import err, out
from townlet.errors import TownletError

if TYPE_CHECKING:
    from townlet.train.launch import Outcome
    from townlet.train.recipe import Recipe
    from townlet.train.sinks import Sink

DEFAULT = "town:dqn"
INTERRUPTED = 130


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
        int | None, typer.Option(min=1, help="End after so many steps of all rows (budget.env_steps).")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="End after so many minutes (budget.minutes).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Another seed, another run of the same experiment.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train so many seeds, one after the other, and compare.")] = 1,
    pause_at: Annotated[
        int | None, typer.Option(min=1, help="Stop here on the way to the budget; --resume goes on.")
    ] = None,
    root: Annotated[Path, typer.Option(metavar="FOLDER", help="Where runs lie.")] = Path("runs"),
) -> None:
    """Train an agent. Ctrl-C saves and leaves; a second one leaves at once."""
    # `townlet train --resume RUN key=value` has no recipe: the first word is a change already.
    words = [word for word in (recipe, *(overrides or ())) if word is not None]
    asked = words.pop(0) if words and "=" not in words[0].partition(":")[0] else None
    if steps is not None:
        words.append(f"budget.env_steps={steps}")
    if minutes is not None:
        words.append(f"budget.minutes={minutes}")
    if seed is not None:
        words.append(f"seed={seed}")
    if resume is not None:
        if asked is not None:
            raise TownletError(f"--resume {resume} knows its recipe", f"leave out '{asked}'")
        _resume(resume, words, root, pause_at)
    elif seeds > 1:
        _several(asked or DEFAULT, words, root, seeds)
    else:
        _start(asked or DEFAULT, words, root, pause_at)


def _start(asked: str, words: list[str], root: Path, pause_at: int | None) -> None:
    from townlet.train.launch import start
    from townlet.train.load import load

    loaded = load(asked, words)
    _finish(start(loaded, root, sinks=[console_sink(loaded.recipe)], pause_at=pause_at))


def _resume(name: str, words: list[str], root: Path, pause_at: int | None) -> None:
    from townlet.runs.folder import Run
    from townlet.train.launch import resume
    from townlet.train.load import load

    run = Run.open(name, root)
    sink = console_sink(load(str(run.resolved_file), words).recipe)
    _finish(resume(run, words, sinks=[sink], pause_at=pause_at))


def console_sink(recipe: Recipe) -> Sink:
    """A bar at a terminal, plain lines in a pipe."""
    from townlet.train.sinks import Bar, Lines

    console = err()
    if console.is_terminal:
        return Bar(console, recipe.title, recipe.budget.env_steps or 0)
    return Lines(sys.stderr)


def _finish(outcome: Outcome) -> None:
    """Say what came of it, or how to go on."""
    console = out()
    if not outcome.ending.finished:
        console.print(f"Saved after {outcome.seconds:.0f} s. Go on with: townlet train --resume {outcome.run.name}")
        if outcome.ending.why == "interrupted":
            raise typer.Exit(INTERRUPTED)
        return
    for sentence in outcome.summary.sentences() if outcome.summary else ():
        console.print(sentence, soft_wrap=True)
    console.print(f"Trained for {outcome.seconds:.0f} s; {outcome.ending.why}.")
    console.print(f"Run:    {outcome.run.path}", soft_wrap=True)
    console.print(f"Report: {outcome.run.report_html}", soft_wrap=True)


def _several(asked: str, words: list[str], root: Path, seeds: int) -> None:
    from townlet.train.several import several

    found = several(asked, words, root, seeds, console_sink)
    console = out()
    for outcome in found.outcomes:
        last = outcome.ending.last
        score = "" if last is None else f"{last.score(found.metric):.1f}"
        console.print(f"seed {outcome.seed}: {score:>8}  {outcome.seconds:.0f} s  {outcome.run.path}", soft_wrap=True)
    console.print(found.in_words(), soft_wrap=True)
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)
