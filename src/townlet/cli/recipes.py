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
        str, typer.Argument(metavar="SEARCH", help="Words to look for; or ENV:VARIANT or a file, to see all of it.")
    ] = "",
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes to that recipe, as in agent.lr=1e-3")
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="List the keys that a recipe may have, and what each does.")
    ] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Train each of them for a moment and say which work on this machine.")
    ] = False,
    recipe_json_schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of recipe files, for editors.")
    ] = False,
) -> None:
    """List what can be trained, or show one recipe whole.

    The list says what is known of each result, and which extra it needs. One recipe, named as ENV:VARIANT or as a
    file, is shown with every value and where it comes from.
    """
    if recipe_json_schema:
        from townlet.recipes.load import recipe_json_schema as of_files

        # Plain print: the schema is for programs, so neither colours nor wrapped lines.
        print(json.dumps(of_files(), indent=2, ensure_ascii=False))
    elif keys:
        _print_keys(search)
    elif smoke:
        _print_smoke(search)
    elif ":" in search or os.path.isfile(search):
        from townlet.recipes.render import resolved_text
        from townlet.tasks.experiment import load_experiment

        out().print(resolved_text(load_experiment(search, overrides or ())), markup=False, soft_wrap=True, end="")
    elif overrides:
        raise TownletError("changes need one recipe", "write it as ENV:VARIANT; `townlet recipes` lists all")
    else:
        _print_list(search)


def _print_list(search: str) -> None:
    from townlet.recipes.catalogue import FOLDER
    from townlet.recipes.render import list_recipes, recipe_table

    console, found = out(), list_recipes(search)
    console.print(recipe_table(found))
    console.print(f"\nThese are files in {FOLDER}; one of your own is named by its path.", markup=False, soft_wrap=True)
    console.print(f"One of them whole:          townlet recipes {found[0].title}")
    console.print("All keys and what they do:  townlet recipes --keys")


def _print_smoke(search: str) -> None:
    """A line for each as soon as it is known; fails where one fails that nothing excuses."""
    from townlet.recipes.render import list_recipes
    from townlet.train.smoke import smoke

    console, counts = out(), {"works": 0, "missing": 0, "fails": 0}
    found = list_recipes(search)
    wide = max(len(line.title) for line in found)
    for tried in smoke(found):
        state = "works" if tried.works else "missing" if tried.excused else "fails"
        counts[state] += 1
        said = f"{tried.seconds:.1f} s" if tried.works else tried.said
        console.print(f"{tried.title:<{wide}}  {state:<7}  {said}", markup=False, soft_wrap=True)
    told = [f"{counts['works']} of {len(found)} work here"]
    told += [f"{counts['missing']} need what is not installed"] if counts["missing"] else []
    told += [f"{counts['fails']} fail"] if counts["fails"] else []
    console.print(", ".join(told) + ".")
    if counts["fails"]:
        raise typer.Exit(1)


def _print_keys(search: str) -> None:
    from rich.table import Table
    from rich.text import Text

    from townlet.recipes.render import key_sections

    console = out()
    for section in key_sections(search):
        console.print(Text.assemble("\n", (section.title, "bold"), f"  {section.about}"))
        recipe_table = Table.grid(padding=(0, 2, 0, 0))
        for name in ("key", "default", "meaning"):
            recipe_table.add_column(name, no_wrap=name == "key", overflow="fold")
        for key in section.keys:
            recipe_table.add_row(*map(Text, (key.path, key.default, key.description)))
        console.print(recipe_table)
