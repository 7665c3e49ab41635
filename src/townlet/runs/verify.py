"""Integrity check of a run: every file with a checksum, and every reference between files.

`townlet decide verify` uses the same `IntegrityReport`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from townlet.errors import TownletError
from townlet.runs import checkpoint, disk, integrity, provenance
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.database import TABLES, connect, sqlite_errors
from townlet.runs.folder import MAX_META_BYTES, SEAL_KEYS, Run, validate_meta
from townlet.runs.serialization import parse_json

INTACT, DAMAGED, MISSING = "intact", "damaged", "missing"
UNPROTECTED: Final = "unprotected"  # without a checksum
NOTED: Final = "noted"  # informative and harmless
# Files without a checksum, and why a change in them affects neither resumed weights nor reported metrics.
NOT_CHECKED: Final = {
    "tune.yaml": "edited by hand while training; every change is recorded in the metrics",
    "log.txt": "a human-readable log; never read back",
    "tensorboard": "a copy of the metrics for TensorBoard; never read back",
    "metrics.csv": "a copy of the metrics; a resume and `townlet runs export` write it again",
    "videos": "videos of episodes; never read back",
    "live.feed": "messages for viewers during training; each has its own checksum",
    "lock": "names the writing process; the lock itself is on the folder",
    "README.md": "the card of a published agent, which may be edited",
    "replay.mp4": "a video; never read back",
}
CHECKED: Final = ("checkpoints", "snapshots", "worlds", "metrics.db-wal", "metrics.db-shm", "report.sha256")


@dataclass(frozen=True)
class CheckedItem:
    """One checked item, usually a file."""

    name: str
    state: str  # one of the constants above
    text: str = ""


@dataclass
class IntegrityReport:
    """Results of all checks in one folder."""

    subject: str  # name of the run, or folder of the service
    items: list[CheckedItem] = field(default_factory=list)
    usable: list[str] = field(default_factory=list)  # sentences about what still works

    @property
    def intact(self) -> bool:
        """Whether nothing is damaged or missing."""
        return all(item.state not in (DAMAGED, MISSING) for item in self.items)

    def add(self, name: str, problem: str = "", text: str = "") -> bool:
        """Add the result of a check: damaged if there is a problem. Returns whether it is intact."""
        self.items.append(CheckedItem(name, DAMAGED if problem else INTACT, problem or text))
        return not problem

    def note(self, name: str, text: str, state: str = NOTED) -> None:
        self.items.append(CheckedItem(name, state, text))

    def as_json(self) -> dict[str, Any]:
        items = [vars(item) for item in self.items]
        return {"subject": self.subject, "intact": self.intact, "items": items, "usable": self.usable}


def verify(run: Run) -> IntegrityReport:
    """Check every file of a run that has a checksum, and the references between its files."""
    report = IntegrityReport(run.name)
    known = _meta(run, report)
    unchanged = _files(run, report, known)
    saved = _checkpoints(run, report)
    damage = _metrics(run, report, known, saved)
    _report(run, report)
    checked = {item.name.partition("/")[0] for item in report.items}
    for path in sorted(run.path.iterdir()):
        if path.name not in checked and path.name not in CHECKED:
            report.note(path.name, NOT_CHECKED.get(path.name, "not a file that Townlet reads"), UNPROTECTED)
    newest = checkpoint.paths(run.checkpoints)[-1:]
    if known.get("published"):
        usable = "It is a published agent: it can be played and evaluated, not resumed."
    elif not saved and newest:
        usable = "No checkpoint can be used."
    elif not saved:
        usable = "There is no checkpoint yet: a resume starts from the beginning."
    elif not known or not unchanged:
        usable = "The run cannot be resumed or played until meta.json, resolved.yaml and the worlds are restored."
    else:
        after_move = "" if saved[-1].path in newest else ", once the damaged checkpoints after it are moved away"
        new_metrics = ", with new metrics once metrics.db is moved away" if damage else ""
        usable = f"Resume, play and eval work from step {saved[-1].env_steps:,}{after_move}{new_metrics}."
    report.usable.append(usable)
    if damage:
        begins = [part.begin for part in damage if part.begin is not None]
        intact = f"; records up to env_steps {min(begins):,} are intact" if begins else ""
        report.usable.append(f"No command reports metrics of a damaged table{intact}.")
    return report


def reseal(run: Run) -> None:
    """Accept meta.json and the files that it lists as they are now, and rewrite their checksums.

    Checkpoints keep the recipe hash and the run id that they were written with.
    """
    content = parse_json(disk.read_bounded(run.meta_file, MAX_META_BYTES), run.meta_file)
    known = {key: value for key, value in validate_meta(content, run.meta_file).items() if key not in SEAL_KEYS}
    names = [name for name in known.get("files", {}) if (run.path / name).is_file()]
    run.write_meta(known | {"files": provenance.checksums(run.path, names)})


def _meta(run: Run, report: IntegrityReport) -> Mapping[str, Any]:
    try:
        known = run.meta()
    except TownletError as error:
        report.add("meta.json", _message(error))
        return {}
    if "run_id" in known:
        report.add("meta.json")
    else:
        report.note("meta.json", "written by an older release, without a checksum", UNPROTECTED)
    return known


def _files(run: Run, report: IntegrityReport, known: Mapping[str, Any]) -> bool:
    """Check the files with a checksum in meta.json; returns whether settings and worlds are unchanged."""
    unchanged = True
    changed = provenance.changed_files(run, known)
    for name in dict.fromkeys([*known.get("files", {}), *changed]):
        if name not in changed:
            report.add(name)
            continue
        problem = "it was changed" if (run.path / name).exists() else "it is missing"
        harmless = name == run.recipe_file.name  # resolved.yaml has its settings
        if name == run.resolved_file.name:
            try:
                provenance.require_settings(run)
                problem, harmless = "only comments or layout were changed; its settings are as they were", True
            except TownletError as error:
                problem = _message(error)
        report.add(name, problem)
        unchanged = unchanged and harmless
    if not known.get("files"):
        for path in (run.recipe_file, run.resolved_file):
            if path.exists():
                report.note(path.name, "written by an older release, without a checksum", UNPROTECTED)
    return unchanged


def _checkpoints(run: Run, report: IntegrityReport) -> list[Checkpoint]:
    """Check every byte of every checkpoint and snapshot, and that it belongs to this run.

    Returns the intact checkpoints, oldest first.
    """
    intact = []
    for path in [*checkpoint.paths(run.checkpoints), *checkpoint.paths(run.snapshots)]:
        name = f"{path.parent.name}/{path.name}"
        try:
            verified = checkpoint.verify(path)
            if not verified.info.get("published") and "run_id" in verified.info:
                provenance.require_own(run, verified)
        except TownletError as error:
            if path.is_dir():  # otherwise the running training has just pruned it
                report.add(name, _message(error))
            continue
        report.add(name)
        if path.parent == run.checkpoints:
            intact.append(verified)
    return intact


def _metrics(
    run: Run, report: IntegrityReport, known: Mapping[str, Any], saved: list[Checkpoint]
) -> list[integrity.Damage]:
    """Check the database file, every group of rows, and the digests stored in checkpoints."""
    path, name = run.metrics_file, "metrics.db"
    if not path.exists():
        if not known.get("published") and any(any(verified.info.get("metrics", {}).values()) for verified in saved):
            report.note(name, "`townlet train --resume` starts new metrics", MISSING)
        return []
    try:
        with sqlite_errors(path):
            connection = connect(path, read_only=True)
            try:
                connection.execute("BEGIN")
                groups = {table: integrity.groups(connection, table) for table in TABLES}
                damage = [d for table in TABLES for d in integrity.find_damage(connection, table, groups[table])]
                fault = integrity.structural_fault(connection)
                digests = integrity.digests(connection)
            finally:
                connection.close()
    except TownletError as error:
        report.add(name, _message(error))
        return [integrity.Damage("", _message(error))]
    damage += [integrity.Damage("", fault)] if fault and not damage else []
    for part in damage:
        report.add(name, str(part))
    for verified in saved[-1:]:  # earlier checkpoints may refer to metrics that were moved away
        if not damage and verified.info.get("metrics_digest", integrity.START.hex()) not in digests:
            damage.append(integrity.Damage("", f"they do not match the checkpoint {verified.name}"))
            report.add(name, damage[-1].why)
    if not damage:
        report.add(name)
    return damage


def _report(run: Run, report: IntegrityReport) -> None:
    """Check the report against the checksums that were written with it."""
    if not run.report_seal.exists():
        for path in (run.report_md, run.report_html):
            if path.exists():
                report.note(path.name, "written without a checksum", UNPROTECTED)
        return
    sums = provenance.read_checksums(run.report_seal)
    if provenance.format_checksums(sums) != run.report_seal.read_bytes():
        report.add(run.report_seal.name, "it was changed")
    for name, wanted in sums.items():
        same = provenance.sha256_or_none(run.path, name) == wanted
        report.add(name, "" if same else "it was changed or removed; `townlet train --resume` writes the report again")


def _message(error: TownletError) -> str:
    return error.diagnostics[0].what
