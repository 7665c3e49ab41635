"""Recovery of a service from its log, and replay of the complete log.

Recovery restores the newest intact snapshot and version, and repeats only the training steps after them. `replay`
repeats all steps from the initial weights, and compares every version with its digest in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from townlet.decide import events
from townlet.decide.domain import ForeignLog
from townlet.decide.domains import DOMAINS
from townlet.decide.events import Event, ServiceStarted, TrainerRewound, VersionPublished
from townlet.decide.settings import LearningSettings, stored_settings
from townlet.decide.state import ServiceState
from townlet.decide.storage import SNAPSHOTS, StorageNotice, snapshots
from townlet.decide.storage.segments import list_segments, read_records
from townlet.decide.storage.snapshots import Snapshot
from townlet.decide.storage.versions import VersionStore, weights_digest
from townlet.decide.trainer import Trainer
from townlet.errors import TownletError
from townlet.interfaces.state import State


class ReplayedVersion(NamedTuple):
    """A version in the log: the digests of its logged and of its replayed weights."""

    version: int
    step: int
    digest: str
    replayed: str

    @property
    def same(self) -> bool:
        """Whether the replayed weights are equal, bit for bit."""
        return self.digest == self.replayed


def read_events(log_folder: Path, after: int = 0) -> Iterator[Event]:
    """Events after a record, oldest first."""
    return (events.decode(payload, number) for number, payload in read_records(log_folder, after))


def first_start(log_folder: Path) -> ServiceStarted | None:
    """The first event of a log; None if it is empty or its beginning is missing."""
    first = next(read_events(log_folder), None)
    return first if isinstance(first, ServiceStarted) else None


def initial_state(first: ServiceStarted) -> ServiceState:
    """The state of a service before the first event of its log."""
    with events.stored_values("record 1 of the log"):
        name = first.settings["domain"]
        try:
            domain = DOMAINS[name]
        except TownletError as error:
            fix = f"name its file, too: {name}.py --allow-code"
            raise ForeignLog(f"the domain '{name}' made these decisions, but it is not known here", fix) from error
        domain.check_log(first.settings)
        return ServiceState(domain, stored_settings(domain, first.settings))


def state_of(snapshot: Snapshot) -> ServiceState:
    """The state of a service in a snapshot."""
    domain = DOMAINS[snapshot.domain_name]
    state = ServiceState(domain, snapshot.settings(domain))
    snapshots.restore_service(snapshot, state)
    return state


def begin(source: EventSource, base: Snapshot | None) -> ServiceState:
    """The state of a service in this snapshot, or before its first event."""
    if base is not None:
        return state_of(base)
    return initial_state(read_start(source))


def read_start(source: EventSource) -> ServiceStarted:
    """The first event of a service whose log is complete."""
    first = next(source.events(), None)
    if not isinstance(first, ServiceStarted):
        raise TownletError("the log does not begin with the start of a service", "restore a backup")
    return first


class EventSource(Protocol):
    """The stored events of a service, in their order."""

    def events(self, after: int = 0) -> Iterator[Event]:
        """All events after a record."""


class LogFolder:
    """The events in the folder of a write-ahead log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def events(self, after: int = 0) -> Iterator[Event]:
        segments = list_segments(self.folder)
        if segments and segments[0].first > after + 1:
            what = (
                f"the log begins with record {segments[0].first}, but no intact snapshot covers the records before it"
            )
            raise TownletError(what, "restore a backup, or start in a new folder with --folder", self.folder)
        return read_events(self.folder, after)


def recover_folder(
    log_folder: Path, log_id: str, last: int, state: ServiceState, trainer: Trainer, versions: VersionStore
) -> list[StorageNotice]:
    """Bring state and trainer to the end of the log, at the record `last`; returns notices of damaged snapshots."""
    notices: list[StorageNotice] = []
    newest = snapshots.load_newest(log_folder.parent / SNAPSHOTS, log_id, last, notices)
    recover(LogFolder(log_folder), newest, state, trainer, versions)
    return notices


def recover(
    source: EventSource, newest: Snapshot | None, state: ServiceState, trainer: Trainer, versions: VersionStore
) -> None:
    """Bring state and trainer to the end of the events."""
    snapshot, version_events, anchor = _plan(source, newest, state, versions)
    after = snapshot.record if snapshot else 0
    if snapshot:
        snapshots.restore(snapshot, state, trainer)
    replayer = Replayer(trainer, version_events, lambda version: versions.open(version)[1])
    for record, event in enumerate(source.events(after), after + 1):
        state.apply_stored(event, record)
        if event == anchor:
            trainer.restore(versions.open(anchor.version)[1])
            anchor = None
        elif anchor is None:  # steps before the anchor are already in its weights
            replayer.apply(event)


def _plan(
    source: EventSource, snapshot: Snapshot | None, state: ServiceState, versions: VersionStore
) -> tuple[Snapshot | None, list[Event], VersionPublished | None]:
    """The shortest recovery: the snapshot to start from, the version events after it, and the version to load (anchor).

    Training steps before the anchor are not repeated. A snapshot is of no use if the trainer later rewinds to an older
    version that is no longer stored.
    """
    if snapshot:
        later, learning = version_events_after(source, snapshot.record), snapshot.settings(state.domain).learning
        anchor = None if _prioritized(later, learning) else _newest_intact(later, versions)
        if anchor or _rewind_targets_available(later, versions):
            return snapshot, later, anchor
    every = version_events_after(source)
    anchor = None if _prioritized(every, state.settings.learning) else _newest_intact(every, versions)
    if anchor is None and not _rewind_targets_available(every, versions):
        # Not all steps can be repeated, so the sampling priorities will differ from the original ones.
        anchor = _newest_intact(every, versions)
    return None, every, anchor


def version_events_after(source: EventSource, after: int = 0) -> list[Event]:
    """Events after a record that change the settings of the trainer, publish a version, or rewind to one."""
    kinds = ServiceStarted | VersionPublished | TrainerRewound
    return [event for event in source.events(after) if isinstance(event, kinds)]


def _rewind_targets_available(version_events: Sequence[Event], versions: VersionStore) -> bool:
    """Whether every version that the trainer rewinds to is published in these events or still stored."""
    rebuilt: set[int] = set()
    for event in version_events:
        if isinstance(event, VersionPublished):
            rebuilt.add(event.version)
        elif isinstance(event, TrainerRewound) and not (event.version in rebuilt or _intact(versions, event.version)):
            return False
    return True


def _prioritized(version_events: Sequence[Event], initial: LearningSettings) -> bool:
    """Whether priorities were ever used; they depend on every step, so all steps must be repeated."""
    return initial.prioritized or any(
        isinstance(event, ServiceStarted) and event.settings["learning"]["prioritized"] for event in version_events
    )


def _newest_intact(version_events: Sequence[Event], versions: VersionStore) -> VersionPublished | None:
    stored = set(versions.list_versions())
    for index, event in reversed(list(enumerate(version_events))):
        if not isinstance(event, VersionPublished) or event.version not in stored:
            continue
        if _intact(versions, event.version) and _rewind_targets_available(version_events[index:], versions):
            return event
    return None


def _intact(versions: VersionStore, version: int) -> bool:
    try:
        versions.open(version)
        return True
    except TownletError:
        return False


class Replayer:
    """Repeats the steps of a trainer.

    `load` returns the trainer's state in a version that was published before the first replayed event.
    """

    def __init__(self, trainer: Trainer, version_events: Iterable[Event], load: Callable[[int], State]) -> None:
        self._trainer, self._load = trainer, load
        self._rewound = {event.version for event in version_events if isinstance(event, TrainerRewound)}
        self._states: dict[int, State] = {}  # states of replayed versions that are rewound to later

    def apply(self, event: Event) -> None:
        """Repeat what an event did to the trainer; the service state must have applied it already."""
        match event:
            case events.TrainingStep():
                self._repeat_step()
            case events.StepUndone():
                self._trainer.undo()
            case VersionPublished(version=version) if version in self._rewound:
                self._states[version] = self._trainer.copy()
            case TrainerRewound(version=version):
                self._trainer.rewind(self._states[version] if version in self._states else self._load(version))

    def _repeat_step(self) -> None:
        # A step was taken only if the experience allowed it, so repeating all of them takes time by the log's length.
        if not self._trainer.allowed or (batch := self._trainer.sample()) is None:
            what = "the log is damaged: it has a training step without enough experience"
            raise TownletError(what, "restore a backup")
        try:
            self._trainer.learn(batch)
        except Exception:  # the original step failed too; the StepUndone that follows has no further effect
            self._trainer.undo()


def replay(
    source: EventSource, load: Callable[[int], State], base: Snapshot | None = None
) -> Iterator[ReplayedVersion]:
    """Replay all events, or those after the snapshot `base` if earlier ones have been removed.

    `load` reads the trainer's state in a version that was published before, or whose publication was lost in a crash.
    """
    state, after = begin(source, base), base.record if base else 0
    trainer = Trainer(state.domain, state)
    if base is not None:
        trainer.restore(base.state["trainer"])
    replayer = Replayer(trainer, version_events_after(source, after), load)
    for record, event in enumerate(source.events(after), after + 1):
        state.apply_stored(event, record)
        replayer.apply(event)
        if isinstance(event, VersionPublished):
            yield ReplayedVersion(event.version, event.step, event.digest, weights_digest(trainer.weights()))
