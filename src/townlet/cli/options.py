"""Arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

ROOT: Final = Path("runs")  # where runs lie unless somebody says otherwise


class Which(StrEnum):
    """Which checkpoint of a run."""

    BEST = "best"
    LAST = "last"


RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="A run: (the beginning of) its name, a path, latest, or ENV:VARIANT.")
]
Root = Annotated[Path, typer.Option("--root", metavar="FOLDER", help="Where runs lie.")]
WhichOne = Annotated[
    Which, typer.Option("--which", metavar="best|last", help="The best checkpoint of the run, or its last.")
]


def _permit(given: bool) -> None:
    """Recipes may run code from now on: only then is the part loaded that can."""
    if given:
        from townlet.config import user_code

        user_code.permit()


AllowCode = Annotated[
    bool,
    typer.Option("--allow-code", callback=_permit, help="Let recipes run the Python files they name. Read them first."),
]
Sample = Annotated[
    bool | None,
    typer.Option("--sample/--greedy", help="Draw actions, or take the likeliest; by default as the recipe measures."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

WorldName = Annotated[str, typer.Argument(metavar="WORLD", help="A shipped world or the path of a YAML file.")]
WorldChanges = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes to the world, as in max_steps=1000")
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="Read tokens from a YAML or JSON file: operator: …, viewer: …"),
]
NoToken = Annotated[
    bool, typer.Option("--no-token", help="Require no token: every user of this machine can then operate the server.")
]
NO_TOKEN: Final = "--no-token: every user of this machine can operate this server."
