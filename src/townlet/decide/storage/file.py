"""The embedded storage: one folder with a write-ahead log, snapshots and versions, for one process.

All state is kept in memory and changes under one lock, in the order of the log. Nothing under the lock waits for the
disk or for training.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from townlet.decide import events
from townlet.decide.clock import PAUSE, ServiceClock, log_pause
from townlet.decide.domain import Domain, Observation, ObservationRow
from townlet.decide.join import DecisionCounts, OutcomeStatus
from townlet.decide.recovery import first_start, read_events, recover_folder
from townlet.decide.service_loop import ServiceLoop
from townlet.decide.settings import DecideSettings, settings_hash
from townlet.decide.state import UNLOGGED, ServiceState
from townlet.decide.storage import LOG, SNAPSHOTS, VERSIONS, StorageNotice, snapshots
from townlet.decide.storage.folder import open_service_folder
from townlet.decide.storage.log import LogStopped, WriteAheadLog
from townlet.decide.storage.protocol import ReportedDecision, ReportTarget, StoredReply, TerritoryUse
from townlet.decide.storage.retention import needed_versions, plan_retention
from townlet.decide.storage.serving_log import ServingChange, check_references
from townlet.decide.storage.version_folder import VersionFolder
from townlet.decide.storage.versions import VersionStore
from townlet.decide.territories import max_pending
from townlet.decide.trainer import Trainer
from townlet.errors import TownletError
from townlet.rng import Streams
from townlet.runs import checkpoint

DURABLE_TIMEOUT: Final = 60.0  # seconds to wait until the log is on disk


class FileStorage:
    """The state, log, versions and trainer of the service in a folder."""

    concurrency = 0

    def __init__(
        self, folder: Path, domain: Domain, settings: DecideSettings, clock: ServiceClock | None = None,
        *, accept_data_loss: bool = False,
    ) -> None:  # fmt: skip
        self.folder, self.domain, self.settings = folder, domain, settings
        self.clock = clock or ServiceClock()
        self.lock = threading.RLock()
        self.gate_hash = settings_hash(settings.gate)
        self._missed = set[int]()  # pending decisions whose next observation was not logged
        open_service_folder(folder)
        check = partial(check_references, folder)
        self.log = WriteAheadLog(folder / LOG, settings.segment_bytes, accept_data_loss=accept_data_loss, check=check)
        try:
            self._recover(accept_data_loss)
        except BaseException:
            self.log.close()  # releases its lock
            raise

    def _recover(self, accept_data_loss: bool) -> None:
        folder, domain, settings, control = self.folder, self.domain, self.settings, self.log.control_at_start
        self.state = ServiceState(domain, settings)
        if first := first_start(folder / LOG):
            with events.stored_values("record 1 of the log"):
                self.state.configure(first)  # refuses incompatible settings before anything else is read
        self.trainer = Trainer(domain, self.state)
        build, log_id = domain.policies[settings.policy].build, self.log.log_id.hex()
        template = build(Streams(0).torch("empty"), settings.options)  # its weights are replaced by those of a version
        self._archive = VersionFolder(folder / VERSIONS)
        self._archive.needed = needed_versions([one.info for one in checkpoint.scan(folder / SNAPSHOTS)[0]])
        self.versions = VersionStore(
            self._archive,
            template,
            settings.versions,
            synced_record=lambda: self.log.synced,
            log_id=log_id,
        )
        damaged = recover_folder(folder / LOG, log_id, self.log.last, self.state, self.trainer, self.versions)
        self._found = [*self.log.notices, *damaged]
        # The serving log must agree with the write-ahead log and its control file; if not, gate-only mode is on.
        if not accept_data_loss or control.gate_only:  # accepting data loss must not turn gate-only mode off
            self.versions.cross_check("the control file of the log", control.serving, control.gate_only)
        if (logged := self.state.serving) is not None:
            self.versions.cross_check("the log", logged.number, logged.gate_only)
        self.versions.on_change = self._log_serving
        if accept_data_loss:  # otherwise the next start would report these changes as missing
            self.log.set_serving(self.versions.change_number, self.versions.gate_only)
        # Observations made while the service was down, or while the disk failed, are unknown.
        self._missed.update(self.state.pending)
        self.clock.advance_to(self.state.join.clock)  # so that stored times are never in the future
        pause = self.clock() - self.state.join.clock
        if self.state.pending and pause > PAUSE:
            log_pause(pause)
        # A new random stream after each start, so that logged draws are not repeated.
        self.decision_stream = f"from {self.state.decisions}"
        self._logged_rejections = self.state.join.rejected
        self.write(
            events.ServiceStarted(secrets.token_hex(16), settings.model_dump(mode="json"), self.clock(), events.SCHEMA)
        )

    def _log_serving(self, change: ServingChange) -> None:
        """Store a serving change in the log and in its control file, which can be written on a full disk."""
        why = f"{change.kind}: {change.reason}"
        self.try_write(
            events.ServingChanged(change.serving or 0, why, change.at, change.number, change.gate_only, change.pinned)
        )
        self.log.set_serving(change.number, change.gate_only)

    def write(self, event: events.Event, observation: Observation | None = None) -> int:
        """Append an event to the log and apply it, in the same order for all threads; returns its record number."""
        with self.lock:
            record = self.log.append(events.encode(event))
            self.state.apply(event, observation)
            return record

    def try_write(self, event: events.Event, observation: Observation | None = None) -> int | None:
        """As `write`; None if the log is stopped."""
        try:
            return self.write(event, observation)
        except LogStopped:
            return None  # reported by `log.problem`

    # Decision path

    @property
    def problem(self) -> str | None:
        """Why the log cannot be written at the moment."""
        return self.log.problem

    @property
    def notices(self) -> list[StorageNotice]:
        """Damage found at startup, a wrong clock, and failures to write the control file."""
        notices = [*self._found, *self.clock.notices()]
        if problem := self.log.control_problem:
            what = f"The control file of the log is out of date: {problem}"
            notices.append(StorageNotice("control", what, "Check the disk.", critical=False))
        return notices

    @property
    def loops(self) -> Sequence[ServiceLoop]:
        """The loops of the log."""
        return [self.log.control_loop]

    @property
    def seconds_since_refresh(self) -> float:
        """0: there are no other processes."""
        return 0.0

    @property
    def durable(self) -> int:
        """The last record that is on disk."""
        return self.log.synced

    def on_durable(self, callback: Callable[[int], object]) -> None:
        """Call this with the last record on disk, in the thread of the log, after every commit."""
        self.log.on_commit = callback

    @contextmanager
    def batch(self, territories: Iterable[str]) -> Iterator[FileBatch]:
        """Open these territories. Observations are answered by one thread, so nothing has to be locked."""
        yield FileBatch(self)

    @contextmanager
    def reports(self, targets: Sequence[ReportTarget]) -> Iterator[Iterator[ReportedDecision | None]]:
        """Open the decisions of reports, None if there is none; each is read after what was done to those before it."""
        with self.lock, self.log.batch():
            numbers = map(self._number_of, targets)
            yield (None if number is None else FileReport(self, number) for number in numbers)

    def _number_of(self, target: ReportTarget) -> int | None:
        if not target.by_territory:
            return self.state.ids.resolve(target.id)
        last = self.state.territory(target.id).last
        return last.number if last else None

    def unlogged_id(self) -> str:
        """An id for a decision that could not be logged: after a crash its number may be reused."""
        return self.state.ids.create(UNLOGGED)

    def is_unlogged(self, id: str) -> bool:
        """Whether an id was made by `unlogged_id`."""
        return f"-{UNLOGGED}-" in id and self.state.ids.resolve(id) == UNLOGGED

    def processes(self) -> list[dict[str, Any]]:
        """Empty: this process is the only one."""
        return []

    def learner_report(self) -> tuple[dict[str, Any], float | None]:
        """Nothing: this process is the learner."""
        return {}, None

    def counts(self) -> DecisionCounts:
        """All decisions by status."""
        return self.state.join.counts

    def maintain(self) -> None:
        """Expire decisions that have been pending for too long, and log the counts of rejected reports."""
        self.log.check_stall()
        now, state = self.clock(), self.state
        with self.lock:
            limit = max_pending(self.domain, self.settings.memory)
            if numbers := state.join.due(now, self.settings.memory.expire_after, limit):
                self.try_write(events.DecisionsExpired(now, numbers))
            self._missed &= state.pending.keys()
            self._log_rejections()

    def _log_rejections(self) -> None:
        with self.lock:
            rejected = self.state.join.rejected
            if rejected != self._logged_rejections and self.try_write(events.ReportsRejected(*rejected)):
                self._logged_rejections = rejected

    def close(self) -> None:
        """Write what is left, and release the folder. Raises `LogStopped` if something could not be written."""
        self._log_rejections()
        self.log.close()

    # Training

    @property
    def record(self) -> int:
        """The last record that was applied to the state."""
        return self.log.last

    def catch_up(self) -> None:
        """Nothing to do: no other process writes this log."""

    def recent_events(self, count: int) -> Iterable[events.Event]:
        """The last events, oldest first."""
        return read_events(self.folder / LOG, max(0, self.log.last - count))

    def await_durable(self) -> int:
        """Wait until all records are on disk; returns the last one, to which a version may refer."""
        if not self.log.wait(self.log.last, DURABLE_TIMEOUT):
            raise TownletError("the log cannot be written to disk", str(self.log.problem or "check the disk"))
        return self.log.synced

    def version_info(self) -> dict[str, Any]:
        """The log to which a version belongs."""
        return {"log": self.log.log_id.hex()}

    def save_snapshot(self) -> None:
        """Save a snapshot, so that the next start is fast. The trainer must be idle."""
        with self.lock:  # briefly: every decision waits for it
            taken = snapshots.take(self, self.log.log_id.hex())
        if self.log.wait(taken.info["record"], DURABLE_TIMEOUT):
            folder = self.folder / SNAPSHOTS
            checkpoint.save(folder, checkpoint.folder_name(taken.info["record"]), taken.state(), taken.info)
            if self.settings.keep is None and self.log.oldest == 1:
                checkpoint.prune(folder)
            else:
                self._retain()
            self.log.write_control()

    def _retain(self) -> None:
        """Remove snapshots and segments that are not kept. A damaged snapshot stays, and covers nothing."""
        folder, (intact, _) = self.folder / SNAPSHOTS, checkpoint.scan(self.folder / SNAPSHOTS)
        usable = [one for one in intact if snapshots.is_usable(one.info, self.log.log_id.hex())]
        infos = [one.info for one in usable]
        retention = plan_retention(infos, self.settings.keep, self.clock())
        kept = [info for info in infos if info["record"] in retention.snapshots]
        for one in usable:
            if retention.base is not None and one.info["record"] == retention.base:
                checkpoint.verify(one.path)
                self.log.remove_before(retention.base)
        self._archive.needed = needed_versions(kept)
        checkpoint.remove(folder, [one.name for one in usable if one.info["record"] not in retention.snapshots])
        self.log.begin_segment()  # so that segments end where snapshots are

    # For the batch: pending decisions whose next observation is unknown

    def is_missed(self, number: int) -> bool:
        """Whether the next observation after a decision was not logged, so that its outcome stays unknown."""
        return number in self._missed

    def miss(self, *numbers: int) -> None:
        """Note that the next observation after decisions was not logged: a later one is not the next one."""
        self._missed.update(numbers)


class FileBatch:
    """Territories in memory, for the thread that answers observations."""

    def __init__(self, storage: FileStorage) -> None:
        self._storage, self._state = storage, storage.state

    def last_use(self, territory: str) -> TerritoryUse | None:
        last = self._state.territory(territory).last
        return TerritoryUse(last.game_time, last.at, last.client) if last else None

    def reply_at(self, territory: str, time: float) -> StoredReply | None:
        reply = self._state.territory(territory).answer_at(time)
        return None if reply is None else StoredReply(reply, self._storage.log.last)

    def state(self, territory: str) -> ObservationRow:
        return self._state.territory(territory).state

    def pending_before(self, territory: str, time: float) -> list[tuple[int, ObservationRow]]:
        numbers = self._state.join.pending_before(territory, time)
        return [(n, self._state.pending[n].row) for n in numbers if not self._storage.is_missed(n)]

    def new_id(self) -> tuple[int, str]:
        number = self._state.join.last + 1
        return number, self._state.ids.create(number)

    def write(self, event: events.Event, observation: Observation | None = None) -> int | None:
        record = self._storage.try_write(event, observation)
        if isinstance(event, events.DecisionMade):
            if surplus := self._state.surplus_territories:
                self._storage.try_write(events.TerritoriesEvicted(surplus))
        elif record is None and isinstance(event, events.OutcomeRecorded):
            self._storage.miss(event.number)
        elif record is None and isinstance(event, events.DecisionsExpired):
            self._storage.miss(*event.numbers)
        return record

    @contextmanager
    def commit(self) -> Iterator[None]:
        with self._storage.lock, self._storage.log.batch():
            yield


class FileReport:
    """A decision in memory, while the lock is held."""

    def __init__(self, storage: FileStorage, number: int) -> None:
        self._storage, self._number, self._join = storage, number, storage.state.join
        experience = storage.state.pending.get(number)
        self.pending = self._join.is_pending(number)
        self.inactive = number in storage.state.inactive or self._join.expired_inactive(number)
        self.status = self._join.status(number)
        self.client = experience.decision.client if experience else ""
        self.at = experience.decision.at if experience else 0.0

    def join(self, value: float, how: str) -> int | None:
        return self._storage.try_write(events.OutcomeRecorded(self._number, value, how))

    def activate(self) -> int | None:
        return self._storage.try_write(events.DecisionActivated(self._number))

    def reject(self, digest: int) -> tuple[OutcomeStatus, int]:
        """Only counted, not logged: a flood of reports must not fill the disk."""
        return self._join.count_rejected(self._number, digest), self._storage.log.last

    def contradict(self) -> None:
        self._join.count_contradicting()
