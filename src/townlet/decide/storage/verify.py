"""Integrity check of a service's folder: every checksum, and the references between its files.

Only reads, so it works beside a running service: whatever refers to the log is read before the log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from townlet.decide.events import SCHEMA
from townlet.decide.recovery import LOG, VERSIONS
from townlet.decide.storage import control, serving_log, snapshots
from townlet.decide.storage.control import Control
from townlet.decide.storage.known_records import references
from townlet.decide.storage.log_opening import OVERRIDE, missing
from townlet.decide.storage.segments import LogDamage, content, end_of, listing
from townlet.decide.storage.verify_events import LoggedFacts, check_events
from townlet.decide.storage.versions import digest_of
from townlet.errors import TownletError
from townlet.interfaces.restore import part
from townlet.runs import checkpoint
from townlet.runs.integrity_report import IntegrityReport

ASIDE: Final = ("torn-*.bin", "set-aside-*", "serving-damaged-*.jsonl")  # what was kept aside, by their names


def verify(folder: Path) -> IntegrityReport:
    """Check everything in the folder of a service, stopped or running."""
    if not (folder / LOG).is_dir():
        raise TownletError(f"{folder} has no decision log", "name the folder of a service")
    found = IntegrityReport(str(folder))
    known = _control(folder, found)
    referring = sorted(references(folder))
    stored = {name: _checkpoints(folder, found, name) for name in (snapshots.FOLDER, VERSIONS)}
    last, whole = _segments(folder, found, known)
    logged = check_events(found.add, folder, last) if last else LoggedFacts()
    _length(found, known, last, referring)
    _snapshots(found, stored[snapshots.FOLDER], known, logged)
    _versions(found, stored[VERSIONS], logged)
    _serving(folder, found, known, logged, stored[VERSIONS])
    for pattern in ASIDE:
        for path in sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")]):
            found.note(str(path.relative_to(folder)), "kept aside earlier; never read back")
    _usable(found, last, whole)
    return found


def _control(folder: Path, found: IntegrityReport) -> Control | None:
    """The control data of the log."""
    slots = control.read_slots(folder / LOG / control.FILE)
    name, newest = f"{LOG}/{control.FILE}", max((slot for slot in slots or () if slot is not None), default=None)
    if slots is None:
        found.add(name, "it is missing")
    elif newest is None:
        found.add(name, "neither of its two slots matches its checksum")
    elif None in slots:
        found.note(name, "one of its two slots is unreadable, which a crash may cause; the other one is whole")
    else:
        found.add(name, text=f"record {newest[1].synced} was on the disk")
    return newest[1] if newest else None


def _segments(folder: Path, found: IntegrityReport, known: Control | None) -> tuple[int, bool]:
    """Check every byte of the log; returns the last record before any damage, and whether there is no damage."""
    segments, log_id, last, whole = listing(folder / LOG), known.log_id if known else b"", 0, True
    for place, segment in enumerate(segments):
        name, following = f"{LOG}/{segment.path.name}", segments[place + 1 : place + 2]
        try:
            end = end_of(segment, content(segment), following[0].first if following else None)
        except LogDamage as damage:
            found.add(name, damage.mistakes[0].what)
            last, whole = (damage.last if whole else last), False
            continue
        except TownletError as error:
            found.add(name, error.mistakes[0].what)
            whole = False
            continue
        if log_id and end.log_id and end.log_id != log_id:
            whole = found.add(name, "it belongs to another log")
            continue
        log_id, last = log_id or end.log_id, end.last if whole else last
        torn = f", then {end.torn} bytes from byte {end.place} on of a write that is not finished" if end.torn else ""
        found.add(name, text=f"records {segment.first} to {end.last}{torn}")
    if known and segments and segments[0].first > known.oldest:
        whole = found.add(LOG, f"records {known.oldest} to {segments[0].first - 1} are missing")
    return last, whole


def _checkpoints(folder: Path, found: IntegrityReport, name: str) -> dict[int, dict[str, Any]]:
    """Check every byte of the snapshots or versions; returns the info of those that are whole, by number."""
    whole: dict[int, dict[str, Any]] = {}
    for path in checkpoint.listing(folder / name):
        try:
            state, info = checkpoint.read(path)
            if name == VERSIONS and digest_of(part(state, "network", "version")) != info.get("digest"):
                found.add(f"{name}/{path.name}", "its weights do not match its digest")
                continue
        except TownletError as error:
            if path.is_dir():  # otherwise the running service has just removed it
                found.add(f"{name}/{path.name}", error.mistakes[0].what)
            continue
        whole[checkpoint.order(path)[0]] = info | ({"state": state["ledger"]} if name == snapshots.FOLDER else {})
    return whole


def _length(found: IntegrityReport, known: Control | None, last: int, referring: list[Any]) -> None:
    """Nothing may refer to a record beyond the end of the log."""
    short = [missing(last, known.synced, "its control data")] if known and known.synced > last else []
    if referring and referring[-1].record > last:
        short.append(missing(last, referring[-1].record, referring[-1].source))
    for what in short:
        found.add("length of the log", what)
    if not short:
        found.add("length of the log", text=f"nothing refers to a record after record {last}")


def _snapshots(
    found: IntegrityReport, stored: dict[int, dict[str, Any]], known: Control | None, logged: LoggedFacts
) -> None:
    for number, info in stored.items():
        name, problem = f"{snapshots.FOLDER}/{checkpoint.name_at(number)}", ""
        if known and info.get("log") != known.log_id.hex():
            problem = "it belongs to another log"
        elif info.get("schema") != SCHEMA:
            problem = "another version of Townlet wrote it"
        elif number in logged.counts and (odd := _differences(info["state"]["join"]["tally"], logged.counts[number])):
            problem = f"it counts other decisions than the log: {odd}"
        found.add(name, problem, f"the state at record {number}")


def _differences(snapshot: dict[str, int], log: dict[str, int]) -> str:
    odd = [f"{name} {snapshot[name]} instead of {count}" for name, count in log.items() if snapshot[name] != count]
    return ", ".join(odd)


def _versions(found: IntegrityReport, stored: dict[int, dict[str, Any]], logged: LoggedFacts) -> None:
    for number, info in stored.items():
        name = f"{VERSIONS}/{checkpoint.name_at(number)}"
        published = logged.published.get(number)
        if published is not None and published != info["digest"]:
            found.add(name, "its digest differs from the one in the log")
        elif info.get("version") != number:
            found.add(name, f"this is version {str(info.get('version'))[:20]}, under another name")
        elif published is None and logged.complete:
            found.note(name, "not in the log: a crash came before its record; it never served")
        else:
            found.add(name, text=f"step {info['step']}")


def _serving(
    folder: Path, found: IntegrityReport, known: Control | None, logged: LoggedFacts, stored: dict[int, dict[str, Any]]
) -> None:
    """The serving record, read last: on a running service it is never behind the log."""
    name, record = f"{VERSIONS}/{serving_log.FILE}", serving_log.read_record(folder / VERSIONS / serving_log.FILE)
    problems = [record.fault] if record.fault else []
    last = record.changes[-1] if record.changes else None
    sources = [("the control data", known.serving, known.gate_only)] if known else []
    if logged.serving is not None:
        sources.append(("the log", logged.serving.number, logged.serving.gate_only))
    by_number = {change.number: change.gate_only for change in record.changes}
    for source, number, gate_only in sources:
        if number > (last.number if last else 0):
            problems.append(f"change {number} is missing, but known to {source}")
        elif by_number.get(number, gate_only) != gate_only:
            problems.append(f"the kill switch at change {number} differs from {source}")
    if last and last.serving is not None and not problems and not _kept(folder, last.serving, stored):
        problems.append(f"version {last.serving} serves, but is missing or damaged")
    serves = "nothing serves yet" if last is None or last.serving is None else f"version {last.serving} serves"
    state = f"{serves}{', only the gate decides' if last and last.gate_only else ''}"
    found.add(name, "; ".join(problems), f"{record.lines} changes; {state}")


def _kept(folder: Path, version: int, stored: dict[int, dict[str, Any]]) -> bool:
    """Whether a version is whole; a running service may have published it after the others were read."""
    if version in stored or any(number > version for number in stored):
        return version in stored
    try:
        checkpoint.verify(folder / VERSIONS / checkpoint.name_at(version))
    except TownletError:
        return False
    return True


def _usable(found: IntegrityReport, last: int, whole: bool) -> None:
    """Add what can still be used."""
    damaged = {part.name.split("/")[0] for part in found.items if part.state == "damaged"}
    if not damaged:
        found.usable.append("A service can start from this folder.")
        return
    if not whole or "length of the log" in damaged:
        found.usable.append(f"Records up to {last} of the log are whole. Restore a backup, if there is one.")
        found.usable.append(f"`townlet decide serve {OVERRIDE}` continues after them and moves the rest to a folder.")
    else:
        found.usable.append("The log is whole: all decisions and outcomes can be used.")
    if snapshots.FOLDER in damaged:
        found.usable.append("A damaged snapshot is not used: a start reads the log instead, which takes longer.")
    if VERSIONS in damaged:
        found.usable.append("A damaged version never serves. A damaged serving record leaves decisions to the gate.")
