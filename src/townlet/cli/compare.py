"""`townlet runs compare`: runs side by side."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from townlet.cli.console import out
from townlet.cli.figures import figure, plain_table, runs_in_words, setting, share
from townlet.cli.opening import open_run
from townlet.cli.options import ROOT, AsJson, Root
from townlet.errors import TownletError
from townlet.interfaces.counters import short

if TYPE_CHECKING:
    from townlet.runs.folder import Run
    from townlet.runs.overview import Overview

BY_NAME: Final = ("agent", "network", "explore")  # parts whose keys depend on what was chosen
SHOWN: Final = ("env", "variant", "seed")  # settings that every comparison shows


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
    from townlet.runs.overview import overview

    opened = _opened(runs, root)
    found = dict(zip(ascii_uppercase, map(overview, opened), strict=False))
    differ = differences(opened)
    if as_json:
        these = [one.as_json() | {"evaluations": one.evaluations} for one in found.values()]
        print(json.dumps({"runs": these, "differences": differ, "groups": _groups(found)}, indent=2))
    else:
        _print(found, differ, every)
    if plot is not None:
        write_curves(found, plot)
        if not as_json:
            out().print(f"\nCurves: {plot}", markup=False, soft_wrap=True)


def _print(found: dict[str, Overview], differ: dict[str, list[Any]], every: bool) -> None:
    from rich.text import Text

    from townlet.runs.overview import sparkline
    from townlet.runs.vocabulary import TOWN

    console = out()
    for label, one in found.items():
        console.print(Text.assemble((label, "bold"), " ", one.run.name), soft_wrap=True)
    console.print("")
    table = plain_table("", *(f"{label}>" for label in found))
    ones = list(found.values())
    lines = {
        "recipe": [one.recipe for one in ones],
        "seed": [figure(one.seed) for one in ones],
        "state": [one.state for one in ones],
        "steps": [short(one.env_steps) for one in ones],
        "seconds": [figure(one.meta.get("seconds")) for one in ones],
        "measured by": [one.metric for one in ones],
        "best": [figure(one.best) for one in ones],
        "last": [figure(one.last) for one in ones],
        "to the limit": [share(_final(one, "survived")) for one in ones],
        **({"work": [share(_final(one, "works")) for one in ones]} if any(one.told is TOWN for one in ones) else {}),
        "a random agent": [figure(one.random) for one in ones],
        "evaluated": [sparkline(one.curve, 12) for one in ones],
    }
    for name, values in lines.items():
        table.add_row(name, *values)
    rest = {key: values for key, values in differ.items() if key not in SHOWN and (every or _of_all(key, differ))}
    for key, values in rest.items():
        table.add_row(key, *(Text(setting(value)) for value in values))
    console.print(table)
    if hidden := len(differ.keys() - rest.keys() - set(SHOWN)):
        console.print(f"Only some of them have {hidden} further settings; --all shows these too.")
    for group in _groups(found):
        low, high = group["interval"]
        console.print(
            f"{', '.join(group['labels'])} ({group['recipe']}, {len(group['labels'])} seeds): "
            f"IQM of the last evaluation's {group['metric']} {group['iqm']:.1f}, "
            f"95 % interval {low:.1f} to {high:.1f}",
            markup=False,
            soft_wrap=True,
        )


def _opened(words: list[str], root: Path) -> list[Run]:
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
        raise TownletError(f"cannot compare {runs_in_words(len(found))}", f"name 2 to {most} different runs")
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


def _groups(found: dict[str, Overview]) -> list[dict[str, Any]]:
    """The IQM of the last evaluations of finished runs that differ in their seed alone, where there are several."""
    from townlet.runs.settings import experiment_hash

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
