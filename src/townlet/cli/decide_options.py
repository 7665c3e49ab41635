"""`townlet decide`: the group of its commands, and the options that several of them have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from townlet.cli.help import CommandGroup
from townlet.cli.options import permit_code

FOLDER: Final = Path("decisions")

app = CommandGroup("Serve decisions to live games and learn from their outcomes.")

Folder = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the service: its log and policy versions.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="Read tokens from a YAML or JSON file with the keys game, operator and viewer.",
    ),
]
ServiceFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a running or stopped service.")]
LogDomain = Annotated[
    str | None, typer.Argument(metavar="DOMAIN", help="The file of your own domain, if it made the decisions.")
]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code", callback=permit_code, help="Allow the Python file of your own domain to run. Review it first."
    ),
]
StorageUrl = Annotated[
    str | None, typer.Option("--storage", metavar="URL", help="Database of the service, instead of a folder.")
]
