"""An integrity check of a run: every file with a checksum, and every promise between files, in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from townlet.errors import TownletError
from townlet.runs import checkpoint, disk, integrity, meta, seal
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.database import connect, in_words
from townlet.runs.folder import MAX_META, Run
from townlet.runs.schema import TABLES
from townlet.runs.strict_json import parse

# What has no checksum, and why a change there alters neither a resumed weight nor a figure that Townlet reports.
UNPROTECTED: Final = {
    "tune.yaml": "edited by hand while training; every change is recorded in the metrics",
    "log.txt": "a log for people; never read back",
    "tensorboard": "a copy of the metrics for TensorBoard; never read back",
    "metrics.csv": "an export of the metrics; `townlet runs export` writes it again",
    "videos": "pictures; never read back",
    "live.feed": "frames for viewers while training; each has a checksum of its own",
    "lock": "a note of the process that writes; the lock is on the folder",
    "README.md": "the card of a published agent, edited by people",
    "replay.mp4": "a picture; never read back",
}
CHECKED: Final = ("checkpoints", "worlds", "metrics.db-wal", "metrics.db-shm", "report.sha256")


@dataclass(frozen=True)
class Item:
    """One thing that was checked: `state` is whole, damaged, unprotected or missing."""

    name: str
    state: str
    text: str = ""


@dataclass
class Verified:
    """The result for one run: what is whole, what is damaged, and what can still be used."""

    run: Run
    items: list[Item] = field(default_factory=list)
    usable: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged or missing."""
        return all(item.state in ("whole", "unprotected") for item in self.items)

    def add(self, name: str, problem: str = "", text: str = "") -> bool:
        """Note what was found; whether it is whole."""
        self.items.append(Item(name, "damaged" if problem else "whole", problem or text))
        return not problem

    def as_json(self) -> dict[str, Any]:
        """All of it for programs."""
        return {
            "run": self.run.name,
            "whole": self.whole,
            "items": [vars(i) for i in self.items],
            "usable": self.usable,
        }


def verify(run: Run) -> Verified:
    """Check every file of a run that has a checksum, and what its files promise of each other."""
    found = Verified(run)
    known = _meta(found)
    sealed = _files(found, known)
    saved = _checkpoints(found, known)
    measured = _metrics(found, known, saved)
    _report(found)
    _unprotected(found)
    _usable(found, known, sealed, saved, measured)
    return found


def reseal(run: Run) -> None:
    """Accept meta.json and the files that it lists as they are now, and write their checksums anew.

    Checkpoints keep the recipe hash and the run id that they were written with.
    """
    text = parse(disk.read_bounded(run.meta_file, MAX_META), run.meta_file)
    known = {key: value for key, value in meta.checked(text, run.meta_file).items() if key not in meta.SEAL}
    names = [name for name in known.get("files", {}) if (run.path / name).is_file()]
    run.write_meta(known | {"files": seal.checksums(run.path, names)})


def _meta(found: Verified) -> Mapping[str, Any]:
    try:
        known = found.run.meta()
    except TownletError as error:
        found.add("meta.json", _said(error))
        return {}
    if "run_id" in known:
        found.add("meta.json")
    else:
        found.items.append(Item("meta.json", "unprotected", "written by an older release, without a checksum"))
    return known


def _files(found: Verified, known: Mapping[str, Any]) -> bool:
    """The files whose checksums are in meta.json, and the settings in resolved.yaml."""
    run, sealed = found.run, True
    odd = seal.changed_files(run, known)
    for name in dict.fromkeys([*known.get("files", {}), *odd]):
        if name not in odd:
            found.add(name)
            continue
        problem, same = "it was changed" if (run.path / name).exists() else "it is missing", False
        if name == run.resolved_file.name:
            problem = _settings(run) or "only comments or layout were changed; its settings are as they were"
            same = problem.startswith("only")
        found.add(name, problem)
        sealed = sealed and (same or name == run.recipe_file.name)
    if not known.get("files"):
        for path in (run.recipe_file, run.resolved_file):
            if path.exists():
                found.items.append(Item(path.name, "unprotected", "written by an older release, without a checksum"))
    return sealed


def _settings(run: Run) -> str:
    """What is wrong with the settings in resolved.yaml."""
    try:
        seal.require_settings(run)
    except TownletError as error:
        return _said(error)
    return ""


def _checkpoints(found: Verified, known: Mapping[str, Any]) -> list[Checkpoint]:
    """Every byte of every checkpoint, and that it belongs to this run; those that are whole, oldest first."""
    whole = []
    for path in checkpoint.listing(found.run.checkpoints):
        name = f"checkpoints/{path.name}"
        try:
            one = checkpoint.verify(path)
            if not one.info.get("published") and "run_id" in one.info:
                seal.require_own(found.run, one)
        except TownletError as error:
            if path.is_dir():  # else the training that runs has just pruned it
                found.add(name, _said(error))
            continue
        found.add(name)
        whole.append(one)
    return whole


def _metrics(found: Verified, known: Mapping[str, Any], saved: list[Checkpoint]) -> list[integrity.Damage]:
    """SQLite's own check, every group of rows, and the digests that checkpoints carry."""
    path, name = found.run.metrics_file, "metrics.db"
    if not path.exists():
        if not known.get("published") and any(any(one.info.get("metrics", {}).values()) for one in saved):
            found.items.append(Item(name, "missing", "`townlet train --resume` begins new metrics"))
        return []
    try:
        with in_words(path):
            connection = connect(path, read_only=True)
            try:
                connection.execute("BEGIN")
                damages = [d for table in TABLES for d in _table(connection, table)]
                fault = integrity.structure(connection)
                digests = integrity.digests(connection)
            finally:
                connection.close()
    except TownletError as error:
        found.add(name, _said(error))
        return [integrity.Damage("", _said(error))]
    damages += [integrity.Damage("", fault)] if fault and not damages else []
    for damage in damages:
        found.add(name, str(damage))
    for one in saved[-1:]:  # those before it may count metrics that were moved away
        if not damages and one.info.get("metrics_digest", integrity.START.hex()) not in digests:
            damages.append(integrity.Damage("", f"they are not the metrics that the checkpoint {one.name} counts"))
            found.add(name, damages[-1].why)
    if not damages:
        found.add(name)
    return damages


def _table(connection: Any, table: str) -> list[integrity.Damage]:
    return list(integrity.damages(connection, table, integrity.groups(connection, table)))


def _report(found: Verified) -> None:
    """The report, by the checksums that were written with it."""
    run = found.run
    if not run.report_seal.exists():
        for path in (run.report_md, run.report_html):
            if path.exists():
                found.items.append(Item(path.name, "unprotected", "written without a checksum"))
        return
    sums = seal.listed(run.report_seal)
    if seal.listing(sums) != run.report_seal.read_bytes():
        found.add(run.report_seal.name, "it was changed")
    for name, wanted in sums.items():
        same = seal.sha256_or_none(run.path, name) == wanted
        found.add(name, "" if same else "it was changed or removed; `townlet train --resume` writes the report again")


def _unprotected(found: Verified) -> None:
    """Everything else in the folder, and why it may lack a checksum."""
    known = {item.name.partition("/")[0] for item in found.items}
    for path in sorted(found.run.path.iterdir()):
        if path.name not in known and path.name not in CHECKED:
            why = UNPROTECTED.get(path.name, "not a file that Townlet reads")
            found.items.append(Item(path.name, "unprotected", why))


def _usable(
    found: Verified, known: Mapping[str, Any], sealed: bool, saved: list[Checkpoint], damages: list[integrity.Damage]
) -> None:
    """What still works, in sentences."""
    run, say = found.run, found.usable.append
    newest = checkpoint.listing(run.checkpoints)[-1:]
    if known.get("published"):
        say("It is a published agent: it can be played and evaluated, not resumed.")
    elif not saved:
        say(
            "No checkpoint can be used."
            if newest
            else "There is no checkpoint yet: a resume starts from the beginning."
        )
    elif not known or not sealed:
        say("Nothing can be resumed or played before meta.json, resolved.yaml and the worlds are as they were.")
    else:
        last = saved[-1]
        aside = "" if last.path in newest else ", once the damaged checkpoints after it are moved away"
        new = ", with new metrics once metrics.db is moved away" if damages else ""
        say(f"Resume, play and eval work from step {last.env_steps:,}{aside}{new}.")
    moments = [damage.begin for damage in damages if damage.begin is not None]
    if damages:
        upto = f"; rows up to env_steps {min(moments):,} are whole" if moments else ""
        say(f"No command reports figures of a damaged table{upto}.")


def _said(error: TownletError) -> str:
    return error.mistakes[0].what
