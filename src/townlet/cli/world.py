"""`townlet world`: inspect, check and create worlds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from townlet.cli.console import echo, echo_err, out
from townlet.cli.help import CommandGroup
from townlet.cli.options import WorldName, WorldOverrides

if TYPE_CHECKING:
    from townlet.town.world.tables import World

app = CommandGroup("Inspect, check and create worlds.")


def _load(name: str, overrides: list[str] | None) -> World:
    from townlet.town.world.load import load

    return load(name, overrides or ())


@app.with_examples("townlet world list", name="list")
def list_() -> None:
    """List the shipped worlds."""
    from townlet.town.world.report import world_list

    out().print(world_list())


@app.with_examples("townlet world check my-town.yaml", "townlet world check town meters.energy.decay=.02")
def check(name: WorldName, overrides: WorldOverrides = None) -> None:
    """Report the errors of a world, or how long built-in players survive."""
    from townlet.town.feasibility import assess, feasibility_report

    world = _load(name, overrides)
    echo_err(*(f"warning: {warning}" for warning in world.warnings), style="yellow")
    feasibility = assess(world)
    out().print(feasibility_report(feasibility))
    if not feasibility.livable:
        fix = "reduce a decay, a cascade or a price, or lower max_steps (a trained agent may survive anyway)"
        echo_err(f"warning: no built-in player survives until max_steps; {fix}", style="yellow")
    out().print(f"{world.name} is a valid world.", style="green", markup=False)


@app.with_examples("townlet world show town", "townlet world show town clock.temporal=true")
def show(name: WorldName, overrides: WorldOverrides = None) -> None:
    """Print meters, affordances and other settings as tables."""
    from townlet.town.world.report import world_tables

    out().print(world_tables(_load(name, overrides)))


@app.with_examples("townlet world explain town energy", "townlet world explain town-l3 mood")
def explain(
    name: WorldName,
    meter: Annotated[str, typer.Argument(metavar="METER", help="Meter to explain.")],
    overrides: WorldOverrides = None,
) -> None:
    """List everything that changes one meter."""
    from townlet.town.world.report import meter_table

    out().print(meter_table(_load(name, overrides), meter))


@app.with_examples("townlet world new my-town", "townlet world new night-town --from town-l3 --to worlds")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new world.")],
    parent: Annotated[str, typer.Option("--from", metavar="WORLD", help="World to extend.")] = "town",
    folder: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Folder to write it to.")] = Path(),
) -> None:
    """Create a world as a short YAML file that extends another.

    Existing files are never overwritten.
    """
    from townlet.town.world.template import new_world

    file = new_world(name, parent, folder)
    echo(f"Wrote {file}. Edit it, then run: townlet world check {file}")


@app.with_examples("townlet world schema > world.schema.json")
def schema() -> None:
    """Print the JSON Schema of world files.

    Editors use it for completion and validation.
    """
    from townlet.town.world.template import world_schema

    # Not with the console, which would wrap lines and add colors.
    print(json.dumps(world_schema(), indent=2, ensure_ascii=False))
