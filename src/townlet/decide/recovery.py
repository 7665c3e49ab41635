"""A service from its log: what was decided, what waits, what was learned.

Weights come from the newest version that is whole, and the steps after it are made again. `replay` makes them all
again, from the first weights on, and compares every version with what the log says of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from townlet.decide.domains import DOMAINS
from townlet.decide.events import (
    Event,
    ServiceStarted,
    StepUndone,
    TrainerRewound,
    TrainingStep,
    VersionPublished,
    decode,
)
from townlet.decide.settings import LearningSettings, settings_model
from townlet.decide.state import ServiceState
from townlet.decide.storage import LOG, SNAPSHOTS, VERSIONS, StorageNotice, snapshots
from townlet.decide.storage.segments import list_segments, read_records
from townlet.decide.storage.snapshots import Snapshot
from townlet.decide.storage.versions import VersionStore, weights_digest
from townlet.decide.trainer import Trainer
from townlet.errors import SourceLocation, TownletError
from townlet.interfaces.state import State
from townlet.runs import checkpoint


class ReplayedVersion(NamedTuple):
    """A version of the log, and whether its steps give the same weights again."""

    version: int
    step: int
    digest: str
    found: str

    @property
    def same(self) -> bool:
        """To the last bit."""
        return self.digest == self.found


class RecoveryPlan(NamedTuple):
    """How one comes to the end of a log."""

    begun: Snapshot | None  # None: from its beginning
    turns: list[Event]  # from there on
    anchor: VersionPublished | None  # steps before it need not be made again


def events(folder: Path, after: int = 0) -> Iterator[Event]:
    """All that was written after a record, oldest first."""
    return (decode(payload) for _, payload in read_records(folder, after))


def first_start(folder: Path) -> ServiceStarted | None:
    """How a log begins; None where it is empty, or its beginning was let go of."""
    first = next(events(folder), None)
    return first if isinstance(first, ServiceStarted) else None


def recover(
    folder: Path, log_id: str, last: int, ledger: ServiceState, trainer: Trainer, versions: VersionStore
) -> list[StorageNotice]:
    """Bring ledger and trainer to where the log ends, which is at the record `last`; returns damaged snapshots."""
    notices: list[StorageNotice] = []
    newest = snapshots.load_newest(folder.parent / SNAPSHOTS, log_id, last, notices)
    begun, turns, anchor = _ways(folder, newest, ledger, versions)
    _require_covered(folder, begun.record if begun else 0)
    if begun:
        begun.restore(ledger, trainer)
    past = Replayer(trainer, _returned(turns), lambda version: versions.open(version)[1])
    for event in events(folder, begun.record if begun else 0):
        ledger.apply(event)
        if event == anchor:
            trainer.restore(versions.open(anchor.version)[1])
            anchor = None
        elif anchor is None:  # else the version knows it already
            past.apply(event)
    return notices


def _require_covered(folder: Path, record: int) -> None:
    """Refuse a log whose first record comes after the one where reading must start: a part of it is missing."""
    segments = list_segments(folder)
    if segments and segments[0].first > record + 1:
        what = f"the log begins with record {segments[0].first}, but no whole snapshot covers the records before it"
        raise TownletError(
            what, "restore a backup, or start in a new folder with --folder", SourceLocation(str(folder))
        )


def _ways(folder: Path, begun: Snapshot | None, ledger: ServiceState, versions: VersionStore) -> RecoveryPlan:
    """The shortest way: a milestone is of use unless a version must be made again that is older than it, and gone."""
    if begun:
        turns, learning = publish_events(folder, begun.record), begun.settings(ledger.domain).learning
        anchor = None if _prioritized(turns, learning) else _newest_whole(turns, versions)
        if anchor or _openable(turns, versions):  # what was gone back to before the anchor need not be there
            return RecoveryPlan(begun, turns, anchor)
    turns = publish_events(folder)
    anchor = None if _prioritized(turns, ledger.settings.learning) else _newest_whole(turns, versions)
    if anchor is None and not _openable(turns, versions):
        anchor = _newest_whole(turns, versions)  # whoever cannot go all the way goes on with other priorities
    return RecoveryPlan(None, turns, anchor)


def publish_events(folder: Path, start: int = 0) -> list[Event]:
    """Where learning was set, came to a version, or went back to one."""
    return [
        event
        for event in events(folder, start)
        if isinstance(event, ServiceStarted | VersionPublished | TrainerRewound)
    ]


def _openable(turns: Sequence[Event], versions: VersionStore) -> bool:
    """Whether each version that is gone back to was either made after these began, or is still there."""
    made = set[int]()
    for event in turns:
        if isinstance(event, VersionPublished):
            made.add(event.version)
        elif isinstance(event, TrainerRewound) and event.version not in made and not _whole(versions, event.version):
            return False
    return True


def _prioritized(turns: Sequence[Event], first: LearningSettings) -> bool:
    """Whether priorities counted at any time; these follow from every step, so that all must be made again."""
    return first.prioritized or any(
        isinstance(event, ServiceStarted) and event.settings["learning"]["prioritized"] for event in turns
    )


def _newest_whole(turns: Sequence[Event], versions: VersionStore) -> VersionPublished | None:
    """The last version that is still there and whole, from which on all that is gone back to can be had."""
    there = set(versions.list_versions())
    for place, event in reversed(list(enumerate(turns))):
        if not isinstance(event, VersionPublished) or event.version not in there:
            continue
        # Damaged, an older one will do, with more steps to make again.
        if _whole(versions, event.version) and _openable(turns[place:], versions):
            return event
    return None


def _whole(versions: VersionStore, version: int) -> bool:
    try:
        versions.open(version)
        return True
    except TownletError:
        return False


class Replayer:
    """Makes the trainer's steps again. What was published before this begins is found by `open`."""

    def __init__(self, trainer: Trainer, wanted: Collection[int], open: Callable[[int], State]) -> None:
        self._trainer, self._wanted, self._open = trainer, wanted, open
        self._known: dict[int, State] = {}  # at the versions that somebody goes back to later

    def apply(self, event: Event) -> None:
        """What was learned at an event that the ledger has already."""
        match event:
            case TrainingStep():
                repeat_step(self._trainer)
            case StepUndone():
                self._trainer.undo()
            case VersionPublished(version=version) if version in self._wanted:
                self._known[version] = self._trainer.copy()
            case TrainerRewound(version=version):
                self._trainer.go_back(self._known[version] if version in self._known else self._open(version))


def _returned(turns: Iterable[Event]) -> set[int]:
    """Versions that the trainer went back to."""
    return {event.version for event in turns if isinstance(event, TrainerRewound)}


def repeat_step(trainer: Trainer) -> None:
    """The step that comes now; where it fails, as it did then, the log says next that it was undone."""
    sample = trainer.draw()
    if sample is None:
        raise TownletError("the log tells of a step for which it has too little experience", "it is damaged")
    try:
        trainer.learn(sample)
    except Exception:
        trainer.undo()


def replay(
    folder: Path, ledger: ServiceState, trainer: Trainer, open: Callable[[int], State]
) -> Iterator[ReplayedVersion]:
    """Everything again from nothing; each version as it comes."""
    past = Replayer(trainer, _returned(publish_events(folder)), open)
    for event in events(folder):
        ledger.apply(event)
        past.apply(event)
        if isinstance(event, VersionPublished):
            yield ReplayedVersion(event.version, event.step, event.digest, weights_digest(trainer.weights()))


def replay_folder(folder: Path) -> Iterator[ReplayedVersion]:
    """The same for a service's folder, with the settings that its log names."""
    first = first_start(folder / LOG) if (folder / LOG).is_dir() else None
    if first is None:
        raise TownletError(f"{folder} has no decision log", "name the folder of a service with --folder")
    domain = DOMAINS[first.settings["domain"]]
    ledger = ServiceState(domain, settings_model(domain).model_validate_json(json.dumps(first.settings)))
    yield from replay(folder / LOG, ledger, Trainer(domain, ledger), lambda version: _kept(folder, version))


def _kept(folder: Path, version: int) -> State:
    """What the trainer knew at a version, from the version itself: an operator may go back further than we think."""
    state: State = checkpoint.load(folder / VERSIONS / checkpoint.folder_name(version))[0]["trainer"]
    return state
