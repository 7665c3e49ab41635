"""The service without a server: answers observations, takes outcomes, and writes everything down before it counts.

All that changes happens under one lock, in the order of the log. Nothing under it waits for a disk or for training.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from townlet.decide.clients import Clients
from townlet.decide.clock import MonotonicClock
from townlet.decide.decider import Decider, DraftDecision, LazyBatch
from townlet.decide.domain import Decision, Domain, InvalidMessage, Observation, RewardFromNext
from townlet.decide.events import (
    SCHEMA,
    DecisionMade,
    DecisionsExpired,
    Event,
    OutcomeRecorded,
    ReportsRejected,
    ServiceStarted,
    ServingChanged,
    encode,
)
from townlet.decide.ids import UNLOGGED
from townlet.decide.join import OutcomeStatus, report_digest
from townlet.decide.recovery import first_start, recover
from townlet.decide.settings import DecideSettings, settings_hash
from townlet.decide.state import ServiceState
from townlet.decide.storage import LOG, SNAPSHOTS, TOKENS, VERSIONS, snapshots
from townlet.decide.storage.log import LogStopped, WriteAheadLog
from townlet.decide.storage.serving_log import ServingChange, check_references
from townlet.decide.storage.versions import NetworkVersion, VersionStore
from townlet.decide.trainer import Trainer
from townlet.errors import TownletError
from townlet.rng import Streams


class Answer(NamedTuple):
    """What is sent to the game, once the log has this record."""

    reply: dict[str, Any]
    record: int = 0  # 0: at once


class Service:
    """Decides, remembers, and joins. One for each folder."""

    def __init__(
        self, folder: Path, domain: Domain, settings: DecideSettings, clock: Callable[[], float] | None = None,
        *, accept_data_loss: bool = False,
    ) -> None:  # fmt: skip
        self.folder, self.domain, self.settings = folder, domain, settings
        self.clock = clock or MonotonicClock()
        self.lock = threading.RLock()
        self.gate, self.gate_hash = settings.gate, settings_hash(settings.gate)
        self._missed = set[int]()  # decisions that wait, and of what came next nobody has written anything down
        self.decision_listeners: list[Callable[[DecisionMade, DraftDecision], None]] = []
        self.clients = Clients(settings.limits)
        check_service_folder(folder)
        check = partial(check_references, folder)
        self.log = WriteAheadLog(folder / LOG, settings.segment, accept_data_loss=accept_data_loss, check=check)
        try:
            self._recover(accept_data_loss)
        except BaseException:
            self.log.close()  # else nobody else could open it
            raise

    def _recover(self, accept_data_loss: bool) -> None:
        """Restore the state at the end of the log, and begin a new epoch."""
        folder, domain, settings = self.folder, self.domain, self.settings
        self.state = ServiceState(domain, settings)
        if first := first_start(folder / LOG):
            self.state.configure(first)  # refuses what does not fit, before anything else is looked at
        self.trainer = Trainer(domain, self.state)
        make, log_id = domain.policies[settings.policy].build, self.log.log_id.hex()
        self.versions = VersionStore(
            folder / VERSIONS,
            lambda: make(Streams(0).torch("empty")),
            settings.versions,
            record=lambda: self.log.synced,
            log_id=log_id,
        )
        damaged = recover(folder / LOG, log_id, self.log.last, self.state, self.trainer, self.versions)
        self.notices = [*self.log.notices, *damaged]
        self._compare_serving(accept_data_loss)
        # Nobody knows what was to be seen while no service ran, or before it ended without a disk.
        self._missed.update(self.state.pending)
        if isinstance(self.clock, MonotonicClock):
            self.clock.pass_by(self.state.join.clock)
        # Another stream after each start: what was drawn before is written down, and must not come again.
        draws = Streams(settings.seed).child("decisions").numpy(f"from {self.state.decisions}")
        self._decider = Decider(domain, settings.policy, settings.explore, draws)
        self._refused = self.state.join.refused  # as logged
        self.write(ServiceStarted(secrets.token_hex(16), settings.model_dump(mode="json"), self.clock(), SCHEMA))

    def _compare_serving(self, accept_data_loss: bool) -> None:
        """Compare the serving record with the log and the control data: in doubt the kill switch is on."""
        versions, known, logged = self.versions, self.log.control_at_start, self.state.serving
        if not accept_data_loss or known.gate_only:  # changes given up on purpose do not count as missing
            versions.cross_check("the control data of the log", known.serving, known.gate_only)
        if logged is not None:
            versions.cross_check("the log", logged.number, logged.gate_only)
        versions.on_change = self._log_serving
        if accept_data_loss:  # else the next start would report these changes as missing
            self.log.set_serving(versions.change_number, versions.gate_only)

    def _log_serving(self, change: ServingChange) -> None:
        """Store a change of the serving version in the log and in its control data, which works on a full disk."""
        why = f"{change.kind}: {change.reason}"
        event = ServingChanged(change.serving or 0, why, change.at, change.number, change.gate_only, change.pinned)
        self._try(event)
        self.log.set_serving(change.number, change.gate_only)

    def warm_up(self) -> None:
        """Decide once for nobody: what is loaded or compiled at its first use must not keep a game waiting."""
        domain, settings = self.domain, self.settings
        sight = domain.parse_observation(domain.make_game(0, "nobody", 0).observe())
        sight = sight._replace(row=sight.row | domain.initial_memory())
        decider = Decider(domain, settings.policy, settings.explore, Streams(0).numpy("nobody"))
        decider.decide([sight], self.gate, self.versions.serving)

    @property
    def gate_only(self) -> bool:
        """The kill switch: the gate decides alone."""
        return self.versions.gate_only

    def write(self, event: Event, sight: Observation | None = None) -> int:
        """Into the log and into the ledger, in the same order for everybody; the number of its record."""
        with self.lock:
            record = self.log.append(encode(event))
            self.state.apply(event, sight)
            return record

    def answer(
        self, messages: Sequence[Mapping[str, Any]], hurried: bool = False, clients: Sequence[str] = ()
    ) -> list[Answer]:
        """Decide for some observations together; `hurried` leaves it to the gate alone. `clients` sent them."""
        clients = clients or [""] * len(messages)
        answers: list[Answer | None] = [None] * len(messages)
        left: list[tuple[int, Observation]] = []
        for place, message in enumerate(messages):
            try:
                left.append((place, self.domain.parse_observation(message)))
            except InvalidMessage as error:
                answers[place] = Answer(error_message(error.code, str(error)))
        while left:  # one observation of a territory at a time: the next one knows what was done before
            now: dict[str, tuple[int, Observation]] = {}
            later = []
            for place, sight in left:
                if sight.territory in now:
                    later.append((place, sight))
                elif (known := self._known(sight, clients[place])) is not None:
                    answers[place] = known
                else:
                    now[sight.territory] = place, sight
            asked = [(self._with_past(sight), messages[place], clients[place]) for place, sight in now.values()]
            for (place, _), answer in zip(now.values(), self._decide(asked, hurried) if asked else [], strict=True):
                answers[place] = answer
            left = later
        return [answer for answer in answers if answer is not None]

    def _known(self, sight: Observation, client: str) -> Answer | None:
        """The reply to an observation that needs no decision: repeated, stale, or of another client's territory."""
        territory = self.state.territory(sight.territory)
        if territory.last and self._excludes(territory.last, client):
            what = "this territory belongs to another client; use another territoryId, or its owner's ?client= key"
            return Answer(error_message("FOREIGN_TERRITORY", what))
        if (reply := territory.answered(sight.time)) is not None:
            return Answer(reply, self.log.last)
        if sight.time > territory.time:
            return None
        what = f"{sight.territory} has been seen at {territory.time:g} already, and this is of {sight.time:g}"
        return Answer(error_message("STALE_OBSERVATION", f"{what}; a game that begins anew takes another territoryId"))

    def _excludes(self, made: DecisionMade, client: str) -> bool:
        """Whether a decision, and with it the territory, belongs to another client."""
        if made.client == client:
            return False
        recent = self.clock() - made.at <= self.settings.memory.expire_after
        return self.clients.excludes(made.client, client, recent)

    def _with_past(self, sight: Observation) -> Observation:
        """With what is known of the territory besides."""
        return sight._replace(row=sight.row | self.state.territory(sight.territory).known)

    def _decide(self, asked: Sequence[tuple[Observation, Mapping[str, Any], str]], hurried: bool) -> list[Answer]:
        """Decide for observations of different territories, each with its message and client."""
        seen = [sight for sight, _, _ in asked]
        snapshot: NetworkVersion | None = None if hurried or self.gate_only else self.versions.serving
        drafts = self._decider.decide(seen, self.gate, snapshot)
        with self.lock, self.log.batch():
            if self.domain.reward_from_next:
                self._join_next(seen, self.domain.reward_from_next)
            return [
                self._settle(sight, draft, dict(message), client)
                for (sight, message, client), draft in zip(asked, drafts, strict=True)
            ]

    def _join_next(self, seen: Sequence[Observation], following: RewardFromNext) -> None:
        """What is seen now tells what came of everything that waits there and has missed nothing."""
        waiting = [(n, sight) for sight in seen for n in self._due(sight) if n not in self._missed]
        if not waiting:
            return
        before = LazyBatch([self.state.pending[number].row for number, _ in waiting])
        values = following(before, LazyBatch([sight.row for _, sight in waiting]))
        for (number, _), value in zip(waiting, values, strict=True):
            if self._try(OutcomeRecorded(number, float(value), "next")) is None:
                self._missed.add(number)  # what is seen later is not what came next: it will expire

    def _due(self, sight: Observation) -> list[int]:
        return self.state.join.due(sight.territory, sight.time)

    def _settle(self, sight: Observation, draft: DraftDecision, message: dict[str, Any], client: str) -> Answer:
        """Give a decision its number and write it down; where that is impossible it is made nevertheless."""
        number = self.state.decisions + 1
        made = self._made(number, sight, draft, message, client)
        record = self._try(made, sight)
        if record is None:
            self._missed.update(self._due(sight))
            return Answer(self.unkept(made.reply))
        for ear in self.decision_listeners:
            ear(made, draft)
        return Answer(made.reply, record)

    def _made(
        self, number: int, sight: Observation, draft: DraftDecision, message: dict[str, Any], client: str
    ) -> DecisionMade:
        choice = Decision(
            self.state.ids.make(number), draft.action, draft.send, draft.reason, draft.confidence, draft.version,
            draft.probabilities,
        )  # fmt: skip
        return DecisionMade(
            number, sight.territory, sight.time, self.clock(), message, draft.action, draft.propensity,
            draft.confidence, draft.send, draft.reason, draft.expected, self.gate_hash, draft.version,
            self.domain.reply(choice), client,
        )  # fmt: skip

    def _try(self, event: Event, sight: Observation | None = None) -> int | None:
        try:
            return self.write(event, sight)
        except LogStopped:
            return None  # `log.problem` says it to everybody who looks

    def report(self, message: Mapping[str, Any], client: str = "") -> Answer:
        """What the game tells of a decision; the same report twice is one."""
        try:
            told = self.domain.parse_report(message)
        except InvalidMessage as error:
            return Answer(error_message(error.code, str(error)))
        number = self.state.ids.number(told.id, self.state.decisions)
        if number is None:
            return Answer(_unknown(told.id))
        if number == UNLOGGED:
            what = "that decision could not be written down, and nothing can be learned from it; leave the report out"
            return Answer(error_message("UNKEPT_DECISION", what))
        if (pending := self.state.pending.get(number)) and self._excludes(pending.made, client):
            return Answer(error_message("FOREIGN_DECISION", "this decision belongs to another client"))
        done = {"type": "outcome_ack", "decisionId": told.id}
        value = self.domain.failed_outcome if told.value is None else told.value
        with self.lock:
            join = self.state.join
            if told.value is None and not told.failed:  # it was carried out; its outcome is observed later
                return _contradiction(told.id) if join.contradicts_failure(number) else Answer(done)
            if not join.is_pending(number):  # counted, but not logged: a flood of them must not fill the disk
                fate = join.refuse(number, report_digest(value, told.failed))
                return _contradiction(told.id) if fate is OutcomeStatus.CONTRADICTING else Answer(done, self.log.last)
            record = self._try(OutcomeRecorded(number, value, "failed" if told.failed else "report"))
        return Answer(self.unkept(done)) if record is None else Answer(done, record)

    def unkept(self, reply: dict[str, Any]) -> dict[str, Any]:
        """What is said instead of a reply whose record does not come to the disk."""
        if reply.get("type") == "outcome_ack":
            return error_message(
                "LOG_STOPPED", f"the outcome could not be kept: {self.log.problem}; report it again later"
            )
        return reply | {"decisionId": self.state.ids.make(UNLOGGED)} if "decisionId" in reply else reply

    def expire(self) -> None:
        """Let go of what has waited for too long; to be called now and then."""
        after, join, now = self.settings.memory.expire_after, self.state.join, self.clock()
        with self.lock:
            most = self.state.most_pending
            if join.ages(now).oldest > after or join.counts.pending > most:
                self._try(DecisionsExpired(now, after, most))
            self._missed &= self.state.pending.keys()
            self._count_refused()

    def _count_refused(self) -> None:
        """Log the counts of refused reports if they have changed."""
        with self.lock:
            if (refused := self.state.join.refused) != self._refused and self._try(ReportsRejected(*refused)):
                self._refused = refused

    def facts(self) -> dict[str, Any]:
        """What is written down with a version."""
        record, log_id = self.log.synced, self.log.log_id.hex()  # synced: a version must not outlive what it refers to
        return {"gate": self.gate_hash, "log": log_id, "record": record, "at": self.clock()}

    def milestone(self) -> None:
        """Keep all that is known now, so that a start is quick. The trainer must be at rest."""
        with self.lock:  # no longer than needed: every decision waits meanwhile
            record, taken, trainer = self.log.last, snapshots.copy_state(self.state), self.trainer.copy()
        if self.log.wait(record, timeout=60):
            snapshots.save(self.folder / SNAPSHOTS, self.log.log_id.hex(), record, taken, trainer)
            self.log.write_control()

    def close(self) -> None:
        """Everything that was written down is on the disk after this."""
        self._count_refused()
        self.log.close()


def check_service_folder(folder: Path) -> None:
    """A folder in which something else lies is not written into."""
    names = {path.name for path in folder.iterdir() if path.name[0] != "."} if folder.is_dir() else set()
    if names - {TOKENS} and LOG not in names:
        what = f"{folder} is not the folder of a service: it contains {min(names - {TOKENS})}"
        raise TownletError(what, "name an empty folder, or a new one, with --folder")


def _contradiction(id: str) -> Answer:
    what = f"a different outcome of '{id[:40]}' was reported earlier; the first one counts"
    return Answer(error_message("CONTRADICTING_REPORT", what))


def _unknown(id: str) -> dict[str, Any]:
    return error_message("UNKNOWN_DECISION", f"no decision of this service is called '{id[:40]}'")


def error_message(code: str, what: str) -> dict[str, Any]:
    """An error for the game: a code for the program and a sentence for its author."""
    return {"type": "error", "code": code, "message": what}
