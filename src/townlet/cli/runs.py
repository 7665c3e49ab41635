"""`townlet runs`: list, show, compare, export, verify and prune runs."""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from rich.text import Text

from townlet.cli.console import echo, format_number, format_percent, out, plain_table, plural, print_integrity
from townlet.cli.help import CommandGroup
from townlet.cli.options import ROOT, AsJson, Root, RunName, open_run, run_command
from townlet.errors import TownletError
from townlet.interfaces.counters import format_count

if TYPE_CHECKING:
    from rich.table import Table

    from townlet.runs.folder import Run
    from townlet.runs.overview import Overview

app = CommandGroup("List, show, compare, export, verify and prune runs.")
COLUMNS: Final = ("run", "recipe", "seed>", "steps>", "best>", "state", "age>")
OPTIONAL_COLUMNS: Final = ("recipe", "age>", "seed>", "steps>")  # dropped in this order on a narrow terminal
STATE_STYLES: Final = {
    "running": "cyan", "diverged": "red", "damaged": "red", "interrupted": "yellow", "stopped": "yellow"
}  # fmt: skip
MAX_EVALUATIONS: Final = 12  # maximum number of lines of the table of evaluations
VARIABLE_SECTIONS: Final = ("agent", "network", "explore")  # their keys depend on their `name`
ALWAYS_COMPARED: Final = ("env", "variant", "seed")  # always shown, as "recipe" and "seed"
LABELS: Final = ascii_uppercase  # short names of compared runs


@app.with_examples("townlet runs list", "townlet runs list --sort score", "townlet runs list --json", name="list")
def list_(
    sort: Annotated[Literal["age", "score"], typer.Option(metavar="age|score", help="Newest or best first.")] = "age",
    as_json: AsJson = False,
    root: Root = ROOT,
) -> None:
    """List all runs."""
    from townlet.runs.overview import list_overviews, sort_by_score

    overviews = list_overviews(root)
    overviews = sort_by_score(overviews) if sort == "score" else overviews
    if as_json:
        print(json.dumps([o.as_json() for o in overviews], indent=2))
    elif not overviews:
        echo(f"There are no runs in {root} yet. Train one: townlet train")
    else:
        _print_overviews(overviews)
        if damaged := [o for o in overviews if o.problem]:
            echo(f"To see what is damaged: townlet runs show {damaged[0].run.name}")


def _print_overviews(overviews: list[Overview]) -> None:
    """Print a table without the columns that do not fit; no cell is shortened."""
    console = out()
    for dropped in range(len(OPTIONAL_COLUMNS) + 1):
        table = _overview_table(overviews, OPTIONAL_COLUMNS[:dropped])
        width = console.measure(table, options=console.options.update(max_width=10_000)).maximum
        if width <= console.width:
            break
    console.width = max(console.width, width)  # do not shorten a name that is longer than the terminal
    console.print(table)


def _overview_table(overviews: list[Overview], dropped: tuple[str, ...]) -> Table:
    columns = [name for name in COLUMNS if name not in dropped]
    table = plain_table(*columns)
    for o in overviews:
        cells: dict[str, Text | str] = {
            "run": Text(o.run.name),
            "recipe": Text(o.recipe),
            "seed>": format_number(o.seed),
            "steps>": format_count(o.env_steps),
            "best>": format_number(o.best),
            "state": Text(o.state, STATE_STYLES.get(o.state, "")),
            "age>": o.age(),
        }
        table.add_row(*(cells[name] for name in columns))
    return table


@app.with_examples("townlet runs show latest", "townlet runs show town-ppo-2026 --json")
def show(run: RunName, as_json: AsJson = False, root: Root = ROOT) -> None:
    """Show the settings, state and results of a run."""
    from townlet.runs.overview import make_overview, sparkline

    overview = make_overview(open_run(run, root))
    meta = overview.meta
    if as_json:
        policies = [policy._asdict() for policy in overview.policies]
        more = {"meta": meta, "evaluations": overview.evaluations, "policies": policies}
        print(json.dumps(overview.as_json() | more, indent=2))
        return
    console = out()
    console.print(_details(overview))
    if overrides := [*meta.get("overrides", ()), *meta.get("resumed_with", ())]:
        console.print("\nOverrides of the recipe:", style="bold")
        echo(*(f"  {override}" for override in overrides))
    if overview.scores:
        console.print("\nEvaluations:", style="bold")
        console.print(_evaluation_table(overview))
        if curve := overview.curve:
            terms = overview.terms
            first, last = terms.format_score(curve[0]), terms.format_score(curve[-1])
            console.print(f"{terms.plot_name}  {sparkline(curve)}  {first} → {last}")
    if overview.policies:
        console.print("\nSaved policies (for `--which STEP`):", style="bold")
        console.print(_policy_table(overview))
    if summary := meta.get("summary"):
        console.print("")
        for sentence in summary:
            console.print(sentence, markup=False)
    report = overview.run.report_html
    echo(f"\nReport: {report if report.is_file() else 'none yet'}")
    if overview.state in ("stopped", "interrupted", "diverged") and overview.checkpoints:
        echo(f"Resume with: {run_command('train --resume', overview.run)}")


def _details(overview: Overview) -> Table:
    from rich.table import Table

    meta, state = overview.meta, overview.state
    seconds = meta.get("seconds")
    ended = meta.get("diverged") or meta.get("ended") or ""
    details = {
        "run": overview.run.path,
        "recipe": f"{overview.recipe}, seed {overview.seed}",
        "state": f"{state}: {ended}" if ended and state not in ("running", "damaged") else state,
        "problem": overview.problem,
        "created": f"{str(meta.get('created', '?'))[:19]} UTC, {overview.age()} ago",
        "trained": f"{overview.env_steps:,} env_steps" + (f" in {seconds:.0f} s" if seconds is not None else ""),
        "agent": f"{meta.get('agent', '?')}, {meta.get('rows', '?')} rows",
        "command": meta.get("command"),
        "versions": ", ".join(f"{name} {version}" for name, version in meta.get("versions", {}).items()),
        "commit": meta.get("commit"),
        "W&B": meta.get("wandb"),
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in details.items():
        if value:
            table.add_row(name, Text(str(value)))
    return table


def _evaluation_table(overview: Overview) -> Table:
    """The evaluations; if there are many, an evenly spaced selection with the first and the last."""
    columns, lines = overview.evaluations, MAX_EVALUATIONS
    count = len(columns["env_steps"])
    selected = {round(i * (count - 1) / (lines - 1)) for i in range(lines)}
    indices = selected if count > lines else range(count)
    fractions = {"survived": "reach the limit>"}
    if any(value is not None for value in columns["earns_money"]):  # only towns have jobs
        fractions["earns_money"] = "earn money>"
    table = plain_table("steps>", "episodes>", "limit>", "length>", *fractions.values(), "score>")
    for index in sorted(indices):
        row = {name: values[index] for name, values in columns.items()}
        numbers = [format_number(row[name]) for name in ("episodes", "limit", "length")]
        percentages = [format_percent(row[name]) for name in fractions]
        table.add_row(f"{row['env_steps']:,}", *numbers, *percentages, format_number(row["score"]))
    return table


def _policy_table(overview: Overview) -> Table:
    """Checkpoints and policy snapshots, oldest first."""
    table = plain_table("steps>", "saved as", "score>", "size>")
    for policy in overview.policies:
        kind = f"{policy.kind}, best" if policy.best else policy.kind
        size = f"{policy.bytes / 1e6:.2f} MB"
        table.add_row(f"{policy.env_steps:,}", kind, format_number(policy.score), size)
    return table


@app.with_examples("townlet runs export latest", "townlet runs export town-ppo-2026 --long --to curves.csv")
def export(
    run: RunName,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output file; by default metrics.csv in the folder of the run.")
    ] = None,
    long: Annotated[
        bool, typer.Option("--long", help="Write one row per value, with the columns env_steps, updates, name, value.")
    ] = False,
    root: Root = ROOT,
) -> None:
    """Write all metrics of a run to one CSV file.

    It has one row per env_steps at which an interval or evaluation was recorded, and one column per metric.
    """
    from townlet.runs.lock import lock_holder
    from townlet.runs.metrics_reader import MetricsReader, write_csv

    opened = open_run(run, root)
    path = to or opened.csv_file
    if to is None and path.is_file() and lock_holder(opened.path) is not None:
        what = f"the training of {opened.name} keeps {path} up to date itself"
        raise TownletError(what, "read that file, or write another one with --to FILE")
    with MetricsReader(opened.metrics_file) as store:
        write_csv(store, path, long)
    echo(f"Wrote {path}")


@app.with_examples("townlet runs verify latest", "townlet runs verify town-ppo-2026 --json")
def verify(
    run: RunName,
    as_json: AsJson = False,
    reseal: Annotated[
        bool, typer.Option("--reseal", help="Accept meta.json and the files it lists as they are; write new checksums.")
    ] = False,
    root: Root = ROOT,
) -> None:
    """Check every checksum of a run and the consistency of its files.

    Exits with code 0 if everything is intact, 1 if something is damaged.
    """
    from townlet.runs.lock import Lock
    from townlet.runs.verify import reseal as write_checksums
    from townlet.runs.verify import verify as check

    opened = open_run(run, root)
    if reseal:
        with Lock(opened.path):
            write_checksums(opened)
    print_integrity(check(opened), as_json)


@app.with_examples("townlet runs prune", "townlet runs prune --keep 3", "townlet runs prune --keep 3 --yes")
def prune(
    keep: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="Also prune all but the best K runs of each recipe.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove the runs; by default they are only listed.")] = False,
    root: Root = ROOT,
) -> None:
    """List runs without a checkpoint, or remove them with --yes.

    Running, published and damaged runs are never removed.
    """
    from townlet.runs.overview import folder_size, list_overviews, prunable, remove_leftovers, remove_run

    if yes:
        remove_leftovers(root)
    candidates = prunable(list_overviews(root), keep)
    if not candidates:
        echo("Nothing to remove." if keep else "Nothing to remove. To keep only the best K of each recipe: --keep K")
        return
    total = count = 0
    for run, reason in candidates:
        size = folder_size(run.path)
        if yes and not remove_run(run.path, root):
            echo(f"{run.name}  {size / 1e6:.1f} MB  kept: a process is writing to it")
            continue
        total, count = total + size, count + 1
        echo(f"{run.name}  {size / 1e6:.1f} MB  {reason}")
    size_text = f"{plural(count, 'run')}, {total / 1e6:.1f} MB"
    echo(f"Removed {size_text}." if yes else f"Would remove {size_text}. To remove them: --yes")


@app.with_examples("townlet runs compare town-ppo town-dqn", "townlet runs compare RUN RUN RUN --plot curves.png")
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN …", help="Runs to compare; a prefix selects all runs whose names start with it."
        ),
    ],
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plot the learning curves to a .png, .svg or .html file.")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Include settings that only some of the runs have.")] = False,
    as_json: AsJson = False,
    root: Root = ROOT,
) -> None:
    """Compare the settings and results of runs."""
    from townlet.runs.comparison import seed_groups, write_comparison
    from townlet.runs.overview import make_overview
    from townlet.runs.provenance import differing_settings
    from townlet.runs.statistics import interval_text, score_text

    selected = _select_runs(runs, root)
    overviews = dict(zip(LABELS, map(make_overview, selected), strict=False))
    differences, groups = differing_settings(selected), seed_groups(overviews)
    summaries = [group.as_json() for group in groups]
    if as_json:
        listed = [o.as_json() | {"evaluations": o.evaluations} for o in overviews.values()]
        print(json.dumps({"runs": listed, "differences": differences, "groups": summaries}, indent=2))
    else:
        _print_comparison(overviews, differences, show_all)
        for group in summaries:
            low, high = group["interval"]
            echo(
                f"{', '.join(group['labels'])} ({group['recipe']}, {len(group['labels'])} seeds): "
                f"IQM of the last evaluation's {group['metric']} {score_text(group['iqm'])}, "
                f"{interval_text(low, high)}"
            )
    if plot is not None:
        write_comparison(overviews, groups, plot)
        if not as_json:
            echo(f"\nCurves: {plot}")


def _print_comparison(overviews: dict[str, Overview], differences: dict[str, list[Any]], show_all: bool) -> None:
    """Print a table of runs by label; `differences` has the values of each differing setting, in the same order."""
    from townlet.runs.overview import sparkline
    from townlet.runs.summary_text import TOWN_TERMS

    console = out()
    for label, overview in overviews.items():
        console.print(Text.assemble((label, "bold"), " ", overview.run.name), soft_wrap=True)
    console.print("")
    compared = list(overviews.values())
    lines = {
        "recipe": [o.recipe for o in compared],
        "seed": [format_number(o.seed) for o in compared],
        "state": [o.state for o in compared],
        "steps": [format_count(o.env_steps) for o in compared],
        "seconds": [format_number(o.meta.get("seconds")) for o in compared],
        "metric": [o.score_metric for o in compared],
        "best": [format_number(o.best) for o in compared],
        "last": [format_number(o.last) for o in compared],
        "reach the limit": [format_percent((o.evaluations["survived"] or [None])[-1]) for o in compared],
        "earn money": [format_percent((o.evaluations["earns_money"] or [None])[-1]) for o in compared],
        "random agent": [format_number(o.random_evaluation.get("score")) for o in compared],
        "evaluations": [sparkline(o.scores, 12) for o in compared],
    }
    if not any(o.terms is TOWN_TERMS for o in compared):
        del lines["earn money"]
    table = plain_table("", *(f"{label}>" for label in overviews))
    for name, values in lines.items():
        table.add_row(name, *values)
    shown = {key for key in differences if key not in ALWAYS_COMPARED and (show_all or _in_all(key, differences))}
    for key, values in differences.items():
        if key in shown:
            table.add_row(key, *(Text(_setting_text(value)) for value in values))
    console.print(table)
    if hidden := len(differences.keys() - shown - set(ALWAYS_COMPARED)):
        echo(f"Not shown: {plural(hidden, 'setting')} that only some of the runs have. To show them: --all")


def _select_runs(words: list[str], root: Path) -> list[Run]:
    """The runs with these names; a prefix selects all runs whose names start with it."""
    from townlet.runs.folder import Run

    word_of: dict[Path, str] = {}
    selected: list[Run] = []
    for word in words:
        matches = [run for run in Run.list(root) if word and run.name.startswith(word)]
        exact = [run for run in matches if run.name == word]
        for run in exact or (matches if len(matches) > 1 else [open_run(word, root)]):
            if (path := run.path.resolve()) in word_of:
                twice = f"as '{word_of[path]}' and '{word}'" if word_of[path] != word else "twice"
                raise TownletError(f"the run {run.name} is named {twice}", "name each run once")
            word_of[path] = word
            selected.append(run)
    if not 2 <= len(selected) <= len(LABELS):
        what = f"cannot compare {plural(len(selected), 'run')}"
        raise TownletError(what, f"name 2 to {len(LABELS)} different runs")
    return selected


def _setting_text(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value)


def _in_all(key: str, differences: dict[str, list[Any]]) -> bool:
    """Whether every run has this setting in some form: a number in one run may be a schedule in another."""
    if key.split(".")[0] not in VARIABLE_SECTIONS:
        return True
    stem = ".".join(key.split(".")[:2])
    related = [values for other, values in differences.items() if other == stem or other.startswith(f"{stem}.")]
    return all(any(values[index] is not None for values in related) for index in range(len(differences[key])))
