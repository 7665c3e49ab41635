"""`townlet runs`: list, show, compare, export, verify and prune what trainings left on disk."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from townlet.cli.compare import compare
from townlet.cli.console import examples, out
from townlet.cli.figures import figure, plain_table, runs_in_words, share, show_integrity
from townlet.cli.opening import open_run, resume_command
from townlet.cli.options import ROOT, AsJson, Root, RunName
from townlet.cli.verbs import Verbs
from townlet.interfaces.counters import short

if TYPE_CHECKING:
    from rich.table import Table

    from townlet.runs.overview import Overview

app = Verbs("Look after runs: list, show, compare, export, verify, prune.")
app.command(
    epilog=examples("townlet runs compare town-ppo town-dqn", "townlet runs compare RUN RUN RUN --plot curves.png")
)(compare)
SPARE = ("recipe", "age>", "seed>", "steps>")  # columns of the list that a narrow terminal goes without
STYLES = {"running": "cyan", "diverged": "red", "damaged": "red", "interrupted": "yellow"}


class Sort(StrEnum):
    """Which run comes first."""

    AGE = "age"
    SCORE = "score"


@app.command("list", epilog=examples("townlet runs list", "townlet runs list --sort score", "townlet runs list --json"))
def list_(
    sort: Annotated[Sort, typer.Option(metavar="age|score", help="The newest first, or the best.")] = Sort.AGE,
    as_json: AsJson = False,
    root: Root = ROOT,
) -> None:
    """List all runs, the newest first."""
    from townlet.runs.overview import by_score, overviews

    found = overviews(root)
    found = by_score(found) if sort is Sort.SCORE else found
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=2))
    elif not found:
        out().print(f"There is no run in {root} yet. Train one: townlet train", markup=False, soft_wrap=True)
    else:
        _print_list(found)
        if damaged := [one for one in found if one.problem]:
            out().print(f"What is wrong: townlet runs show {damaged[0].run.name}", markup=False, soft_wrap=True)


def _print_list(found: list[Overview]) -> None:
    """As many columns as fit, each cell whole: what can be done without goes first, in the order of SPARE."""
    console = out()
    for spared in range(len(SPARE) + 1):
        table = _listing(found, SPARE[:spared])
        width = console.measure(table, options=console.options.update(max_width=10_000)).maximum
        if width <= console.width:
            break
    console.width = max(console.width, width)  # a name is longer than the terminal: it stays whole too
    console.print(table)


def _listing(found: list[Overview], without: tuple[str, ...]) -> Table:
    from rich.text import Text

    headings = [name for name in ("run", "recipe", "seed>", "steps>", "best>", "state", "age>") if name not in without]
    table = plain_table(*headings)
    for one in found:
        cells: dict[str, Text | str] = {
            "run": Text(one.run.name),
            "recipe": Text(one.recipe),
            "seed>": figure(one.seed),
            "steps>": short(one.env_steps),
            "best>": figure(one.best),
            "state": Text(one.state, STYLES.get(one.state, "")),
            "age>": one.age(),
        }
        table.add_row(*(cells[name] for name in headings))
    return table


@app.command(epilog=examples("townlet runs show latest", "townlet runs show town-ppo-2026 --json"))
def show(run: RunName, as_json: AsJson = False, root: Root = ROOT) -> None:
    """Tell all about one run: what was trained and what came of it."""
    from townlet.runs.overview import overview, sparkline

    one = overview(open_run(run, root))
    if as_json:
        print(json.dumps(one.as_json() | {"meta": one.meta, "evaluations": one.evaluations}, indent=2))
        return
    console = out()
    console.print(_facts(one))
    if changed := [*one.meta.get("overrides", ()), *one.meta.get("resumed_with", ())]:
        console.print("\nSettings that differ from the recipe's file:", style="bold")
        for word in changed:
            console.print(f"  {word}", markup=False, soft_wrap=True)
    if one.scores:
        console.print("\nEvaluations:", style="bold")
        console.print(_evaluations(one))
        if curve := one.curve:
            begin, end = one.told.figure(curve[0]), one.told.figure(curve[-1])
            console.print(f"{one.told.plot}  {sparkline(curve)}  {begin} → {end}")
    if told := one.meta.get("summary"):
        console.print("")
        for sentence in told:
            console.print(sentence, markup=False)
    report = one.run.report_html
    console.print(f"\nReport: {report if report.is_file() else 'none yet'}", markup=False, soft_wrap=True)
    if one.state in ("interrupted", "diverged") and one.checkpoints:
        console.print(f"Go on with: {resume_command(one.run)}", markup=False, soft_wrap=True)


def _facts(one: Overview) -> Table:
    from rich.table import Table
    from rich.text import Text

    meta = one.meta
    seconds = meta.get("seconds")
    ended = meta.get("diverged") or meta.get("ended") or ""
    facts = {
        "run": one.run.path,
        "recipe": f"{one.recipe}, seed {one.seed}",
        "state": f"{one.state}{f': {ended}' if ended and one.state not in ('running', 'damaged') else ''}",
        "problem": one.problem,
        "begun": f"{str(meta.get('created', '?'))[:19]} UTC, {one.age()} ago",
        "trained": f"{one.env_steps:,} env_steps" + (f" in {seconds:.0f} s" if seconds is not None else ""),
        "agent": f"{meta.get('agent', '?')}, {meta.get('rows', '?')} rows",
        "command": meta.get("command"),
        "versions": ", ".join(f"{name} {version}" for name, version in meta.get("versions", {}).items()),
        "commit": meta.get("commit"),
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if value:
            table.add_row(name, Text(str(value)))
    return table


def _evaluations(one: Overview, lines: int = 12) -> Table:
    """The evaluations, thinned out where there are many; the last is always there."""
    columns = one.evaluations
    count = len(columns["env_steps"])
    shown = sorted(
        {round(i * (count - 1) / max(1, lines - 1)) for i in range(lines)} if count > lines else range(count)
    )
    table = plain_table("steps>", "lives>", "limit>", "length>", "to the limit>", "work>", "score>")
    for at in shown:
        row = {name: values[at] for name, values in columns.items()}
        shares = [share(row["survived"]), share(row["works"])]
        table.add_row(
            f"{row['env_steps']:,}", figure(row["episodes"]), figure(row["limit"]), figure(row["length"]),
            *shares, figure(row["score"]),
        )  # fmt: skip
    return table


@app.command(epilog=examples("townlet runs export latest", "townlet runs export town-ppo-2026 --to curves.csv"))
def export(
    run: RunName,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write; by default metrics.csv in the run's folder.")
    ] = None,
    root: Root = ROOT,
) -> None:
    """Write all figures of a run as one CSV table for a spreadsheet.

    One line for each: env_steps, updates, name, value.
    """
    from townlet.runs.export import write_csv
    from townlet.runs.reader import Reader

    opened = open_run(run, root)
    path = to or opened.csv_file
    with Reader(opened.metrics_file) as store:
        write_csv(store, path)
    out().print(f"Wrote {path}", markup=False, soft_wrap=True)


@app.command(epilog=examples("townlet runs verify latest", "townlet runs verify town-ppo-2026 --json"))
def verify(
    run: RunName,
    as_json: AsJson = False,
    reseal: Annotated[
        bool, typer.Option("--reseal", help="Accept meta.json and the files it lists as they are; write new checksums.")
    ] = False,
    root: Root = ROOT,
) -> None:
    """Check every checksum of a run, and whether its files agree.

    Exit code 0 means that everything is whole, 1 that something is damaged.
    """
    from townlet.runs.lock import Lock
    from townlet.runs.verify import reseal as write_checksums
    from townlet.runs.verify import verify as check

    opened = open_run(run, root)
    if reseal:
        with Lock(opened.path):
            write_checksums(opened)
    show_integrity(check(opened), as_json)


@app.command(epilog=examples("townlet runs prune", "townlet runs prune --keep 3", "townlet runs prune --keep 3 --yes"))
def prune(
    keep: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="Also let go of all but the best K runs of each recipe.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without it they are only listed.")] = False,
    root: Root = ROOT,
) -> None:
    """List runs that can go, and remove them with --yes.

    A run that is being trained always stays.
    """
    from townlet.runs.overview import overviews
    from townlet.runs.prune import candidates, remove, size_of, tidy

    console = out()
    if yes:
        tidy(root)
    found = candidates(overviews(root), keep)
    if not found:
        console.print("Nothing to remove." + ("" if keep else " Let go of all but the best K of each recipe: --keep K"))
        return
    total = count = 0
    for leaving in found:
        size = size_of(leaving.one.run.path)
        gone = remove(leaving, root) if yes else True
        total, count = (total + size, count + 1) if gone else (total, count)
        told = leaving.why if gone else "kept: somebody writes in it"
        console.print(f"{leaving.one.run.name}  {size / 1e6:.1f} MB  {told}", markup=False, soft_wrap=True)
    verb = "Removed" if yes else "These would go:"
    console.print(f"{verb} {runs_in_words(count)}, {total / 1e6:.1f} MB.{'' if yes else ' Remove them with --yes'}")
