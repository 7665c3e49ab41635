"""Integrity check of a service folder: every checksum, every event, and the references between files.

Only reads, so it works beside a running service: files that refer to the log are read before the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from townlet.decide.storage import LOG, SNAPSHOTS, VERSIONS, segments, serving_log
from townlet.decide.storage.consistency import EVENTS, EventChecker, check_events, check_snapshots, check_versions
from townlet.decide.storage.control import ACCEPT_DATA_LOSS, CONTROL_FILE, ControlData, missing_records, read_slots
from townlet.decide.storage.snapshots import Snapshot, is_usable
from townlet.decide.storage.versions import weights_digest
from townlet.errors import TownletError
from townlet.interfaces.state import get_part
from townlet.runs import checkpoint
from townlet.runs.verify import IntegrityReport

SET_ASIDE: Final = ("torn-*.bin", "set-aside-*", "serving-damaged-*.jsonl")  # names of files that were set aside


def verify(folder: Path) -> IntegrityReport:
    """Check everything in the folder of a service, stopped or running."""
    if not (folder / LOG).is_dir():
        raise TownletError(f"{folder} has no decision log", "name the folder of a service")
    report = IntegrityReport(str(folder))
    control = _check_control_file(folder, report)
    references = sorted(serving_log.log_references(folder))
    snapshots = _check_checkpoints(folder, report, SNAPSHOTS)
    versions = _check_checkpoints(folder, report, VERSIONS)
    last, intact = _check_segments(folder, report, control)
    snapshot_records = {checkpoint.step_and_serial(path)[0] for path in checkpoint.paths(folder / SNAPSHOTS)}
    logged_records = takewhile(lambda numbered: numbered[0] <= last, segments.read_records(folder / LOG))
    base = _find_base(segments.list_segments(folder / LOG)[:1], snapshots, control)
    logged = check_events(report, logged_records, snapshot_records, base) if last else EventChecker()
    _check_length(report, control, last, references)
    log_id = control.log_id.hex() if control else ""
    check_snapshots(report, snapshots, log_id, logged, lambda record: f"{SNAPSHOTS}/{checkpoint.folder_name(record)}")
    check_versions(report, versions, logged, lambda version: f"{VERSIONS}/{checkpoint.folder_name(version)}")
    _check_serving_log(folder, report, control, logged, versions)
    for pattern in SET_ASIDE:
        for path in sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")]):
            report.note(str(path.relative_to(folder)), "set aside earlier; never read back")
    _add_usable(report, last, intact)
    return report


def _find_base(
    first: Sequence[segments.Segment], snapshots: dict[int, dict[str, Any]], control: ControlData | None
) -> Snapshot | None:
    """The oldest snapshot that covers all records before the first segment."""
    if not first or first[0].first == 1 or control is None:
        return None
    for record, info in sorted(snapshots.items()):
        if record >= first[0].first - 1 and is_usable(info, control.log_id.hex()):
            return Snapshot(record, {"service": info["state"]}, info)
    return None


def _check_control_file(folder: Path, report: IntegrityReport) -> ControlData | None:
    slots = read_slots(folder / LOG / CONTROL_FILE)
    name, newest = f"{LOG}/{CONTROL_FILE}", max((slot for slot in slots or () if slot is not None), default=None)
    if slots is None:
        report.add(name, "it is missing")
    elif newest is None:
        report.add(name, "neither of its two slots matches its checksum")
    elif None in slots:
        report.note(name, "one of its two slots is unreadable, which a crash may cause; the other one is intact")
    else:
        report.add(name, text=f"records up to {newest[1].synced} are known to be on disk")
    return newest[1] if newest else None


def _check_segments(folder: Path, report: IntegrityReport, control: ControlData | None) -> tuple[int, bool]:
    """Check every byte of the log; returns the last record before any damage, and whether there is no damage."""
    files, log_id, last, intact = segments.list_segments(folder / LOG), control.log_id if control else b"", 0, True
    for segment, stop in segments.with_stops(files):
        name = f"{LOG}/{segment.path.name}"
        if not segment.path.exists():
            continue  # retention has just removed it
        try:
            end = segments.find_segment_end(segment, segments.read_segment(segment), stop)
        except TownletError as error:
            report.add(name, error.diagnostics[0].what)
            last = error.last if intact and isinstance(error, segments.LogDamage) else last
            intact = False
            continue
        if log_id and end.log_id and end.log_id != log_id:
            intact = report.add(name, "it belongs to another log")
            continue
        log_id, last = log_id or end.log_id, end.last if intact else last
        torn = f", then {end.torn} bytes from byte {end.offset} on of an incomplete write" if end.torn else ""
        report.add(name, text=f"records {segment.first} to {end.last}{torn}")
    if control and files and files[0].first > control.oldest:
        intact = report.add(LOG, f"records {control.oldest} to {files[0].first - 1} are missing")
    return last, intact


def _check_checkpoints(folder: Path, report: IntegrityReport, name: str) -> dict[int, dict[str, Any]]:
    """Check every byte of the snapshots or versions; returns the info of intact ones, by number."""
    intact: dict[int, dict[str, Any]] = {}
    for path in checkpoint.paths(folder / name):
        try:
            state, info = checkpoint.load(path)
            if name == VERSIONS and weights_digest(get_part(state, "network", "version")) != info.get("digest"):
                report.add(f"{name}/{path.name}", "its weights do not match its digest")
                continue
        except TownletError as error:
            if path.is_dir():  # otherwise the running service has just removed it
                report.add(f"{name}/{path.name}", error.diagnostics[0].what)
            continue
        intact[checkpoint.step_and_serial(path)[0]] = info | ({"state": state["service"]} if name == SNAPSHOTS else {})
    return intact


def _check_length(
    report: IntegrityReport, control: ControlData | None, last: int, references: list[serving_log.LogReference]
) -> None:
    known = [(control.synced, "its control file")] if control else []
    known += [(newest.record, newest.source) for newest in references[-1:]]
    problems = [missing_records(last, record, source) for record, source in known if record > last]
    for problem in problems:
        report.add("length of the log", problem)
    if not problems:
        report.add("length of the log", text=f"nothing refers to a record after record {last}")


def _check_serving_log(
    folder: Path, report: IntegrityReport, control: ControlData | None, logged: EventChecker,
    versions: dict[int, dict[str, Any]],
) -> None:  # fmt: skip
    """Check the serving log, read last: on a running service it is never behind the decision log."""
    contents = serving_log.read_serving_log(folder / VERSIONS / serving_log.SERVING_LOG)
    problems = [contents.fault] if contents.fault else []
    last = contents.changes[-1] if contents.changes else serving_log.NOTHING_SERVES
    sources = [("the control file", control.serving, control.gate_only)] if control else []
    if logged.state is not None and (serving := logged.state.serving) is not None:
        sources.append(("the log", serving.number, serving.gate_only))
    by_number = {change.number: change.gate_only for change in contents.changes}
    for source, number, gate_only in sources:
        if number > last.number:
            problems.append(f"change {number} is missing, but {source} refers to it")
        elif by_number.get(number, gate_only) != gate_only:
            problems.append(f"gate-only mode at change {number} differs from {source}")
    if last.serving is not None and not problems and not _is_intact(folder, last.serving, versions):
        problems.append(f"version {last.serving} serves, but is missing or damaged")
    state = "nothing serves yet" if last.serving is None else f"version {last.serving} serves"
    state += ", only the gate decides" if last.gate_only else ""
    report.add(f"{VERSIONS}/{serving_log.SERVING_LOG}", "; ".join(problems), f"{contents.lines} changes; {state}")


def _is_intact(folder: Path, version: int, versions: dict[int, dict[str, Any]]) -> bool:
    """Whether a version is intact; a running service may have published it after the others were read."""
    if version in versions or any(number > version for number in versions):
        return version in versions
    try:
        checkpoint.verify(folder / VERSIONS / checkpoint.folder_name(version))
    except TownletError:
        return False
    return True


def _add_usable(report: IntegrityReport, last: int, intact: bool) -> None:
    damaged = {item.name.split("/")[0] for item in report.items if item.state == "damaged"}
    if not damaged:
        report.usable.append("A service can start from this folder.")
        return
    if not intact or "length of the log" in damaged:
        report.usable.append(f"The log can be used up to record {last}. Restore a backup if there is one.")
        move = "continues from there and moves the rest to a separate folder."
        report.usable.append(f"`townlet decide serve {ACCEPT_DATA_LOSS}` {move}")
    elif EVENTS in damaged:
        report.usable.append("The bytes of the log are as they were written, but its events contradict each other.")
        report.usable.append("Restore a backup if there is one.")
    else:
        report.usable.append("All decisions and outcomes of the log can be used.")
    if SNAPSHOTS in damaged:
        report.usable.append("A damaged snapshot is not used: a start reads the log instead, which takes longer.")
    if VERSIONS in damaged:
        report.usable.append("A damaged version never serves. A damaged serving log leaves decisions to the gate.")
