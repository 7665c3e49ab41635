"""Integrity check of a service's folder: every checksum, and the references between its files.

Only reads, so it works beside a running service: whatever refers to the log is read before the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from townlet.decide.domains import DOMAINS
from townlet.decide.events import (
    SCHEMA,
    DecisionMade,
    Event,
    OutcomeRecorded,
    ServiceStarted,
    ServingChanged,
    TrainerRewound,
    TrainingStep,
    VersionPublished,
    decode,
)
from townlet.decide.join import DecisionCounts
from townlet.decide.settings import settings_model
from townlet.decide.state import ServiceState
from townlet.decide.storage import LOG, SNAPSHOTS, VERSIONS, control, serving_log
from townlet.decide.storage.control import ACCEPT_DATA_LOSS, ControlData, missing_records
from townlet.decide.storage.segments import LogDamage, find_segment_end, list_segments, read_records, read_segment
from townlet.decide.storage.serving_log import log_references
from townlet.decide.storage.versions import weights_digest
from townlet.errors import TownletError
from townlet.interfaces.state import get_part
from townlet.runs import checkpoint
from townlet.runs.verify import IntegrityReport

SET_ASIDE: Final = ("torn-*.bin", "set-aside-*", "serving-damaged-*.jsonl")  # what was kept aside, by their names


def verify(folder: Path) -> IntegrityReport:
    """Check everything in the folder of a service, stopped or running."""
    if not (folder / LOG).is_dir():
        raise TownletError(f"{folder} has no decision log", "name the folder of a service")
    found = IntegrityReport(str(folder))
    known = _check_control_file(folder, found)
    referring = sorted(log_references(folder))
    stored = {name: _check_checkpoints(folder, found, name) for name in (SNAPSHOTS, VERSIONS)}
    last, whole = _check_segments(folder, found, known)
    logged = check_events(found.add, folder, last) if last else LogSummary()
    _check_length(found, known, last, referring)
    _check_snapshots(found, stored[SNAPSHOTS], known, logged)
    _check_versions(found, stored[VERSIONS], logged)
    _check_serving_log(folder, found, known, logged, stored[VERSIONS])
    for pattern in SET_ASIDE:
        for path in sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")]):
            found.note(str(path.relative_to(folder)), "kept aside earlier; never read back")
    _add_usable(found, last, whole)
    return found


def _check_control_file(folder: Path, found: IntegrityReport) -> ControlData | None:
    """The control data of the log."""
    slots = control.read_slots(folder / LOG / control.CONTROL_FILE)
    name, newest = (
        f"{LOG}/{control.CONTROL_FILE}",
        max((slot for slot in slots or () if slot is not None), default=None),
    )
    if slots is None:
        found.add(name, "it is missing")
    elif newest is None:
        found.add(name, "neither of its two slots matches its checksum")
    elif None in slots:
        found.note(name, "one of its two slots is unreadable, which a crash may cause; the other one is whole")
    else:
        found.add(name, text=f"record {newest[1].synced} was on the disk")
    return newest[1] if newest else None


def _check_segments(folder: Path, found: IntegrityReport, known: ControlData | None) -> tuple[int, bool]:
    """Check every byte of the log; returns the last record before any damage, and whether there is no damage."""
    segments, log_id, last, whole = list_segments(folder / LOG), known.log_id if known else b"", 0, True
    for place, segment in enumerate(segments):
        name, following = f"{LOG}/{segment.path.name}", segments[place + 1 : place + 2]
        try:
            end = find_segment_end(segment, read_segment(segment), following[0].first if following else None)
        except LogDamage as damage:
            found.add(name, damage.diagnostics[0].what)
            last, whole = (damage.last if whole else last), False
            continue
        except TownletError as error:
            found.add(name, error.diagnostics[0].what)
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


def _check_checkpoints(folder: Path, found: IntegrityReport, name: str) -> dict[int, dict[str, Any]]:
    """Check every byte of the snapshots or versions; returns the info of those that are whole, by number."""
    whole: dict[int, dict[str, Any]] = {}
    for path in checkpoint.paths(folder / name):
        try:
            state, info = checkpoint.load(path)
            if name == VERSIONS and weights_digest(get_part(state, "network", "version")) != info.get("digest"):
                found.add(f"{name}/{path.name}", "its weights do not match its digest")
                continue
        except TownletError as error:
            if path.is_dir():  # otherwise the running service has just removed it
                found.add(f"{name}/{path.name}", error.diagnostics[0].what)
            continue
        whole[checkpoint.step_and_serial(path)[0]] = info | ({"state": state["ledger"]} if name == SNAPSHOTS else {})
    return whole


def _check_length(found: IntegrityReport, known: ControlData | None, last: int, referring: list[Any]) -> None:
    """Nothing may refer to a record beyond the end of the log."""
    short = [missing_records(last, known.synced, "its control data")] if known and known.synced > last else []
    if referring and referring[-1].record > last:
        short.append(missing_records(last, referring[-1].record, referring[-1].source))
    for what in short:
        found.add("length of the log", what)
    if not short:
        found.add("length of the log", text=f"nothing refers to a record after record {last}")


def _check_snapshots(
    found: IntegrityReport, stored: dict[int, dict[str, Any]], known: ControlData | None, logged: LogSummary
) -> None:
    for number, info in stored.items():
        name, problem = f"{SNAPSHOTS}/{checkpoint.folder_name(number)}", ""
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


def _check_versions(found: IntegrityReport, stored: dict[int, dict[str, Any]], logged: LogSummary) -> None:
    for number, info in stored.items():
        name = f"{VERSIONS}/{checkpoint.folder_name(number)}"
        published = logged.published.get(number)
        if published is not None and published != info["digest"]:
            found.add(name, "its digest differs from the one in the log")
        elif info.get("version") != number:
            found.add(name, f"this is version {str(info.get('version'))[:20]}, under another name")
        elif published is None and logged.complete:
            found.note(name, "not in the log: a crash came before its record; it never served")
        else:
            found.add(name, text=f"step {info['step']}")


def _check_serving_log(
    folder: Path,
    found: IntegrityReport,
    known: ControlData | None,
    logged: LogSummary,
    stored: dict[int, dict[str, Any]],
) -> None:
    """The serving record, read last: on a running service it is never behind the log."""
    name, record = (
        f"{VERSIONS}/{serving_log.SERVING_LOG}",
        serving_log.read_serving_log(folder / VERSIONS / serving_log.SERVING_LOG),
    )
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
    if last and last.serving is not None and not problems and not _is_readable(folder, last.serving, stored):
        problems.append(f"version {last.serving} serves, but is missing or damaged")
    serves = "nothing serves yet" if last is None or last.serving is None else f"version {last.serving} serves"
    state = f"{serves}{', only the gate decides' if last and last.gate_only else ''}"
    found.add(name, "; ".join(problems), f"{record.lines} changes; {state}")


def _is_readable(folder: Path, version: int, stored: dict[int, dict[str, Any]]) -> bool:
    """Whether a version is whole; a running service may have published it after the others were read."""
    if version in stored or any(number > version for number in stored):
        return version in stored
    try:
        checkpoint.verify(folder / VERSIONS / checkpoint.folder_name(version))
    except TownletError:
        return False
    return True


def _add_usable(found: IntegrityReport, last: int, whole: bool) -> None:
    """Add what can still be used."""
    damaged = {get_part.name.split("/")[0] for get_part in found.items if get_part.state == "damaged"}
    if not damaged:
        found.usable.append("A service can start from this folder.")
        return
    if not whole or "length of the log" in damaged:
        found.usable.append(f"Records up to {last} of the log are whole. Restore a backup, if there is one.")
        found.usable.append(
            f"`townlet decide serve {ACCEPT_DATA_LOSS}` continues after them and moves the rest to a folder."
        )
    else:
        found.usable.append("The log is whole: all decisions and outcomes can be used.")
    if SNAPSHOTS in damaged:
        found.usable.append("A damaged snapshot is not used: a start reads the log instead, which takes longer.")
    if VERSIONS in damaged:
        found.usable.append("A damaged version never serves. A damaged serving record leaves decisions to the gate.")


MAX_VIOLATIONS: Final = 5  # violations that are listed
COMPARED_COUNTS: Final = (
    "decisions",
    "joined",
    "expired",
    "waited",
    "failed",
)  # what a snapshot must count like the log


@dataclass
class LogSummary:
    """What the log says about other files."""

    published: dict[int, str] = field(default_factory=dict)  # digests of versions
    serving: ServingChanged | None = None  # the last change of what serves
    counts: dict[int, dict[str, int]] = field(default_factory=dict)  # of decisions, at the records of snapshots
    complete: bool = False  # whether the log was read from its first record on


def check_events(add: Callable[[str, str, str], bool], folder: Path, last: int) -> LogSummary:
    """Apply all events up to record `last`, and check what each refers to."""
    facts, broken, checker = LogSummary(), list[str](), EventChecker()
    wanted = {checkpoint.step_and_serial(path)[0] for path in checkpoint.paths(folder / SNAPSHOTS)}
    record = 0
    try:
        for record, payload in read_records(folder / LOG):
            if record > last:
                break
            if not facts.complete and record > 1 and checker.state is None:
                add("events of the log", "", "its beginning was dropped, so they cannot be checked")
                return facts
            facts.complete = True
            broken += [f"record {record}: {what}" for what in checker.check(decode(payload))]
            if record in wanted:
                facts.counts[record] = {name: getattr(checker.counts, name) for name in COMPARED_COUNTS}
            if len(broken) >= MAX_VIOLATIONS:
                break
    except (TownletError, ValueError, KeyError, TypeError, AttributeError) as error:
        broken.append(f"record {record}: {error}")
    facts.published, facts.serving = checker.published, checker.serving
    counts = checker.counts
    told = (
        f"{counts.decisions} decisions = {counts.joined} joined + {counts.expired} expired + {counts.pending} pending"
    )
    add("events of the log", "; ".join(broken), f"{told} + {counts.not_executed} not executed")
    return facts


class EventChecker:
    """Applies events to a state of its own, and compares each with what came before."""

    def __init__(self) -> None:
        self.state: ServiceState | None = None  # until the first event
        self.published: dict[int, str] = {}
        self.serving: ServingChanged | None = None
        self._step = 0

    @property
    def counts(self) -> DecisionCounts:
        """Counts of decisions by state."""
        return self.state.join.counts if self.state else DecisionCounts()

    def check(self, event: Event) -> list[str]:
        """Apply an event; returns the rules that it violates."""
        if self.state is None:
            if not isinstance(event, ServiceStarted):
                return ["the log does not begin with a start of the service"]
            domain = DOMAINS[event.settings["domain"]]
            self.state = ServiceState(domain, settings_model(domain).model_validate_json(json.dumps(event.settings)))
        broken = self._references(event, self.state)
        self.state.apply(event)
        counts = self.state.join.counts
        if not counts.balanced:
            broken.append("the decisions do not add up")
        if isinstance(event, DecisionMade) and counts.decisions != event.number:
            broken.append(f"decision {event.number} comes after {counts.decisions - 1} decisions")
        return broken

    def _references(self, event: Event, ledger: ServiceState) -> list[str]:
        match event:
            case DecisionMade(version=version, gate=gate, reply=reply):
                wrong = [] if version in self.published or not version else [f"version {version} was never published"]
                wrong += [] if gate in ledger.gates else ["its gate settings are not those of any start"]
                id = str(reply.get("decisionId"))
                known = ledger.ids.number(id, event.number) == event.number
                return wrong if known else [*wrong, f"its id {id[:40]} is not one of this log"]
            case OutcomeRecorded(number=number) if not ledger.join.is_pending(number):
                return [f"an outcome of decision {number}, which was not pending"]
            case VersionPublished(version=version, digest=digest):
                self.published[version] = digest
            case TrainerRewound(version=version) if version not in self.published and self.published:
                return [f"a rollback to version {version}, which was never published"]
            case ServingChanged(version=version):
                self.serving = event
                if version and version not in self.published and self.published:
                    return [f"version {version} serves, but was never published"]
            case TrainingStep(step=step):
                if step < self._step:
                    return [f"step {step} comes after step {self._step}"]
                self._step = step
        return []
