"""`townlet recipes`: list recipes, show one with all its values, or test them."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from townlet.cli.console import echo, echo_err, out
from townlet.cli.options import RecipeOverrides
from townlet.errors import TownletError


def recipes(
    search: Annotated[
        str,
        typer.Argument(metavar="SEARCH", help="Words to search for; or ENV:VARIANT or a file, to show that recipe."),
    ] = "",
    overrides: RecipeOverrides = None,
    keys: Annotated[bool, typer.Option("--keys", help="List the keys of recipes and their meaning.")] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Train each matching recipe briefly and report which ones work here.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of recipe files, for editors.")
    ] = False,
) -> None:
    """List the recipes, or show one with all its values.

    The list shows known results and required extras. A recipe, named as ENV:VARIANT or by its file, is shown with every
    value and its origin.
    """
    if schema:
        from townlet.recipes.load import recipe_json_schema

        # Not with the console, which would wrap lines and add colors.
        print(json.dumps(recipe_json_schema(), indent=2, ensure_ascii=False))
    elif keys:
        _print_keys(search)
    elif smoke:
        _print_smoke(search)
    elif ":" in search or os.path.isfile(search):
        from townlet.recipes.catalog import GENERIC_GYM
        from townlet.recipes.render import resolved_text
        from townlet.tasks.experiment import load_experiment
        from townlet.train.smoke_test import SMOKE_ENV

        if search.startswith(f"{GENERIC_GYM}:") and not overrides:
            echo_err(f"{search} is for any environment; here with env={SMOKE_ENV}.")
            overrides = [f"env={SMOKE_ENV}"]
        out().print(resolved_text(load_experiment(search, overrides or ())), markup=False, soft_wrap=True, end="")
    elif overrides:
        what = "KEY=VALUE needs a recipe, but none is named"
        raise TownletError(what, "name one as ENV:VARIANT; `townlet recipes` lists all")
    else:
        from townlet.recipes.catalog import FOLDER
        from townlet.recipes.render import list_recipes, recipe_table

        found = list_recipes(search)
        out().print(recipe_table(found))
        echo(
            f"\nThese are files in {FOLDER}. Name your own recipe by its path.",
            f"Show one:       townlet recipes {found[0].title}",
            "List all keys:  townlet recipes --keys",
        )


def _print_smoke(search: str) -> None:
    """Print a line for each tested recipe; exits with code 1 if one fails although its packages are installed."""
    from townlet.recipes.render import list_recipes
    from townlet.train.smoke_test import smoke_test

    counts = {"works": 0, "missing": 0, "fails": 0}
    found = list_recipes(search)
    width = max(len(recipe.title) for recipe in found)
    for result in smoke_test(found):
        failure = "missing" if result.missing else "fails"
        state = "works" if result.works else failure
        counts[state] += 1
        detail = f"{result.seconds:.1f} s" if result.works else result.reason
        echo(f"{result.title:<{width}}  {state:<7}  {detail}")
    parts = [f"{counts['works']} of {len(found)} work here"]
    parts += [f"{counts['missing']} need packages that are not installed"] if counts["missing"] else []
    parts += [f"{counts['fails']} fail"] if counts["fails"] else []
    echo(", ".join(parts) + ".")
    if counts["fails"]:
        raise typer.Exit(1)


def _print_keys(search: str) -> None:
    from rich.table import Table
    from rich.text import Text

    from townlet.recipes.render import key_sections

    console = out()
    for section in key_sections(search):
        console.print(Text.assemble("\n", (section.title, "bold"), f"  {section.about}"))
        table = Table.grid(padding=(0, 2, 0, 0))
        for name in ("key", "default", "meaning"):
            table.add_column(name, no_wrap=name == "key", overflow="fold")
        for key in section.keys:
            table.add_row(*map(Text, (key.path, key.default, key.description)))
        console.print(table)
