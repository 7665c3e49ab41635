"""`townlet decide`: the group of its commands, and the options that several of them have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from townlet.cli.help import CommandGroup
from townlet.cli.options import permit_code
from townlet.decide.storage import URL_SCHEMES
from townlet.errors import TownletError

FOLDER: Final = Path("decisions")


def require_url(value: str | None) -> str | None:
    """Refuse a value that is not a URL of a database, without showing it: it may contain a password."""
    if value is not None and not value.startswith(URL_SCHEMES):
        raise TownletError("--storage is not a URL of PostgreSQL", "write postgresql://user@host/database")
    return value


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
    str | None,
    typer.Option(
        "--storage", metavar="URL", help="Database of the service, instead of a folder.", callback=require_url
    ),
]
