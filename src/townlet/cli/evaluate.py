"""`townlet eval`: how long a trained agent lives, beside a random one and one that plans, in towns it never saw."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from townlet.cli.console import err, out
from townlet.cli.figures import share
from townlet.cli.opening import open_run, trained_policy
from townlet.cli.options import ROOT, AsJson, Root, RunName, Which, WhichOne, WorldChanges

if TYPE_CHECKING:
    from rich.table import Table

    from townlet.train.policies import TrainedPolicy
    from townlet.train.towns.measure import Measured

SELDOM = 0.05  # uses per life that are left out of the table


class Layout(StrEnum):
    """Where places stand."""

    FIXED = "fixed"
    SHUFFLED = "shuffled"


def evaluate(
    run: RunName,
    changes: WorldChanges = None,
    episodes: Annotated[int, typer.Option(min=1, max=100_000, help="Lives of each; more give a surer mean.")] = 100,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Which towns; by default others than the run was evaluated on.")
    ] = None,
    layout: Annotated[
        Layout | None,
        typer.Option(metavar="fixed|shuffled", help="shuffled moves the places: did it learn the town, or its map?"),
    ] = None,
    world: Annotated[
        str | None, typer.Option(metavar="WORLD", help="Another world with the same observation and actions.")
    ] = None,
    which: WhichOne = Which.BEST,
    sample: Annotated[bool, typer.Option("--sample", help="Draw actions instead of taking the likeliest.")] = False,
    as_json: AsJson = False,
    root: Root = ROOT,
) -> None:
    """Measure how long a trained agent lives.

    It lives in towns that it never saw, beside a random agent and one that knows every rule.
    """
    from townlet.train.towns.measure import figures, measure, world_for

    opened = open_run(run, root)
    with err().status(f"{episodes} lives each"):
        trained = trained_policy(opened, which.value)
        towns = trained.loaded.recipe.evaluation.seed + 1 if seed is None else seed
        place = world_for(trained.loaded, changes or (), world, layout.value if layout else None)
        moved = layout is Layout.SHUFFLED and world is None and trained.world.spec.map.layout == "fixed"
        home = world_for(trained.loaded, changes or ()) if moved else None
        found = measure(trained, place, episodes, towns, greedy=not sample, home=home)
    if as_json:
        about: dict[str, Any] = {
            "run": opened.name,
            "which": which.value,
            "env_steps": trained.env_steps,
            "world": place.name,
            "layout": place.spec.map.layout,
            "seed": towns,
            "greedy": not sample,
        }
        print(json.dumps(about | {name: figures(lives) for name, lives in found.by_name().items()}, indent=2))
        return
    _print(found, trained, towns)


def _print(found: Measured, trained: TrainedPolicy, seed: int) -> None:
    console = out()
    world = found.trained.world
    console.print(f"{trained.run.name}, {trained.info['agent']} after {trained.env_steps:,} env_steps", markup=False)
    console.print(_lengths(found, f"{world.name}: {len(found.trained.length)} lives of each, seed {seed}"))
    console.print()
    console.print(_uses(found))
    console.print()
    for sentence in found.sentences():
        console.print(sentence, markup=False)


def _lengths(found: Measured, title: str) -> Table:
    from rich.table import Table

    from townlet.train.towns.measure import QUARTILES, figures

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("steps lived")
    headings = ("mean", "min", "25 %", "median", "75 %", "max", "to the limit", "work", "work/life")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, lives in found.by_name().items():
        told = figures(lives)
        lived = [f"{told[key]:.0f}" for key in ("mean", *QUARTILES)]
        shares = [share(told[key]) for key in ("survived", "works")]
        table.add_row(name, *lived, *shares, f"{told['work_per_life']:.1f}")
    return table


def _uses(found: Measured) -> Table:
    from rich.table import Table

    from townlet.train.towns.measure import uses_per_life

    uses = {name: uses_per_life(lives) for name, lives in found.by_name().items()}
    table = Table(title="uses per life", title_justify="left", box=None, pad_edge=False)
    table.add_column("place")
    for name in uses:
        table.add_column(name, justify="right", no_wrap=True)
    for place in sorted(uses["trained"], key=lambda place: -uses["trained"][place]):
        if any(counts[place] >= SELDOM for counts in uses.values()):
            table.add_row(place, *(f"{counts[place]:.1f}" for counts in uses.values()))
    return table
