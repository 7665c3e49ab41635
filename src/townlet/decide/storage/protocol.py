"""What the decision path needs of a storage, and what the trainer needs; both storages pass one conformance suite."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from townlet.decide import events
from townlet.decide.clock import ServiceClock
from townlet.decide.domain import Domain, Observation, ObservationRow
from townlet.decide.join import DecisionCounts, OutcomeStatus
from townlet.decide.service_loop import ServiceLoop
from townlet.decide.settings import DecideSettings
from townlet.decide.state import ServiceState
from townlet.decide.storage import StorageNotice
from townlet.decide.storage.versions import VersionStore
from townlet.decide.trainer import Trainer


class TerritoryUse(NamedTuple):
    """The last observation of a territory that was answered."""

    time: float  # by the game's clock
    at: float  # by the server's clock
    client: str  # owner id of the client that sent it


class StoredReply(NamedTuple):
    """A reply that was made earlier, and its record: it may be sent once the record is durable."""

    reply: dict[str, Any]
    record: int


class Batch(Protocol):
    """Exclusive access to some territories while their observations are answered."""

    def last_use(self, territory: str) -> TerritoryUse | None:
        """Its last answered observation; None for a new territory."""

    def reply_at(self, territory: str, time: float) -> StoredReply | None:
        """The reply to an earlier observation of this time."""

    def state(self, territory: str) -> ObservationRow:
        """The columns that the domain carries from one observation to the next."""

    def pending_before(self, territory: str, time: float) -> list[tuple[int, ObservationRow]]:
        """Pending decisions made before this game time whose next observation this is, and what they answered."""

    def new_id(self) -> tuple[int, str]:
        """The number and the id of the next decision."""

    def write(self, event: events.Event, observation: Observation | None = None) -> int | None:
        """Store an event; returns its record, 0 if it is durable when the batch ends, None if it was not stored."""

    def commit(self) -> AbstractContextManager[object]:
        """Everything written inside the block becomes durable together."""


class ReportTarget(NamedTuple):
    """Names the decision of a report: by its id, or as the last one of a territory."""

    id: str
    by_territory: bool


class ReportedDecision(Protocol):
    """A decision about which a report has arrived; locked while the report is handled."""

    pending: bool
    inactive: bool  # whether it was deferred, and has not been activated or had not been when it expired
    status: int  # of a decision that is not pending, as in `join`
    client: str  # owner id of the client for which a pending decision was made
    at: float  # when a pending decision was made

    def join(self, value: float, how: str) -> int | None:
        """Store the outcome; returns its record, 0 if it is durable when the block ends, None if it was not stored."""

    def activate(self) -> int | None:
        """Let a deferred decision count; returns its record as `join` does."""

    def reject(self, digest: int) -> tuple[OutcomeStatus, int]:
        """Count a report about a decision that is not pending; returns why, and the record to wait for."""

    def contradict(self) -> None:
        """Count a report of success about a decision that was reported as failed."""


class Storage(Protocol):
    """The durable state of a decision service."""

    domain: Domain
    settings: DecideSettings
    gate_hash: str
    clock: ServiceClock
    versions: VersionStore
    concurrency: int  # batches that may be in progress at the same time, in threads; 0: a batch does not block

    @property
    def problem(self) -> str | None:
        """Why nothing can be stored at the moment."""

    @property
    def decision_stream(self) -> str:
        """Name of the random stream from which a thread samples decisions."""

    @property
    def notices(self) -> list[StorageNotice]:
        """Problems that need attention, for example damaged files found at startup."""

    @property
    def durable(self) -> int:
        """The last durable record."""

    @property
    def loops(self) -> Sequence[ServiceLoop]:
        """The loops that run in threads."""

    @property
    def seconds_since_refresh(self) -> float:
        """Since the changes of other processes to what serves were read; 0 if there are none."""

    def on_durable(self, callback: Callable[[int], object]) -> None:
        """Call this with the last durable record, in another thread, whenever further ones have become durable."""

    def batch(self, territories: Iterable[str]) -> AbstractContextManager[Batch]:
        """Open these territories; raises `StorageUnavailable`."""

    def reports(self, targets: Sequence[ReportTarget]) -> AbstractContextManager[Iterator[ReportedDecision | None]]:
        """Open the decisions of reports, None if there is none; each is read after what was done to those before it."""

    def unlogged_id(self) -> str:
        """An id for a decision that could not be stored; reports about it are refused."""

    def is_unlogged(self, id: str) -> bool:
        """Whether an id was made by `unlogged_id`."""

    def processes(self) -> list[dict[str, Any]]:
        """What all processes of the service report about themselves; empty if there is only this one."""

    def learner_report(self) -> tuple[dict[str, Any], float | None]:
        """The last statistics of a learner in another process, and their age in seconds; None: there were none."""

    def counts(self) -> DecisionCounts:
        """All decisions by status."""

    def maintain(self) -> None:
        """Expire decisions, evict territories, and count rejected reports; called once per second."""

    def close(self) -> None:
        """Store what is left, and release the storage."""


class LearnerStorage(Protocol):
    """What the trainer needs: the state that follows from all events so far, and the means to add its own."""

    domain: Domain
    settings: DecideSettings
    gate_hash: str
    clock: ServiceClock
    lock: threading.RLock
    state: ServiceState
    trainer: Trainer
    versions: VersionStore

    @property
    def problem(self) -> str | None:
        """Why nothing can be stored at the moment."""

    @property
    def record(self) -> int:
        """The last record that was applied to `state`."""

    def catch_up(self) -> None:
        """Apply the events that other processes have stored since."""

    def write(self, event: events.Event, observation: Observation | None = None) -> int:
        """Store and apply an event."""

    def recent_events(self, count: int) -> Iterable[events.Event]:
        """The last events, oldest first."""

    def await_durable(self) -> int:
        """Wait until all records are durable; returns the last one. Raises TownletError if that takes too long."""

    def version_info(self) -> dict[str, Any]:
        """What the manifest of a version says about its origin."""

    def save_snapshot(self) -> None:
        """Save the state, so that the next start is fast. The trainer must be idle."""
