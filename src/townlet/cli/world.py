"""`townlet world`: look at worlds, check them, and begin a new one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from townlet.cli.console import err, examples, out
from townlet.cli.help import CommandGroup
from townlet.cli.options import WorldChanges, WorldName

if TYPE_CHECKING:
    from townlet.town.world.tables import World

app = CommandGroup("Look at worlds, check them, and begin one of your own.")


def _load(name: str, overrides: list[str] | None) -> World:
    from townlet.town.world.load import load

    return load(name, overrides or ())


def _warn(world: World) -> None:
    for warning in world.warnings:
        err().print(f"warning: {warning}", style="yellow", markup=False, soft_wrap=True)


@app.command("list", epilog=examples("townlet world list"))
def list_() -> None:
    """List the shipped worlds."""
    from townlet.town.world.report import world_list

    out().print(world_list())


@app.command(epilog=examples("townlet world check my-town.yaml", "townlet world check town meters.energy.decay=.02"))
def check(world: WorldName, overrides: WorldChanges = None) -> None:
    """Say all that is wrong with a world, or how long one lives there."""
    from townlet.town.feasibility import assess, feasibility_report

    compiled = _load(world, overrides)
    _warn(compiled)
    console, found = out(), assess(compiled)
    console.print(feasibility_report(found))
    if not found.livable:
        fix = "ease a decay, a cascade or a price, or lower max_steps; a cleverer agent may still find a way"
        err().print(f"warning: nobody we know lives to max_steps here; {fix}", style="yellow", soft_wrap=True)
    console.print(f"{compiled.name} is a valid world.", style="green", markup=False)


@app.command(epilog=examples("townlet world show town", "townlet world show town clock.temporal=true"))
def show(world: WorldName, overrides: WorldChanges = None) -> None:
    """Print the tables of a world for a person."""
    from townlet.town.world.report import world_tables

    out().print(world_tables(_load(world, overrides)))


@app.command(epilog=examples("townlet world explain town energy", "townlet world explain town-l3 mood"))
def explain(
    world: WorldName,
    meter: Annotated[str, typer.Argument(metavar="METER", help="The meter to explain.")],
    overrides: WorldChanges = None,
) -> None:
    """Tell everything that moves one meter."""
    from townlet.town.world.report import meter_table

    out().print(meter_table(_load(world, overrides), meter))


@app.command(epilog=examples("townlet world new my-town", "townlet world new night-town --from town-l3 --to worlds"))
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new world.")],
    parent: Annotated[str, typer.Option("--from", metavar="WORLD", help="The world to change.")] = "town",
    folder: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where to write it.")] = Path(),
) -> None:
    """Begin a world of your own as a short YAML file.

    Nothing is ever overwritten.
    """
    from townlet.town.world.template import new_world

    file = new_world(name, parent, folder)
    out().print(f"Wrote {file}. Edit it, then: townlet world check {file}", markup=False, soft_wrap=True)


@app.command(epilog=examples("townlet world schema > world.schema.json"))
def schema() -> None:
    """Print the JSON Schema of world files.

    Editors that know it complete and check what you write.
    """
    from townlet.town.world.template import world_schema

    # Plain print: the schema is for programs, so neither colours nor wrapped lines.
    print(json.dumps(world_schema(), indent=2, ensure_ascii=False))
