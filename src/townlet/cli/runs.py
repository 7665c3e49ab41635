"""`townlet runs`: list, show, compare, export, verify and prune what trainings left on disk."""

from __future__ import annotations

import json
from collections import defaultdict
from enum import StrEnum
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from townlet.cli.console import (
    examples,
    format_number,
    format_percent,
    format_setting,
    out,
    plain_table,
    plural,
    print_integrity,
)
from townlet.cli.help import CommandGroup
from townlet.cli.options import ROOT, AsJson, Root, RunName, open_run, resume_command
from townlet.errors import TownletError
from townlet.interfaces.counters import format_count

if TYPE_CHECKING:
    from rich.table import Table

    from townlet.runs.folder import Run
    from townlet.runs.overview import Overview

app = CommandGroup("Look after runs: list, show, compare, export, verify, prune.")
SPARE = ("recipe", "age>", "seed>", "steps>")  # columns of the list that a narrow terminal goes without
STATE_STYLES = {"running": "cyan", "diverged": "red", "damaged": "red", "interrupted": "yellow"}


class SortOrder(StrEnum):
    """Which run comes first."""

    AGE = "age"
    SCORE = "score"


@app.command("list", epilog=examples("townlet runs list", "townlet runs list --sort score", "townlet runs list --json"))
def list_(
    sort: Annotated[
        SortOrder, typer.Option(metavar="age|score", help="The newest first, or the best.")
    ] = SortOrder.AGE,
    as_json: AsJson = False,
    root: Root = ROOT,
) -> None:
    """List all runs, the newest first."""
    from townlet.runs.overview import list_overviews, sort_by_score

    found = list_overviews(root)
    found = sort_by_score(found) if sort is SortOrder.SCORE else found
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=2))
    elif not found:
        out().print(f"There is no run in {root} yet. Train one: townlet train", markup=False, soft_wrap=True)
    else:
        _print_overviews(found)
        if damaged := [one for one in found if one.problem]:
            out().print(f"What is wrong: townlet runs show {damaged[0].run.name}", markup=False, soft_wrap=True)


def _print_overviews(found: list[Overview]) -> None:
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
            "seed>": format_number(one.seed),
            "steps>": format_count(one.env_steps),
            "best>": format_number(one.best),
            "state": Text(one.state, STATE_STYLES.get(one.state, "")),
            "age>": one.age(),
        }
        table.add_row(*(cells[name] for name in headings))
    return table


@app.command(epilog=examples("townlet runs show latest", "townlet runs show town-ppo-2026 --json"))
def show(run: RunName, as_json: AsJson = False, root: Root = ROOT) -> None:
    """Tell all about one run: what was trained and what came of it."""
    from townlet.runs.overview import make_overview, sparkline

    one = make_overview(open_run(run, root))
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
        shares = [format_percent(row["survived"]), format_percent(row["works"])]
        table.add_row(
            f"{row['env_steps']:,}", *(format_number(row[name]) for name in ("episodes", "limit", "length")),
            *shares, format_number(row["score"]),
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
    from townlet.runs.metrics_reader import MetricsReader, write_csv

    opened = open_run(run, root)
    path = to or opened.csv_file
    with MetricsReader(opened.metrics_file) as store:
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
    print_integrity(check(opened), as_json)


@app.command(epilog=examples("townlet runs prune", "townlet runs prune --keep 3", "townlet runs prune --keep 3 --yes"))
def prune(
    keep: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="Also let go of all but the best K runs of each recipe.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without it they are only listed.")] = False,
    root: Root = ROOT,
) -> None:
    """List runs that can go, and remove_run them with --yes.

    A run that is being trained always stays.
    """
    from townlet.runs.overview import folder_size, list_overviews, prunable, remove_leftovers, remove_run

    console = out()
    if yes:
        remove_leftovers(root)
    found = prunable(list_overviews(root), keep)
    if not found:
        console.print(
            "Nothing to remove_run." + ("" if keep else " Let go of all but the best K of each recipe: --keep K")
        )
        return
    total = count = 0
    for leaving in found:
        size = folder_size(leaving.one.run.path)
        gone = remove_run(leaving, root) if yes else True
        total, count = (total + size, count + 1) if gone else (total, count)
        told = leaving.why if gone else "kept: somebody writes in it"
        console.print(f"{leaving.one.run.name}  {size / 1e6:.1f} MB  {told}", markup=False, soft_wrap=True)
    verb = "Removed" if yes else "These would go:"
    console.print(f"{verb} {plural(count, 'run')}, {total / 1e6:.1f} MB.{'' if yes else ' Remove them with --yes'}")


BY_NAME: Final = ("agent", "network", "explore")  # parts whose keys depend on what was chosen
SHOWN: Final = ("env", "variant", "seed")  # settings that every comparison shows


@app.command(
    epilog=examples("townlet runs compare town-ppo town-dqn", "townlet runs compare RUN RUN RUN --plot curves.png")
)
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN …", help="Runs to put side by side; a beginning stands for all runs that begin so."
        ),
    ],
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw their curves: a .png, .svg or .html file.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also settings that only some of the runs have.")] = False,
    as_json: AsJson = False,
    root: Root = ROOT,
) -> None:
    """Put runs side by side: what differs, and what came of each."""
    from townlet.runs.compare import differences, write_curves
    from townlet.runs.overview import make_overview

    opened = _open_all(runs, root)
    found = dict(zip(ascii_uppercase, map(make_overview, opened), strict=False))
    differ = differences(opened)
    if as_json:
        these = [one.as_json() | {"evaluations": one.evaluations} for one in found.values()]
        print(json.dumps({"runs": these, "differences": differ, "groups": _seed_groups(found)}, indent=2))
    else:
        _print_comparison(found, differ, every)
    if plot is not None:
        write_curves(found, plot)
        if not as_json:
            out().print(f"\nCurves: {plot}", markup=False, soft_wrap=True)


def _print_comparison(found: dict[str, Overview], differ: dict[str, list[Any]], every: bool) -> None:
    from rich.text import Text

    from townlet.runs.overview import sparkline
    from townlet.runs.summary_text import TOWN_TERMS

    console = out()
    for label, one in found.items():
        console.print(Text.assemble((label, "bold"), " ", one.run.name), soft_wrap=True)
    console.print("")
    table = plain_table("", *(f"{label}>" for label in found))
    ones = list(found.values())
    lines = {
        "recipe": [one.recipe for one in ones],
        "seed": [format_number(one.seed) for one in ones],
        "state": [one.state for one in ones],
        "steps": [format_count(one.env_steps) for one in ones],
        "seconds": [format_number(one.meta.get("seconds")) for one in ones],
        "measured by": [one.metric for one in ones],
        "best": [format_number(one.best) for one in ones],
        "last": [format_number(one.last) for one in ones],
        "to the limit": [format_percent(_final(one, "survived")) for one in ones],
        **(
            {"work": [format_percent(_final(one, "works")) for one in ones]}
            if any(one.told is TOWN_TERMS for one in ones)
            else {}
        ),
        "a random agent": [format_number(one.random) for one in ones],
        "evaluated": [sparkline(one.curve, 12) for one in ones],
    }
    for name, values in lines.items():
        table.add_row(name, *values)
    rest = {key: values for key, values in differ.items() if key not in SHOWN and (every or _of_all(key, differ))}
    for key, values in rest.items():
        table.add_row(key, *(Text(format_setting(value)) for value in values))
    console.print(table)
    if hidden := len(differ.keys() - rest.keys() - set(SHOWN)):
        console.print(f"Only some of them have {hidden} further settings; --all shows these too.")
    for group in _seed_groups(found):
        low, high = group["interval"]
        console.print(
            f"{', '.join(group['labels'])} ({group['recipe']}, {len(group['labels'])} seeds): "
            f"IQM of the last evaluation's {group['metric']} {group['iqm']:.1f}, "
            f"95 % interval {low:.1f} to {high:.1f}",
            markup=False,
            soft_wrap=True,
        )


def _open_all(words: list[str], root: Path) -> list[Run]:
    """The runs that are meant: a beginning stands for all runs whose names begin so."""
    from townlet.runs.folder import Run

    named: dict[Path, str] = {}
    found: list[Run] = []
    for word in words:
        begin = [run for run in Run.list(root) if word and run.name.startswith(word)]
        whole = [run for run in begin if run.name == word]
        for run in whole or (begin if len(begin) > 1 else [open_run(word, root)]):
            if (place := run.path.resolve()) in named:
                twice = f"as '{named[place]}' and '{word}'" if named[place] != word else "twice"
                raise TownletError(f"the run {run.name} is named {twice}", "name different runs, each once")
            named[place] = word
            found.append(run)
    most = len(ascii_uppercase)
    if not 2 <= len(found) <= most:
        raise TownletError(f"cannot compare {plural(len(found), 'run')}", f"name 2 to {most} different runs")
    return found


def _of_all(key: str, differ: dict[str, list[Any]]) -> bool:
    """Whether every run has this setting in some form (a number here may be a schedule there), or could have it."""
    if key.split(".")[0] not in BY_NAME:
        return True
    stem = ".".join(key.split(".")[:2])
    related = [values for other, values in differ.items() if other == stem or other.startswith(f"{stem}.")]
    return all(any(values[at] is not None for values in related) for at in range(len(differ[key])))


def _final(one: Overview, name: str) -> float | None:
    values = one.evaluations[name]
    return values[-1] if values else None


def _seed_groups(found: dict[str, Overview]) -> list[dict[str, Any]]:
    """The IQM of the last evaluations of finished runs that differ in their seed alone, where there are several."""
    from townlet.runs.provenance import experiment_hash

    alike: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
    for label, one in found.items():
        if one.last is not None and one.state == "finished":
            alike[experiment_hash(one.run), one.meta.get("world"), one.recipe][label] = one.last
    several = {key: scores for key, scores in alike.items() if len({found[label].seed for label in scores}) > 1}
    if not several:
        return []
    from townlet.train.multi_seed import interval, iqm

    return [
        {
            "recipe": key[-1],
            "metric": found[next(iter(scores))].metric,
            "labels": list(scores),
            "runs": [found[label].run.name for label in scores],
            "iqm": iqm(list(scores.values())),
            "interval": interval(list(scores.values())),
        }
        for key, scores in several.items()
    ]
