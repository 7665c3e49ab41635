"""`townlet runs compare`: runs side by side."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from townlet.cli.console import out
from townlet.cli.evaluate import AsJson, Root
from townlet.cli.figures import figure, plain_table, runs_in_words, setting, share, short
from townlet.cli.opening import open_run
from townlet.errors import TownletError

if TYPE_CHECKING:
    from townlet.runs.overview import Overview

BY_NAME: Final = ("agent", "network", "explore")  # parts whose keys depend on what was chosen
SHOWN: Final = ("env", "variant", "seed")  # settings that every comparison shows


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN…", help="Runs to put side by side.")],
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw their curves: a .png, .svg or .html file.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also settings that only some of the runs have.")] = False,
    as_json: AsJson = False,
    root: Root = Path("runs"),
) -> None:
    """Put runs side by side: the settings that differ, and what came of each."""
    from townlet.runs.compare import differences, write_curves
    from townlet.runs.overview import overview

    opened = list({run.path.resolve(): run for run in (open_run(name, root) for name in runs)}.values())
    if not 2 <= len(opened) <= len(ascii_uppercase):
        raise TownletError(f"cannot compare {len(opened)} run", f"name 2 to {len(ascii_uppercase)} different runs")
    found = dict(zip(ascii_uppercase, map(overview, opened), strict=False))
    differ = differences(opened)
    if as_json:
        these = [one.as_json() | {"evaluations": one.evaluations} for one in found.values()]
        print(json.dumps({"runs": these, "differences": differ, "groups": _groups(list(found.values()))}, indent=2))
    else:
        _print(found, differ, every)
    if plot is not None:
        write_curves(found, plot)
        if not as_json:
            out().print(f"\nCurves: {plot}", markup=False, soft_wrap=True)


def _print(found: dict[str, Overview], differ: dict[str, list[Any]], every: bool) -> None:
    from townlet.runs.overview import sparkline

    console = out()
    for label, one in found.items():
        console.print(f"[bold]{label}[/bold] {one.run.name}", soft_wrap=True)
    console.print("")
    table = plain_table("", *(f"{label}>" for label in found))
    ones = list(found.values())
    lines = {
        "recipe": [one.recipe for one in ones],
        "seed": [figure(one.seed) for one in ones],
        "state": [one.state for one in ones],
        "steps": [short(one.env_steps) for one in ones],
        "seconds": [figure(one.meta.get("seconds")) for one in ones],
        "best": [figure(one.best) for one in ones],
        "last": [figure(one.last) for one in ones],
        "to the limit": [share(_final(one, "survived")) for one in ones],
        "work": [share(_final(one, "works")) for one in ones],
        "a random agent": [figure(one.random) for one in ones],
        "survival": [sparkline([v for v in one.evaluations["length"] if v is not None], 12) for one in ones],
    }
    for name, values in lines.items():
        table.add_row(name, *values)
    rest = {key: values for key, values in differ.items() if key not in SHOWN and (every or _of_all(key, differ))}
    for key, values in rest.items():
        table.add_row(key, *map(setting, values))
    console.print(table)
    if hidden := len(differ.keys() - rest.keys() - set(SHOWN)):
        console.print(f"Only some of them have {hidden} further settings; --all shows these too.")
    for title, group in _groups(ones).items():
        low, high = group["interval"]
        console.print(
            f"{title}: IQM of the last evaluation over {runs_in_words(group['runs'])} "
            f"{group['iqm']:.1f}, "
            f"95 % interval {low:.1f} to {high:.1f}"
        )


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


def _groups(found: list[Overview]) -> dict[str, dict[str, Any]]:
    """The IQM of the last evaluations of runs of the same recipe, where there are several."""
    scores: dict[str, list[float]] = defaultdict(list)
    for one in found:
        if one.last is not None:
            scores[one.recipe].append(one.last)
    several = {title: these for title, these in scores.items() if len(these) > 1}
    if not several:
        return {}
    from townlet.train.several import interval, iqm

    return {title: {"runs": len(s), "iqm": iqm(s), "interval": interval(s)} for title, s in several.items()}
