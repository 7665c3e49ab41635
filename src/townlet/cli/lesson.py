"""`townlet lesson`: list the lessons, or train the failure and the cure of one side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from townlet.cli.console import echo, err, out, plain_table
from townlet.cli.live import Port, page_server
from townlet.cli.options import ROOT, Root, run_command
from townlet.errors import TownletError

if TYPE_CHECKING:
    from rich.table import Table

    from townlet.lessons.schema import Lesson, Measure
    from townlet.lessons.training import LessonRuns
    from townlet.runs.folder import Run

REFRESH: Final = 1.0  # seconds between updates of the progress
SPARKLINE_LENGTH: Final = 24
QUICK: Final = (
    "Train fewer steps, for a demonstration. The failure still shows, but the "
    "numbers differ from those in the text, and the cure may not be complete."
)


def lesson(
    name: Annotated[
        str | None, typer.Argument(metavar="LESSON", help="Name or number of the lesson; without it, list all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help=QUICK)] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each agent, with consecutive seeds.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 1,
    show: Annotated[bool, typer.Option("--open", help="Open the live page with the two agents afterwards.")] = False,
    port: Port = None,
    root: Root = ROOT,
) -> None:
    """List the lessons, or train the agents of one side by side.

    Every lesson is a failure and its cure. It ends with the result of each agent and a figure.
    """
    from townlet.lessons.schema import find_lesson

    if name is None:
        if quick or show or seeds is not None:
            raise TownletError("no lesson is named", "name one: townlet lesson LESSON; `townlet lesson` lists them")
        _print_lessons()
        return
    chosen = find_lesson(name)
    _print_introduction(chosen)
    start = time.monotonic()
    trained = _train(chosen, root, range(seed, seed + (seeds or chosen.seeds)), quick)
    _print_results(trained, quick, time.monotonic() - start)
    _write_figures(trained, root)
    first, *_, last = (runs[0] for runs in trained.runs.values())
    if not show:
        echo(f"Page:     {run_command('live', last, first.name)}")
        return
    with page_server(last, "127.0.0.1", port, show=True, other=first) as (link, server):
        echo(f"Page:     {link}  (Ctrl-C stops it)")
        with suppress(KeyboardInterrupt):
            server.wait()


def _print_lessons() -> None:
    from townlet.lessons.results import read_results
    from townlet.lessons.schema import shipped_lessons

    table = plain_table(">", "lesson", "question", "time>")
    for one in shipped_lessons():
        results = read_results(one)
        duration = f"{results.lesson_seconds:.0f} s" if results else "–"
        table.add_row(str(one.number), one.name, one.question, duration)
    out().print(table)
    echo("\nStart one: townlet lesson NAME; --quick trains fewer steps, for a demonstration.")


def _print_introduction(chosen: Lesson) -> None:
    echo(f"Lesson {chosen.number}: {chosen.title}", "", f"  {chosen.question}", "")
    echo(*(f"  {name:<8} {arm.label}" for name, arm in chosen.arms.items()), "")
    echo(f"Text:     {chosen.text_file}", "Before you look: which agent will do better, and why? Write it down.", "")


def _train(chosen: Lesson, root: Path, seeds: range, quick: bool) -> LessonRuns:
    from townlet.lessons.training import train_lesson

    runs: dict[str, list[Run]] = {arm: [] for arm in chosen.arms}
    overrides = chosen.quick.overrides if quick else ()
    with _progress(chosen, runs):
        processes = min(os.cpu_count() or 1, len(chosen.arms) * len(seeds))
        return train_lesson(chosen, root, seeds, processes, overrides, on_run=lambda arm, run: runs[arm].append(run))


@contextmanager
def _progress(chosen: Lesson, runs: dict[str, list[Run]]) -> Iterator[None]:
    """Show the first measure of every run during training, updated in place at a terminal."""
    from rich.live import Live

    console = err()
    if not console.is_terminal:
        yield
        return
    with Live(console=console, refresh_per_second=1 / REFRESH, get_renderable=lambda: _progress_table(chosen, runs)):
        yield


def _progress_table(chosen: Lesson, runs: dict[str, list[Run]]) -> Table:
    from townlet.lessons.measures import read_curve
    from townlet.runs.overview import sparkline

    measure = next(iter(chosen.measures.values()))
    table = plain_table("", "env_steps>", f"{measure.label}>", "")
    for arm, started in runs.items():
        for run in started:
            cells = ("", "", "")
            with suppress(TownletError, OSError):  # a run whose metrics do not exist yet
                curve = read_curve(run, measure)
                if len(curve.values):
                    values = curve.values.tolist()
                    cells = (
                        f"{curve.env_steps[-1]:,.0f}",
                        measure.text(values[-1]),
                        sparkline(values, SPARKLINE_LENGTH),
                    )
            table.add_row(arm, *cells)
    return table


def _print_results(trained: LessonRuns, quick: bool, seconds: float) -> None:
    from townlet.lessons.measures import failed_expectations

    chosen, values = trained.lesson, trained.values
    for arm, spec in chosen.arms.items():
        texts = {name: _summary_text(m, values[arm][name]) for name, m in chosen.measures.items()}
        echo(f"{arm:<8}  {spec.sentence.format(**texts)}")
    echo("")
    if failed := failed_expectations(chosen, values, quick):
        echo("This time it came out differently than in the text:", *(f"  {text}" for text in failed))
        echo("Results differ between seeds; try another one with --seed.")
    else:
        echo(chosen.conclusion)
    echo("", f"Trained in {seconds:.0f} s.")


def _summary_text(measure: Measure, values: Sequence[float]) -> str:
    """The value of one seed, or the interquartile mean of several with its 95% interval."""
    from townlet.lessons.measures import summarize

    found = summarize(values)
    text = measure.text(found.iqm)
    return text if len(values) == 1 else f"{text} ({measure.text(found.low)} to {measure.text(found.high)})"


def _write_figures(trained: LessonRuns, root: Path) -> None:
    from townlet.lessons.figure import figure_size, paint_figure
    from townlet.runs import disk, plots

    chosen = trained.lesson
    paint, size = paint_figure(chosen, trained.runs), figure_size(chosen)
    file = root / f"lesson-{chosen.name}.svg"
    disk.replace_file(file, plots.draw(f"lesson-{chosen.name}", chosen.title, size, paint).standalone())
    disk.replace_file(file.with_suffix(".png"), plots.png(size, paint))
    echo(f"Figure:   {file.with_suffix('.png')} and .svg")
    for arm, runs in trained.runs.items():
        echo(f"{arm + ':':<10}{runs[0].path}")
