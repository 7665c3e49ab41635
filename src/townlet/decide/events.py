"""Events of the write-ahead log, one per record. Applied in order, they determine the state of the service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final, NamedTuple, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from townlet.config.models import first_error
from townlet.config.scalar import shorten
from townlet.errors import TownletError

OTHER_RELEASE: Final = "use the version of Townlet that wrote it, or choose a new folder with --folder"


class ServiceStarted(NamedTuple):
    """The service started; these settings apply from now on."""

    key: str  # secret that signs the decision ids of this start
    settings: dict[str, Any]
    at: float  # seconds since 1970, as every `at`
    schema: str  # fingerprint of the events that follow


class DecisionMade(NamedTuple):
    """An observation was answered."""

    number: int  # number of the decision: 1, 2, …
    territory: str
    game_time: float  # seconds by the game's clock
    at: float  # seconds by the server's clock
    message: dict[str, Any]  # the observation as received
    action: int
    propensity: float  # probability with which the action was sampled
    confidence: float
    send: bool
    reason: str
    expected: float | None  # the gate's estimate; None if it rated nothing
    gate: str  # hash of the gate's settings
    version: int  # version of the network that decided; 0 if the gate decided alone
    reply: dict[str, Any]  # as sent, for repeated requests
    client: str  # hash of the client that owns the territory; not used in learning


class OutcomeRecorded(NamedTuple):
    """The outcome of a decision."""

    number: int
    value: float
    how: str  # "report": reported; "observed": from the next observation; "failed": not carried out


class DecisionActivated(NamedTuple):
    """A deferred decision was carried out: from now on it counts."""

    number: int


class DecisionsExpired(NamedTuple):
    """Decisions were pending for too long, or were the oldest ones beyond the limit."""

    at: float
    numbers: list[int]


class TerritoriesEvicted(NamedTuple):
    """The state of these territories was removed, because there were too many; later they begin as new ones."""

    names: list[str]


class TrainingStep(NamedTuple):
    """The trainer sampled a batch from the experience up to this record."""

    step: int


class StepUndone(NamedTuple):
    """A training step failed and was undone."""

    step: int
    why: str


class VersionPublished(NamedTuple):
    """A version was written, with the weights after a training step."""

    version: int
    step: int
    digest: str


class TrainerRewound(NamedTuple):
    """The trainer was reset to the weights of this version, because newer ones were refused."""

    version: int


class ServingChanged(NamedTuple):
    """Another version serves from now on, or the pin or gate-only mode changed."""

    version: int  # 0: no version serves
    why: str
    at: float
    number: int  # number of this change in the serving log
    gate_only: bool  # whether gate-only mode is on
    pinned: int | None


class ReportsRejected(NamedTuple):
    """Total counts of rejected reports; logged at most once a second."""

    duplicates: int
    late: int
    unknown: int
    contradicting: int


Event = (
    ServiceStarted | DecisionMade | OutcomeRecorded | DecisionActivated | DecisionsExpired | TerritoriesEvicted
    | TrainingStep | StepUndone
    | VersionPublished | TrainerRewound | ServingChanged | ReportsRejected
)  # fmt: skip
EVENT_TYPES: Final[dict[str, type[Any]]] = {kind.__name__.lower(): kind for kind in get_args(Event)}
STRICT: Final = ConfigDict(strict=True, allow_inf_nan=False)
VALIDATORS: Final[dict[str, Callable[[list[Any]], Event]]] = {  # without the wrapper of `TypeAdapter`, which takes time
    name: TypeAdapter(kind, config=STRICT).validator.validate_python for name, kind in EVENT_TYPES.items()
}
# Fingerprint of all events and their fields; a log with another one is refused.
SCHEMA: Final = sha256(
    json.dumps(
        {name: [f"{field}: {of}" for field, of in kind.__annotations__.items()] for name, kind in EVENT_TYPES.items()}
    ).encode()
).hexdigest()[:16]


@contextmanager
def stored_values(place: str) -> Iterator[None]:
    """While stored values are used: an error that they cause, also in a domain, names their place."""
    try:
        yield
    except TownletError:
        raise
    except Exception as error:
        raise unusable(place, error) from error


def unusable(place: str, error: Exception) -> TownletError:
    """What is reported if stored values cause this error."""
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, ValidationError):
        what = first_error(error.errors(), "it")
    return TownletError(shorten(f"{place} has values that cannot be used: {what}", 300), "restore a backup")


def encode(event: Event) -> bytes:
    """One record, as compact JSON; raises ValueError for NaN and infinity."""
    values = [type(event).__name__.lower(), *event]
    record = to_json(values)
    if b"NaN" in record or b"Infinity" in record:
        json.dumps(values, allow_nan=False)  # raises, unless they are inside a string
    return record


def decode(record: bytes, number: int | None = None) -> Event:
    """The event of a record whose checksum has been verified; its number is for messages."""
    try:
        name, *fields = from_json(record, allow_inf_nan=False)
        event = VALIDATORS[name](fields)
    except (ValueError, KeyError, TypeError) as error:
        which = "a record" if number is None else f"record {number}"
        raise TownletError(f"this release cannot read {which} of the log: {record[:60]!r}", OTHER_RELEASE) from error
    if isinstance(event, ServiceStarted) and event.schema != SCHEMA:
        raise TownletError("the log was written by another version of Townlet, with other events", OTHER_RELEASE)
    return event
