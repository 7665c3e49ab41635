"""`townlet eval`: what a trained agent achieves beside a random one, in episodes it never saw."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from townlet.cli.console import err, out
from townlet.cli.options import (
    ROOT,
    AllowCode,
    AsJson,
    Checkpoint,
    CheckpointChoice,
    Root,
    RunName,
    Sample,
    WorldChanges,
    open_run,
    trained_policy,
)
from townlet.errors import TownletError

if TYPE_CHECKING:
    from rich.table import Table

    from townlet.tasks.eval_tables import Measured, Sheet
    from townlet.train.policies import TrainedPolicy


class LayoutChoice(StrEnum):
    """Where places stand."""

    FIXED = "fixed"
    SHUFFLED = "shuffled"


def evaluate(
    run: RunName,
    changes: WorldChanges = None,
    episodes: Annotated[int, typer.Option(min=1, max=100_000, help="Episodes of each; more give a surer mean.")] = 100,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Which episodes; by default others than the run was evaluated on.")
    ] = None,
    layout: Annotated[
        LayoutChoice | None,
        typer.Option(
            metavar="fixed|shuffled", help="Of a town: shuffled moves the places. Did it learn the town, or its map?"
        ),
    ] = None,
    world: Annotated[
        str | None, typer.Option(metavar="WORLD", help="Another world with the same observation and actions.")
    ] = None,
    which: Checkpoint = CheckpointChoice.BEST,
    sample: Sample = None,
    as_json: AsJson = False,
    allow_code: AllowCode = False,
    root: Root = ROOT,
) -> None:
    """Measure a trained agent.

    It plays episodes that it never saw, beside a random agent; in towns also beside one that knows every rule.
    """
    from townlet.tasks.eval_tables import acts_greedily

    opened = open_run(run, root)
    with err().status(f"{episodes} episodes each"):
        trained = trained_policy(opened, which.value)
        seeds = trained.loaded.recipe.evaluation.seed + 1 if seed is None else seed
        greedy = acts_greedily(trained, sample)
        if trained.loaded.recipe.gym is None:
            where = _Town(tuple(changes or ()), world, layout.value if layout else None)
            about, found = where.measure(trained, episodes, seeds, greedy)
        else:
            _refuse({"changes of a world": changes, "--world": world, "--layout": layout}, trained)
            about, found = _elsewhere(trained, episodes, seeds, greedy)
    if as_json:
        told: dict[str, Any] = {
            "run": opened.name,
            "which": which.value,
            "env_steps": trained.env_steps,
            **about,
            "seed": seeds,
            "greedy": greedy,
        }
        print(json.dumps(told | dict(found.figures()), indent=2))
        return
    console = out()
    console.print(f"{opened.name}, {trained.info['agent']} after {trained.env_steps:,} env_steps", markup=False)
    for sheet in found.sheets():
        console.print(_table(sheet))
        console.print()
    for sentence in found.sentences():
        console.print(sentence, markup=False)


class _Town(NamedTuple):
    """Where a town's agent is measured."""

    changes: tuple[str, ...]
    world: str | None
    layout: str | None

    def measure(
        self, trained: TrainedPolicy, episodes: int, seed: int, greedy: bool
    ) -> tuple[dict[str, Any], Measured]:
        from townlet.tasks.town_eval import measure, world_for

        place = world_for(trained.loaded, self.changes, self.world, self.layout)
        moved = self.layout == "shuffled" and self.world is None and trained.world.spec.map.layout == "fixed"
        home = world_for(trained.loaded, self.changes) if moved else None
        about = {"world": place.name, "layout": place.spec.map.layout}
        return about, measure(trained, place, episodes, seed, greedy=greedy, home=home)


def _elsewhere(trained: TrainedPolicy, episodes: int, seed: int, greedy: bool) -> tuple[dict[str, Any], Measured]:
    from townlet.tasks.gym import GymTask
    from townlet.tasks.gym_eval import measure

    task = trained.loaded.task
    assert isinstance(task, GymTask)
    return {"env": task.name}, measure(task, trained, episodes, seed, greedy=greedy)


def _refuse(given: dict[str, Any], trained: TrainedPolicy) -> None:
    """Refuse what only towns can follow."""
    if odd := [name for name, value in given.items() if value]:
        what = f"{odd[0]}: {trained.loaded.task.name} is not a town"
        raise TownletError(what, "leave it out; an agent is measured in the environment it was trained in")


def _table(sheet: Sheet) -> Table:
    from rich.table import Table

    table = Table(title=sheet.title, title_justify="left", box=None, pad_edge=False)
    table.add_column(sheet.headings[0])
    for heading in sheet.headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in sheet.rows:
        table.add_row(*row)
    return table
