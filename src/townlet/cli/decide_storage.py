"""`townlet decide verify` and `townlet decide backup`: the stored files of a service, checked and copied."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from townlet.cli.console import err, examples, out
from townlet.cli.figures import show_integrity
from townlet.cli.options import AsJson
from townlet.cli.verbs import Verbs

ServiceFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a service, stopped or running.")]


def register(app: Verbs) -> None:
    """Add both verbs to `townlet decide`."""
    app.command(epilog=examples("townlet decide verify decisions", "townlet decide verify night --json"))(verify)
    app.command(epilog=examples("townlet decide backup decisions decisions-monday"))(backup)


def verify(folder: ServiceFolder, as_json: AsJson = False) -> None:
    """Check the stored files of a service: every checksum, and what they say about each other.

    Exit code 0 means that all of it is whole, 1 that something is damaged.
    """
    from townlet.decide.verify import verify as verify_folder

    with err().status("checking"):
        found = verify_folder(folder)
    show_integrity(found, as_json)


def backup(
    folder: ServiceFolder,
    to: Annotated[Path, typer.Argument(metavar="TO", help="A new folder for the copy.")],
) -> None:
    """Copy a service consistently, while it runs or not.

    A service that starts from the copy is in the state that the original had at the last copied record.
    """
    from townlet.decide.backup import backup as copy_folder

    with err().status("copying"):
        copied = copy_folder(folder, to)
    told = f"Copied to {to}: {copied.records:,} records, {copied.versions} versions, {copied.snapshots} snapshots."
    out().print(told, markup=False, soft_wrap=True)
