"""The decision service without its server: answers observations, joins outcomes, and logs everything first.

All state changes happen under one lock, in the order of the log. Nothing under it waits for the disk or for training.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from townlet.decide import events
from townlet.decide.decider import Decider, LazyBatch
from townlet.decide.domain import Decision, Domain, InvalidMessage, Observation, OutcomeReport, RewardFromNext
from townlet.decide.join import OutcomeStatus, report_digest
from townlet.decide.recovery import first_start, recover
from townlet.decide.settings import DecideSettings, settings_hash
from townlet.decide.state import UNLOGGED, ServiceState
from townlet.decide.storage import LOG, SNAPSHOTS, TOKENS, VERSIONS, snapshots
from townlet.decide.storage.log import LogStopped, WriteAheadLog
from townlet.decide.storage.serving_log import ServingChange, check_references
from townlet.decide.storage.versions import VersionStore
from townlet.decide.territories import Clients, max_pending
from townlet.decide.trainer import Trainer
from townlet.errors import TownletError
from townlet.rng import Streams


class MonotonicClock:
    """Seconds since 1970 that never go back, even if the system clock is changed."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._offset + time.monotonic()

    def advance_to(self, at: float) -> None:
        """Continue from this time if the clock is behind it, so that logged times are never in the future."""
        self._offset = max(self._offset, at - time.monotonic())


class Answer(NamedTuple):
    """A reply, to be sent once this record of the log is on disk."""

    reply: dict[str, Any]
    record: int = 0  # 0: immediately


class Service:
    """A decision service with its state, log, versions and trainer; one per folder."""

    def __init__(
        self, folder: Path, domain: Domain, settings: DecideSettings, clock: Callable[[], float] | None = None,
        *, accept_data_loss: bool = False,
    ) -> None:  # fmt: skip
        self.folder, self.domain, self.settings = folder, domain, settings
        self.clock = clock or MonotonicClock()
        self.lock = threading.RLock()
        self.gate, self.gate_hash = settings.gate, settings_hash(settings.gate)
        self._missed = set[int]()  # pending decisions whose next observation was not logged
        self.decision_listeners: list[Callable[[events.DecisionMade, Decision], None]] = []
        self.clients = Clients(settings.limits)
        check_service_folder(folder)
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
            self.state.configure(first)  # refuses incompatible settings before anything else is read
        self.trainer = Trainer(domain, self.state)
        build, log_id = domain.policies[settings.policy].build, self.log.log_id.hex()
        template = build(Streams(0).torch("empty"), settings.options)  # its weights are replaced by those of a version
        self.versions = VersionStore(
            folder / VERSIONS, template, settings.versions, synced_record=lambda: self.log.synced, log_id=log_id
        )
        damaged = recover(folder / LOG, log_id, self.log.last, self.state, self.trainer, self.versions)
        self.notices = [*self.log.notices, *damaged]
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
        if isinstance(self.clock, MonotonicClock):
            self.clock.advance_to(self.state.join.clock)
        # A new random stream after each start, so that logged draws are not repeated.
        generator = Streams(settings.seed).child("decisions").numpy(f"from {self.state.decisions}")
        self._decider = Decider(domain, settings.policy, settings.explore, generator)
        self._logged_rejections = self.state.join.rejected
        self.write(
            events.ServiceStarted(secrets.token_hex(16), settings.model_dump(mode="json"), self.clock(), events.SCHEMA)
        )

    def _log_serving(self, change: ServingChange) -> None:
        """Store a serving change in the log and in its control file, which can be written on a full disk."""
        why = f"{change.kind}: {change.reason}"
        self._try_write(
            events.ServingChanged(change.serving or 0, why, change.at, change.number, change.gate_only, change.pinned)
        )
        self.log.set_serving(change.number, change.gate_only)

    def warm_up(self) -> None:
        """Make and learn from a decision and discard it: lazy loading and compilation must not delay the first game."""
        domain, settings = self.domain, self.settings
        observation = domain.parse_observation(domain.make_game(0, "warm-up", 0).observe())
        observation = observation._replace(row=observation.row | domain.initial_territory_state())
        decider = Decider(domain, settings.policy, settings.explore, Streams(0).numpy("warm-up"))
        decider.decide([observation], self.gate, self.versions.serving)
        self.trainer.warm_up(observation)

    def write(self, event: events.Event, observation: Observation | None = None) -> int:
        """Append an event to the log and apply it, in the same order for all threads; returns its record number."""
        with self.lock:
            record = self.log.append(events.encode(event))
            self.state.apply(event, observation)
            return record

    def _try_write(self, event: events.Event, observation: Observation | None = None) -> int | None:
        try:
            return self.write(event, observation)
        except LogStopped:
            return None  # reported by `log.problem`

    def answer(
        self, messages: Sequence[Mapping[str, Any]], skip_network: bool = False, clients: Sequence[str] = ()
    ) -> list[Answer]:
        """Answer a batch of observations; with `skip_network` the gate decides alone. `clients` are their owner ids."""
        clients = clients or [""] * len(messages)
        answers: list[Answer | None] = [None] * len(messages)
        remaining: list[tuple[int, Observation]] = []
        for index, message in enumerate(messages):
            try:
                remaining.append((index, self.domain.parse_observation(message)))
            except InvalidMessage as error:
                answers[index] = Answer(error_message(error.code, str(error)))
        while remaining:  # one observation per territory at a time: the next one depends on the decision before it
            batch: dict[str, tuple[int, Observation]] = {}  # by territory
            later = []
            for index, observation in remaining:
                if observation.territory in batch:
                    later.append((index, observation))
                elif (reply := self._immediate_reply(observation, clients[index])) is not None:
                    answers[index] = reply
                else:
                    batch[observation.territory] = index, observation
            requests = []
            for territory, (index, observation) in batch.items():
                row = observation.row | self.state.territory(territory).state
                requests.append((observation._replace(row=row), messages[index], clients[index]))
            decided = self._decide(requests, skip_network) if requests else []
            for (index, _), answer in zip(batch.values(), decided, strict=True):
                answers[index] = answer
            remaining = later
        return [answer for answer in answers if answer is not None]

    def _immediate_reply(self, observation: Observation, client: str) -> Answer | None:
        """The reply to an observation that needs no decision: repeated, stale, or of another client's territory."""
        territory = self.state.territory(observation.territory)
        if territory.last and self._excludes(territory.last, client):
            what = "this territory belongs to another client; use another territoryId, or its owner's ?client= key"
            return Answer(error_message("FOREIGN_TERRITORY", what))
        if (reply := territory.answer_at(observation.time)) is not None:
            return Answer(reply, self.log.last)
        if observation.time > territory.time:
            return None
        times = f"the last observation has time {territory.time:g}, this one {observation.time:g}"
        what = f"{observation.territory}: {times}; a game that restarts needs another territoryId"
        return Answer(error_message("STALE_OBSERVATION", what))

    def _excludes(self, decision: events.DecisionMade, client: str) -> bool:
        if decision.client == client:
            return False
        recent = self.clock() - decision.at <= self.settings.memory.expire_after
        return self.clients.excludes(decision.client, client, recent)

    def _decide(
        self, requests: Sequence[tuple[Observation, Mapping[str, Any], str]], skip_network: bool
    ) -> list[Answer]:
        """Decide for observations of different territories, each with its message and client."""
        observations = [observation for observation, _, _ in requests]
        version = None if skip_network or self.versions.gate_only else self.versions.serving
        decisions = self._decider.decide(observations, self.gate, version)
        with self.lock, self.log.batch():
            if self.domain.reward_from_next:
                self._join_next(observations, self.domain.reward_from_next)
            return [
                self._record(observation, decision, dict(message), client)
                for (observation, message, client), decision in zip(requests, decisions, strict=True)
            ]

    def _join_next(self, observations: Sequence[Observation], reward_from_next: RewardFromNext) -> None:
        """Compute the outcomes of pending decisions from the next observations of their territories."""
        pairs = [(n, one) for one in observations for n in self._pending_before(one) if n not in self._missed]
        if not pairs:
            return
        before = LazyBatch([self.state.pending[number].row for number, _ in pairs])
        values = reward_from_next(before, LazyBatch([one.row for _, one in pairs]))
        for (number, _), value in zip(pairs, values, strict=True):
            if self._try_write(events.OutcomeRecorded(number, float(value), "observed")) is None:
                self._missed.add(number)  # a later observation is not the next one: the decision will expire

    def _pending_before(self, observation: Observation) -> list[int]:
        return self.state.join.pending_before(observation.territory, observation.time)

    def _record(self, observation: Observation, decision: Decision, message: dict[str, Any], client: str) -> Answer:
        """Number a decision and log it; if logging fails, the observation is answered nevertheless."""
        number = self.state.decisions + 1
        reply = self.domain.reply(self.state.ids.create(number), decision, message)
        event = events.DecisionMade(
            number, observation.territory, observation.time, self.clock(), message, decision.action,
            decision.propensity, decision.confidence, decision.send, decision.reason, decision.expected,
            self.gate_hash, decision.version, reply, client,
        )  # fmt: skip
        record = self._try_write(event, observation)
        if record is None:
            return Answer(self.unlogged_reply(reply))
        for listener in self.decision_listeners:
            listener(event, decision)
        return Answer(reply, record)

    def report(self, message: Mapping[str, Any], client: str = "") -> Answer:
        """Handle a report about a decision; a repeated report counts once."""
        try:
            report = self.domain.parse_report(message)
        except InvalidMessage as error:
            return Answer(error_message(error.code, str(error)))
        if report.by_territory:
            last = self.state.territory(report.id).last
            number = last.number if last else None
        else:
            number = self.state.ids.resolve(report.id, self.state.decisions)
        if number is None:
            return Answer(error_message("UNKNOWN_DECISION", f"this service made no decision '{report.id[:40]}'"))
        if number == UNLOGGED:
            what = "that decision could not be logged, so nothing can be learned from it; do not report it"
            return Answer(error_message("UNLOGGED_DECISION", what))
        if (pending := self.state.pending.get(number)) and self._excludes(pending.decision, client):
            return Answer(error_message("FOREIGN_DECISION", "this decision belongs to another client"))
        ack = {"type": "outcome_ack", "decisionId": report.id}
        value = self.domain.failed_outcome if report.value is None else report.value
        with self.lock:
            join = self.state.join
            if number in self.state.inactive:
                return self._report_inactive(report, number)
            if report.value is None and not report.failed:  # the action was carried out; its outcome is observed later
                return _contradiction(report.id) if join.count_if_contradicting(number) else Answer(ack)
            if not join.is_pending(number):  # counted, but not logged: a flood of reports must not fill the disk
                status = join.count_rejected(number, report_digest(value, report.failed))
                contradicting = status is OutcomeStatus.CONTRADICTING
                return _contradiction(report.id) if contradicting else Answer(ack, self.log.last)
            record = self._try_write(events.OutcomeRecorded(number, value, "failed" if report.failed else "report"))
        return Answer(self.unlogged_reply(ack)) if record is None else Answer(ack, record)

    def _report_inactive(self, report: OutcomeReport, number: int) -> Answer:
        """Activate a deferred decision; before that, an outcome is refused."""
        if not report.activates:
            what = f"'{report.id[:40]}' was deferred and is not active; activate it, then report again"
            return Answer(error_message("INACTIVE_DECISION", what))
        ack = {"type": "outcome_ack", "decisionId": report.id}
        record = self._try_write(events.DecisionActivated(number))
        return Answer(self.unlogged_reply(ack)) if record is None else Answer(ack, record)

    def unlogged_reply(self, reply: dict[str, Any]) -> dict[str, Any]:
        """What to send in place of a reply whose record could not be written."""
        if reply.get("type") == "outcome_ack":
            what = f"the outcome could not be stored: {self.log.problem}; report it again later"
            return error_message("LOG_STOPPED", what)
        return reply | {"decisionId": self.state.ids.create(UNLOGGED)} if "decisionId" in reply else reply

    def expire(self) -> None:
        """Expire decisions that have been pending for too long; called periodically."""
        timeout, join, now = self.settings.memory.expire_after, self.state.join, self.clock()
        with self.lock:
            limit = max_pending(self.domain, self.settings.memory)
            oldest_age, _ = join.ages(now)
            if oldest_age > timeout or join.counts.pending > limit:
                self._try_write(events.DecisionsExpired(now, timeout, limit))
            self._missed &= self.state.pending.keys()
            self._log_rejections()

    def _log_rejections(self) -> None:
        with self.lock:
            rejected = self.state.join.rejected
            if rejected != self._logged_rejections and self._try_write(events.ReportsRejected(*rejected)):
                self._logged_rejections = rejected

    def save_snapshot(self) -> None:
        """Save a snapshot, so that the next start is fast. The trainer must be idle."""
        with self.lock:  # briefly: every decision waits for it
            record, copy, trainer = self.log.last, snapshots.copy_state(self.state), self.trainer.copy()
        if self.log.wait(record, timeout=60):
            snapshots.save(self.folder / SNAPSHOTS, self.log.log_id.hex(), record, copy, trainer)
            self.log.write_control()

    def close(self) -> None:
        self._log_rejections()
        self.log.close()


def check_service_folder(folder: Path) -> None:
    """Refuse a folder that has contents but no log."""
    names = {path.name for path in folder.iterdir() if path.name[0] != "."} if folder.is_dir() else set()
    if names - {TOKENS} and LOG not in names:
        what = f"{folder} is not the folder of a service: it contains {min(names - {TOKENS})}"
        raise TownletError(what, "choose an empty folder, or a new one, with --folder")


def _contradiction(id: str) -> Answer:
    what = f"a different outcome of '{id[:40]}' was reported earlier; the first one counts"
    return Answer(error_message("CONTRADICTING_REPORT", what))


def error_message(code: str, what: str) -> dict[str, Any]:
    """An error for the game: a code for programs and a sentence for people."""
    return {"type": "error", "code": code, "message": what}
