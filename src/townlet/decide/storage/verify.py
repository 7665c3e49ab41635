"""Integrity check of a service folder: every checksum, every event, and the references between files.

Only reads, so it works beside a running service: files that refer to the log are read before the log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from townlet.decide import events
from townlet.decide.domain import ForeignLog
from townlet.decide.join import DecisionCounts
from townlet.decide.recovery import initial_state
from townlet.decide.state import ServiceState
from townlet.decide.storage import LOG, SNAPSHOTS, VERSIONS, segments, serving_log
from townlet.decide.storage.control import ACCEPT_DATA_LOSS, CONTROL_FILE, ControlData, missing_records, read_slots
from townlet.decide.storage.snapshots import SNAPSHOT_SCHEMA
from townlet.decide.storage.versions import weights_digest
from townlet.errors import TownletError
from townlet.interfaces.state import get_part
from townlet.runs import checkpoint
from townlet.runs.verify import IntegrityReport

SET_ASIDE: Final = ("torn-*.bin", "set-aside-*", "serving-damaged-*.jsonl")  # names of files that were set aside
MAX_VIOLATIONS: Final = 5  # violations that the report lists
COMPARED_COUNTS: Final = ("decisions", "joined", "expired", "waited", "failed")  # compared between snapshots and log


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
    logged = check_events(report, folder, last) if last else EventChecker()
    _check_length(report, control, last, references)
    _check_snapshots(report, snapshots, control, logged)
    _check_versions(report, versions, logged)
    _check_serving_log(folder, report, control, logged, versions)
    for pattern in SET_ASIDE:
        for path in sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")]):
            report.note(str(path.relative_to(folder)), "set aside earlier; never read back")
    _add_usable(report, last, intact)
    return report


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


def _check_snapshots(
    report: IntegrityReport, snapshots: dict[int, dict[str, Any]], control: ControlData | None, logged: EventChecker
) -> None:
    for number, info in snapshots.items():
        problem = ""
        if control and info.get("log") != control.log_id.hex():
            problem = "it belongs to another log"
        elif info.get("schema") != SNAPSHOT_SCHEMA:
            problem = "another version of Townlet wrote it"
        elif number in logged.snapshots:
            stored, expected = info["state"]["join"]["counts"], logged.snapshots[number]
            different = [name for name in expected if stored[name] != expected[name]]
            listed = ", ".join(f"{name} {stored[name]} instead of {expected[name]}" for name in different)
            problem = f"its counts differ from the log: {listed}" if different else ""
        report.add(f"{SNAPSHOTS}/{checkpoint.folder_name(number)}", problem, f"the state at record {number}")


def _check_versions(report: IntegrityReport, versions: dict[int, dict[str, Any]], logged: EventChecker) -> None:
    for number, info in versions.items():
        name = f"{VERSIONS}/{checkpoint.folder_name(number)}"
        published = logged.published.get(number)
        if published is not None and published != info["digest"]:
            report.add(name, "its digest differs from the one in the log")
        elif info.get("version") != number:
            report.add(name, f"this is version {str(info.get('version'))[:20]}, under another name")
        elif published is None and logged.state is not None:
            report.note(name, "not in the log: a crash prevented its record; it never served")
        else:
            report.add(name, text=f"step {info['step']}")


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
        report.usable.append(f"The log is intact up to record {last}. Restore a backup if there is one.")
        move = "continues from there and moves the rest to a separate folder."
        report.usable.append(f"`townlet decide serve {ACCEPT_DATA_LOSS}` {move}")
    else:
        report.usable.append("The log is intact: all decisions and outcomes can be used.")
    if SNAPSHOTS in damaged:
        report.usable.append("A damaged snapshot is not used: a start reads the log instead, which takes longer.")
    if VERSIONS in damaged:
        report.usable.append("A damaged version never serves. A damaged serving log leaves decisions to the gate.")


class EventChecker:
    """Applies events to a separate state and checks each against the ones before it."""

    def __init__(self) -> None:
        self.state: ServiceState | None = None  # None before the first event
        self.published: dict[int, str] = {}  # version → digest
        self.snapshots: dict[int, dict[str, int]] = {}  # record of a snapshot → counts of decisions
        self._step = 0

    @property
    def counts(self) -> DecisionCounts:
        return self.state.join.counts if self.state else DecisionCounts()

    def check(self, event: events.Event) -> list[str]:
        """Apply an event; returns the rules that it violates."""
        if self.state is None:
            if not isinstance(event, events.ServiceStarted):
                return ["the log does not begin with a start of the service"]
            self.state = initial_state(event)
        violations = self._check_references(event, self.state)
        self.state.apply(event)
        counts = self.state.join.counts
        if not counts.balanced:
            violations.append("the decisions do not add up")
        if isinstance(event, events.DecisionMade) and counts.decisions != event.number:
            violations.append(f"decision {event.number} follows {counts.decisions - 1} decisions")
        return violations

    def _check_references(self, event: events.Event, state: ServiceState) -> list[str]:
        match event:
            case events.DecisionMade(version=version, gate=gate, reply=reply):
                violations = []
                if version and version not in self.published:
                    violations.append(f"version {version} was never published")
                if gate not in state.gates:
                    violations.append("its gate settings are not those of any start")
                id = str(reply.get("decisionId"))
                if state.ids.resolve(id, event.number) != event.number:
                    violations.append(f"its id {id[:40]} is not one of this log")
                return violations
            case events.OutcomeRecorded(number=number) if not state.join.is_pending(number):
                return [f"an outcome of decision {number}, which was not pending"]
            case events.VersionPublished(version=version, digest=digest):
                self.published[version] = digest
            case events.TrainerRewound(version=version) if version not in self.published and self.published:
                return [f"the trainer was rewound to version {version}, which was never published"]
            case events.ServingChanged(version=version):
                if version and version not in self.published and self.published:
                    return [f"version {version} serves, but was never published"]
            case events.TrainingStep(step=step):
                if step < self._step:
                    return [f"step {step} follows step {self._step}"]
                self._step = step
        return []


def check_events(report: IntegrityReport, folder: Path, last: int) -> EventChecker:
    """Apply all events up to record `last`, and check what each refers to."""
    checker, record = EventChecker(), 0
    violations: list[str] = []
    snapshot_records = {checkpoint.step_and_serial(path)[0] for path in checkpoint.paths(folder / SNAPSHOTS)}
    try:
        for record, payload in segments.read_records(folder / LOG):
            if record > last or len(violations) >= MAX_VIOLATIONS:
                break
            if record > 1 and checker.state is None and not violations:
                report.add("events of the log", text="its beginning is missing, so they cannot be checked")
                return checker
            violations += [f"record {record}: {what}" for what in checker.check(events.decode(payload))]
            if record in snapshot_records:
                checker.snapshots[record] = {name: getattr(checker.counts, name) for name in COMPARED_COUNTS}
    except ForeignLog as error:
        report.note("events of the log", f"not checked: {error}")
        return checker
    except (TownletError, ValueError, KeyError, TypeError, AttributeError) as error:
        violations.append(f"record {record}: {error}")
    counts = checker.counts
    joined = f"{counts.decisions} decisions = {counts.joined} joined + {counts.expired} expired"
    text = f"{joined} + {counts.pending} pending + {counts.not_executed} not executed"
    report.add("events of the log", "; ".join(violations), text)
    return checker
