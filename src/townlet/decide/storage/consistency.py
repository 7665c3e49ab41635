"""Consistency of a stored service: its events among themselves, and its snapshots and versions with the events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from typing import Any, Final

from townlet.decide import events
from townlet.decide.domain import ForeignLog
from townlet.decide.join import DecisionCounts
from townlet.decide.recovery import initial_state, state_of
from townlet.decide.state import ServiceState
from townlet.decide.storage.snapshots import SNAPSHOT_SCHEMA, Snapshot
from townlet.errors import TownletError
from townlet.runs.verify import IntegrityReport

EVENTS: Final = "events of the log"  # item of a report
MAX_VIOLATIONS: Final = 5  # violations that the report lists
COMPARED_COUNTS: Final = ("decisions", "joined", "expired", "waited", "failed")  # compared between snapshots and log
Infos = Mapping[int, Mapping[str, Any]]  # the info of intact snapshots or versions, by number; of snapshots with state


class EventChecker:
    """Applies events to a separate state and checks each against the ones before it."""

    def __init__(self, base: Snapshot | None = None) -> None:
        self.base = base  # the snapshot with which checking begins
        self.state: ServiceState | None = state_of(base) if base else None  # None before the first event
        self._first_published = inf  # the first version after the base
        self.published: dict[int, str] = {}  # version → digest
        self.snapshots: dict[int, dict[str, int]] = {}  # record of a snapshot → counts of decisions
        self._step = 0

    @property
    def counts(self) -> DecisionCounts:
        return self.state.join.counts if self.state else DecisionCounts()

    def may_be_published(self, version: int) -> bool:
        """Whether a version was published, possibly before the base."""
        return version in self.published or (self.base is not None and version < self._first_published)

    def check(self, event: events.Event, record: int) -> list[str]:
        """Apply the event of a record; returns the rules that it violates."""
        if self.state is None:
            if not isinstance(event, events.ServiceStarted):
                raise TownletError("the log does not begin with a start of the service")
            self.state = initial_state(event)
        violations = self._check_references(event, self.state)
        self.state.apply_stored(event, record)
        counts = self.state.join.counts
        if not counts.balanced:
            violations.append("the decisions do not add up")
        return violations

    def _check_references(self, event: events.Event, state: ServiceState) -> list[str]:
        match event:
            case events.DecisionMade(version=version, reply=reply):
                violations = []
                if version and not self.may_be_published(version):
                    violations.append(f"version {version} was never published")
                id = str(reply.get(state.domain.id_field))
                if state.domain.single_observations:
                    own = id == event.territory
                else:
                    own = state.ids.signed_number(id) == event.number
                if not own:
                    violations.append(f"its reply has the id {id[:40]}, which is not that of its decision")
                return violations
            case events.OutcomeRecorded(number=number) if not state.join.is_pending(number):
                return [f"an outcome of decision {number}, which was not pending"]
            case events.VersionPublished(version=version, digest=digest):
                self.published[version] = digest
                self._first_published = min(self._first_published, version)
            case events.TrainerRewound(version=version) if self.published and not self.may_be_published(version):
                return [f"the trainer was rewound to version {version}, which was never published"]
            case events.ServingChanged(version=version):
                if version and self.published and not self.may_be_published(version):
                    return [f"version {version} serves, but was never published"]
            case events.TrainingStep(step=step):
                if step < self._step:
                    return [f"step {step} follows step {self._step}"]
                self._step = step
        return []


def check_events(
    report: IntegrityReport, records: Iterable[tuple[int, bytes]], snapshots: Collection[int],
    base: Snapshot | None = None,
) -> EventChecker:  # fmt: skip
    """Apply the events in these records, and check each; `snapshots`: the records of which there is a snapshot.

    With a `base`, checking begins after that snapshot.
    """
    checker, record, after = EventChecker(base), 0, base.record if base else 0
    violations: list[str] = []
    try:
        for record, payload in records:
            if record <= after:
                continue
            if record > 1 and checker.state is None and not violations:
                report.add(EVENTS, text="its beginning is missing, so they cannot be checked")
                return checker
            found = [f"record {record}: {what}" for what in checker.check(events.decode(payload, record), record)]
            violations += found[: MAX_VIOLATIONS - len(violations)]
            if record in snapshots:
                checker.snapshots[record] = {name: getattr(checker.counts, name) for name in COMPARED_COUNTS}
    except ForeignLog as error:
        report.note(EVENTS, f"not checked: {error}")
        return checker
    except TownletError as error:
        violations.append(error.diagnostics[0].what)
        checker.state = None  # incomplete, so nothing can be compared with it
    counts = checker.counts
    joined = f"{counts.decisions} decisions = {counts.joined} joined + {counts.expired} expired"
    text = f"{joined} + {counts.pending} pending + {counts.not_executed} not executed"
    since = f"; earlier records than {after + 1} are in a snapshot" if base else ""
    report.add(EVENTS, "; ".join(violations), text + since)
    return checker


def check_snapshots(
    report: IntegrityReport, snapshots: Infos, log_id: str, logged: EventChecker, name: Callable[[int], str]
) -> None:
    """Compare intact snapshots with the events; `name` names them in the report."""
    for number, info in snapshots.items():
        problem = ""
        if log_id and info.get("log") != log_id:
            problem = "it belongs to another log"
        elif info.get("schema") != SNAPSHOT_SCHEMA:
            problem = "another version of Townlet wrote it"
        elif number in logged.snapshots:
            stored, expected = info["state"]["join"]["counts"], logged.snapshots[number]
            different = [name for name in expected if stored[name] != expected[name]]
            listed = ", ".join(f"{name} {stored[name]} instead of {expected[name]}" for name in different)
            problem = f"its counts differ from the log: {listed}" if different else ""
        report.add(name(number), problem, f"the state at record {number}")


def check_versions(report: IntegrityReport, versions: Infos, logged: EventChecker, name: Callable[[int], str]) -> None:
    """Compare intact versions with the events; `name` names them in the report."""
    for number, info in versions.items():
        published = logged.published.get(number)
        if published is not None and published != info["digest"]:
            report.add(name(number), "its digest differs from the one in the log")
        elif info.get("version") != number:
            report.add(name(number), f"this is version {str(info.get('version'))[:20]}, under another name")
        elif published is None and logged.state is not None and not logged.may_be_published(number):
            report.note(name(number), "not in the log: a crash prevented its record; it never served")
        else:
            report.add(name(number), text=f"step {info['step']}")
