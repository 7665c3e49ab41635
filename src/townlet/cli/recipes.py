"""`townlet recipes`: what can be trained, and what a recipe says when all is filled in."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from townlet.cli.console import out
from townlet.errors import TownletError


def recipes(
    search: Annotated[
        str, typer.Argument(metavar="[SEARCH]", help="Words to look for; or ENV:VARIANT or a file, to see all of it.")
    ] = "",
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes to that recipe, as in agent.lr=1e-3")
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of recipe files, for editors.")
    ] = False,
) -> None:
    """List what can be trained and what is known of its result, or show one recipe with the origin of every value."""
    if schema:
        from townlet.train.load import schema as of_files

        # Plain print: the schema is for programs, so neither colours nor wrapped lines.
        print(json.dumps(of_files(), indent=2, ensure_ascii=False))
    elif ":" in search or os.path.isfile(search):
        from townlet.train.load import load
        from townlet.train.resolved import resolved_text

        out().print(resolved_text(load(search, overrides or ())), markup=False, soft_wrap=True, end="")
    elif overrides:
        raise TownletError("changes need one recipe", "write it as ENV:VARIANT, like town:ppo")
    else:
        from townlet.train.listing import lines, table

        out().print(table(lines(search)))
