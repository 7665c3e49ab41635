"""`townlet decide verify` and `townlet decide backup`: check and copy the stored files of a service."""

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
    """Add both commands to `townlet decide`."""
    app.command(epilog=examples("townlet decide verify decisions", "townlet decide verify night --json"))(verify)
    app.command(epilog=examples("townlet decide backup decisions decisions-monday"))(backup)


def verify(folder: ServiceFolder, as_json: AsJson = False) -> None:
    """Check every checksum and reference in the files of a service.

    Exit code 0 means that everything is whole, 1 that something is damaged.
    """
    from townlet.decide.storage.verify import verify as verify_folder

    with err().status("checking"):
        found = verify_folder(folder)
    show_integrity(found, as_json)


def backup(
    folder: ServiceFolder,
    to: Annotated[Path, typer.Argument(metavar="TO", help="A new folder for the copy.")],
) -> None:
    """Make a consistent copy of a service, running or stopped.

    A service started from the copy has the state of the original at the last copied record.
    """
    from townlet.decide.storage.backup import backup as copy_folder

    with err().status("copying"):
        copied = copy_folder(folder, to)
    told = f"Copied to {to}: {copied.records:,} records, {copied.versions} versions, {copied.snapshots} snapshots."
    out().print(told, markup=False, soft_wrap=True)
