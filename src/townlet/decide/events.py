"""What the log holds, one event a record. Everything that the service knows follows from them, in their order."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Final, NamedTuple

from townlet.decide.json import parsed, written
from townlet.errors import TownletError

OTHER_RELEASE: Final = "use the version of Townlet that wrote it, or name a new folder with --folder"


class ServiceStarted(NamedTuple):
    """The service started, with these settings from now on."""

    key: str  # secret of the decision ids from now on
    settings: dict[str, Any]
    at: float  # seconds since 1970, as all `at`
    schema: str  # fingerprint of the events that follow


class DecisionMade(NamedTuple):
    """An observation was answered."""

    number: int  # of the decision: 1, 2, …
    territory: str
    time: float  # the game's
    at: float
    message: dict[str, Any]  # the observation as it came
    action: int
    propensity: float  # the probability with which the action was drawn
    confidence: float
    send: bool
    reason: str
    expected: float | None  # what the gate expected, None where it rated nothing
    gate: str  # hash of the gate's settings
    version: int  # that decided; 0 where no network did
    reply: dict[str, Any]  # what the game was told, for when it asks again
    client: str  # hash of the client that owns the territory; nothing that is learned depends on it


class OutcomeRecorded(NamedTuple):
    """It is known what came of a decision."""

    number: int
    value: float
    how: str  # report, next or failed


class DecisionsExpired(NamedTuple):
    """Decisions that waited for their outcome for longer than `after` seconds wait no more, nor those beyond `most`."""

    at: float
    after: float
    most: int


class TrainingStep(NamedTuple):
    """The trainer drew a batch from all that stands before this in the log."""

    step: int


class StepUndone(NamedTuple):
    """A step failed and left no trace."""

    step: int
    why: str


class VersionPublished(NamedTuple):
    """A version was written, of the weights after a step."""

    version: int
    step: int
    digest: str


class TrainerRewound(NamedTuple):
    """What was learned last was refused: the trainer goes on from the weights of this version."""

    version: int


class ServingChanged(NamedTuple):
    """Another version decides from now on, or the same is held."""

    version: int  # 0 while none does
    why: str
    at: float
    number: int  # of this change in the serving record
    gate_only: bool  # the kill switch
    pinned: int | None


class ReportsRejected(NamedTuple):
    """Total counts of reports that were refused; logged at most once a second."""

    duplicates: int
    late: int
    unknown: int
    contradicting: int


Event = (
    ServiceStarted
    | DecisionMade
    | OutcomeRecorded
    | DecisionsExpired
    | TrainingStep
    | StepUndone
    | VersionPublished
    | TrainerRewound
    | ServingChanged
    | ReportsRejected
)
EVENT_TYPES: Final[dict[str, type[Any]]] = {
    kind.__name__.lower(): kind
    for kind in (
        ServiceStarted,
        DecisionMade,
        OutcomeRecorded,
        DecisionsExpired,
        TrainingStep,
        StepUndone,
        VersionPublished,
        TrainerRewound,
        ServingChanged,
        ReportsRejected,
    )
}


def _schema() -> str:
    """A fingerprint of all events and their fields: a log with others is refused, whatever its format number."""
    told = {
        name: [f"{field}: {of}" for field, of in kind.__annotations__.items()] for name, kind in EVENT_TYPES.items()
    }
    return sha256(json.dumps(told).encode()).hexdigest()[:16]


SCHEMA: Final = _schema()


def encode(event: Event) -> bytes:
    """One record."""
    name = type(event).__name__.lower()
    return written([name, *event])


def decode(record: bytes) -> Event:
    """The event of a record; a checksum has shown already that it is what was written."""
    try:
        name, *fields = parsed(record)
        event: Event = EVENT_TYPES[name](*fields)
    except (ValueError, KeyError, TypeError) as error:
        what = f"this release cannot read a record of the log: {record[:60]!r}"
        raise TownletError(what, OTHER_RELEASE) from error
    if isinstance(event, ServiceStarted) and event.schema != SCHEMA:
        raise TownletError("the log was written by another version of Townlet, with other events", OTHER_RELEASE)
    return event
