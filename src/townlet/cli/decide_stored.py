"""`townlet decide versions`, `replay`, `verify`, `backup` and `copy`: what a service has stored."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from townlet.cli.console import echo, echo_err, err, out, print_integrity
from townlet.cli.decide_options import FOLDER, AllowCode, Folder, LogDomain, ServiceFolder, StorageUrl, app
from townlet.cli.options import AsJson

VERDICTS: Final = {
    "promote": "promoted", "roll_back": "restored by a rollback", "pin": "pinned", "unpin": "unpinned", "hold": "held",
    "refuse": "refused", "noted": "not applied", "gate_only": "gate only", "gate_and_network": "network again",
}  # fmt: skip


@app.with_examples(
    "townlet decide versions",
    "townlet decide versions --folder night --json",
    "townlet decide versions --storage postgresql://townlet@db/townlet",
)
def versions(folder: Folder = FOLDER, storage: StorageUrl = None, as_json: AsJson = False) -> None:
    """List the policy versions: which ones served when, and why.

    Consecutive changes of one kind share a line; --json prints the newest changes one by one.
    """
    from townlet.decide.stats import summarize_history
    from townlet.decide.storage.stored_service import open_stored

    with closing(open_stored(storage or folder)) as stored:
        summary, changes = stored.overview(), stored.changes()
    if as_json:
        out().print_json(json.dumps(summary))
        return
    for group in summarize_history(changes):
        at = datetime.fromtimestamp(group["at"]).strftime("%Y-%m-%d %H:%M:%S")
        first, last, times = group["first"], group["last"], group["times"]
        which = f"version {last}" if first == last else f"versions {first} to {last}"
        repeated = f", {times:,} times" if times > 1 else ""
        echo(f"{at}  {which}: {VERDICTS.get(group['verdict'], group['verdict'])}{repeated}: {group['reason']}")
    numbers = [version["version"] for version in summary["versions"]]
    kept = f"version {numbers[0]}" if numbers else "none"
    if len(numbers) > 1:
        kept = f"{len(numbers)} versions, {numbers[0]} to {numbers[-1]}"
    pinned = " Pinned." if summary["pinned"] is not None else ""
    gate_only = " The gate decides alone." if summary["gate_only"] else ""
    echo(f"Stored: {kept}. Serving: {summary['serving'] or 'none'}.{pinned}{gate_only}")
    if summary["fault"]:
        echo_err(f"The serving log cannot be trusted: {summary['fault']}. After a restart the gate decides alone.")


@app.with_examples(
    "townlet decide replay",
    "townlet decide replay --folder night --json",
    "townlet decide replay my-game.py --allow-code",
    "townlet decide replay --storage postgresql://townlet@db/townlet",
)
def replay(
    domain: LogDomain = None, folder: Folder = FOLDER, storage: StorageUrl = None, as_json: AsJson = False,
    allow_code: AllowCode = False,
) -> None:  # fmt: skip
    """Retrain from the log and compare every version with the stored one.

    The same log gives bit-identical weights; a difference means that something stored is damaged or was changed.
    """
    from townlet.decide.storage.stored_service import open_stored, replay_stored

    _load_domain(domain)
    results: list[dict[str, Any]] = []
    with closing(open_stored(storage or folder)) as stored, err().status("reading the log") as status:
        for checked in replay_stored(stored):
            results.append(checked._asdict() | {"same": checked.same})
            status.update(f"{len(results):,} versions, now at step {checked.step:,}")
            if not (as_json or checked.same):
                digests = f"replayed {checked.replayed[:12]}, stored {checked.digest[:12]}"
                echo(f"version {checked.version}, step {checked.step}: DIFFERENT, {digests}")
    same = sum(result["same"] for result in results)
    if as_json:
        out().print_json(json.dumps(results))
    else:
        echo(f"{same} of {len(results)} versions are identical.")
    if same < len(results):
        raise typer.Exit(1)


@app.with_examples(
    "townlet decide verify decisions",
    "townlet decide verify night --json",
    "townlet decide verify decisions my-game.py --allow-code",
    "townlet decide verify --storage postgresql://townlet@db/townlet",
)
def verify(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of a running or stopped service; not with --storage.")
    ] = FOLDER,
    domain: LogDomain = None,
    storage: StorageUrl = None,
    as_json: AsJson = False,
    allow_code: AllowCode = False,
) -> None:
    """Check every checksum and reference in what a service has stored.

    Exits with code 0 if everything is intact, 1 if something is damaged, 2 if there is nothing to check.
    """
    from townlet.decide.storage.stored_service import open_stored

    if storage and folder != FOLDER:  # there is no folder, so the only argument is the domain
        domain = domain or str(folder)
    _load_domain(domain)
    with closing(open_stored(storage or folder)) as stored, err().status("checking"):
        report = stored.verify()
    print_integrity(report, as_json)


def _load_domain(name: str | None) -> None:
    """Load the domain that a command names, so that it is found by the name in a log."""
    from townlet.decide.domains import DOMAINS

    if name is not None:
        DOMAINS[name]


@app.with_examples("townlet decide backup decisions decisions-monday")
def backup(
    folder: ServiceFolder, to: Annotated[Path, typer.Argument(metavar="TO", help="New folder for the copy.")]
) -> None:
    """Make a consistent copy of a running or stopped service.

    A service started from the copy has the state that the original had at the last copied record.
    """
    from townlet.decide.storage.backup import backup as copy_folder

    with err().status("copying"):
        copied = copy_folder(folder, to)
    echo(f"Copied to {to}: {copied.records:,} records, {copied.versions} versions, {copied.snapshots} snapshots.")


@app.with_examples(
    "townlet decide copy decisions postgresql://townlet@db/townlet",
    "townlet decide copy postgresql://townlet@db/townlet decisions",
    "townlet decide copy levels levels-copy levels.py --allow-code",
)
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Folder or database of a service that is stopped.")],
    to: Annotated[str, typer.Argument(metavar="TO", help="New or empty folder, or empty database: postgresql://…")],
    domain: LogDomain = None,
    allow_code: AllowCode = False,
) -> None:
    """Copy a service to another storage, where it continues.

    The copy appears complete or not at all. FROM stays as it is; serve only one of the two from now on.
    """
    from townlet.decide.storage.copy import copy_service

    _load_domain(domain)
    with err().status("copying"):
        copied = copy_service(source, to)
    echo(f"Copied: {copied.records:,} records, {copied.versions} versions, {copied.snapshots} snapshots.")
