"""The decision service without its server: answers observations, joins outcomes, and stores everything first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from townlet.decide import events
from townlet.decide.decider import Decider, LazyBatch, sample_observation
from townlet.decide.domain import (
    Decision,
    InvalidMessage,
    Observation,
    ObservationRow,
    OutcomeReport,
    RewardFromNext,
)
from townlet.decide.join import EXPIRED, FAILED, OutcomeStatus, report_digest
from townlet.decide.storage.availability import RETRY_SECONDS, Retry, StorageUnavailable
from townlet.decide.storage.protocol import Batch, ReportedDecision, ReportTarget, Storage
from townlet.decide.territories import Clients
from townlet.decide.tracing import Mark, no_mark
from townlet.rng import Streams

NOT_COUNTED: Final = {"status": "expired"}  # in the acknowledgement of a report that arrived too late


class Answer(NamedTuple):
    """A reply, to be sent once this record of the log is on disk."""

    reply: dict[str, Any]
    record: int = 0  # 0: immediately


class Request(NamedTuple):
    """An observation, the message that it was parsed from, and the owner id of its sender."""

    observation: Observation
    message: Mapping[str, Any]
    client: str


class Service:
    """The decision path: parses observations and reports, decides, and stores everything before it is acknowledged."""

    def __init__(self, storage: Storage) -> None:
        self.storage, self.domain, self.settings = storage, storage.domain, storage.settings
        self.versions, self.clock = storage.versions, storage.clock
        self.decision_listeners: list[Callable[[events.DecisionMade, Decision], None]] = []
        self.clients = Clients(self.settings.limits)
        self._retry = Retry()
        self._local = threading.local()  # a decider for each thread that answers

    @property
    def _decider(self) -> Decider:
        if not hasattr(self._local, "decider"):
            name = self.storage.decision_stream
            generator = Streams(self.settings.seed).child("decisions").numpy(name)
            self._local.decider = Decider(self.domain, self.settings.policy, self.settings.explore, generator)
        decider: Decider = self._local.decider
        return decider

    def warm_up(self) -> None:
        """Make a decision and discard it, so that lazy loading and compilation do not delay the first game."""
        domain, settings, observation = self.domain, self.settings, sample_observation(self.domain)
        decider = Decider(domain, settings.policy, settings.explore, Streams(0).numpy("warm-up"))
        decider.decide([observation], settings.gate, self.versions.serving)

    def answer(
        self, messages: Sequence[Mapping[str, Any]], skip_network: bool = False, clients: Sequence[str] = (),
        mark: Mark = no_mark, waited: float = 0.0,
    ) -> list[Answer]:  # fmt: skip
        """Answer a batch of observations; with `skip_network` the gate decides alone. `clients` are their owner ids.

        `waited`: for how many seconds one of them has been waiting.
        """
        until = time.monotonic() + RETRY_SECONDS - waited
        clients = clients or [""] * len(messages)
        answers: list[Answer | None] = [None] * len(messages)
        remaining: list[tuple[int, Observation]] = []
        for index, message in enumerate(messages):
            try:
                remaining.append((index, self.domain.parse_observation(message)))
            except InvalidMessage as error:
                answers[index] = Answer(error_message(error.code, str(error)))
        mark("parse")
        while remaining:  # one observation per territory at a time: the next one depends on the decision before it
            first: dict[str, tuple[int, Observation]] = {}  # by territory
            later = []
            for index, observation in remaining:
                if observation.territory in first:
                    later.append((index, observation))
                else:
                    first[observation.territory] = index, observation
            requests = [Request(one, messages[index], clients[index]) for index, one in first.values()]
            try:
                answered = self._retry(partial(self._answer_batch, requests, skip_network, mark), until)
            except StorageUnavailable as error:
                answered = [Answer(unavailable(error))] * len(first)
            for (index, _), answer in zip(first.values(), answered, strict=True):
                answers[index] = answer
            remaining = later
        return [answer for answer in answers if answer is not None]

    def _answer_batch(self, requests: Sequence[Request], skip_network: bool, mark: Mark) -> list[Answer]:
        """Answer observations of different territories."""
        made: list[tuple[events.DecisionMade, Decision]] = []
        with self.storage.batch([request.observation.territory for request in requests]) as batch:
            answers = [self._immediate_reply(batch, request) for request in requests]
            new = [index for index, answer in enumerate(answers) if answer is None]
            decided = self._decide(batch, [requests[index] for index in new], skip_network, made, mark) if new else []
            for index, answer in zip(new, decided, strict=True):
                answers[index] = answer
        for event, decision in made:
            for listener in self.decision_listeners:
                listener(event, decision)
        return [answer for answer in answers if answer is not None]

    def _immediate_reply(self, batch: Batch, request: Request) -> Answer | None:
        """The reply to an observation that needs no decision: repeated, stale, or of another client's territory."""
        observation = request.observation
        last = batch.last_use(observation.territory)
        if last is None:
            return None
        if self._excludes(last.client, last.at, request.client):
            what = "this territory belongs to another client; use another territoryId, or its owner's ?client= key"
            return Answer(error_message("FOREIGN_TERRITORY", what))
        if observation.time > last.time:
            return None
        if (stored := batch.reply_at(observation.territory, observation.time)) is not None:
            return Answer(*stored)
        times = f"the last observation has time {last.time:g}, this one {observation.time:g}"
        what = f"{observation.territory}: {times}; a game that restarts needs another territoryId"
        return Answer(error_message("STALE_OBSERVATION", what))

    def _excludes(self, owner: str, at: float, client: str) -> bool:
        """Whether a decision made at this time for an owner may not be used by a client."""
        if owner == client:
            return False
        recent = self.clock() - at <= self.settings.memory.expire_after
        return self.clients.excludes(owner, client, recent)

    def _decide(
        self, batch: Batch, requests: Sequence[Request], skip_network: bool,
        made: list[tuple[events.DecisionMade, Decision]], mark: Mark,
    ) -> list[Answer]:  # fmt: skip
        """Decide for new observations, and store the decisions, which are appended to `made`."""
        observations = [
            one._replace(row=one.row | batch.state(one.territory))
            for one in (request.observation for request in requests)
        ]
        version = None if skip_network or self.versions.gate_only else self.versions.serving
        decisions = self._decider.decide(observations, self.settings.gate, version)
        mark("decide")
        with batch.commit():
            if self.domain.reward_from_next:
                self._join_next(batch, observations, self.domain.reward_from_next)
            rows = zip(requests, observations, decisions, strict=True)
            return [self._record(batch, *row, made) for row in rows]

    def _join_next(self, batch: Batch, observations: Sequence[Observation], reward_from_next: RewardFromNext) -> None:
        """Compute the outcomes of pending decisions from the next observations of their territories."""
        numbers: list[int] = []
        before: list[ObservationRow] = []
        after: list[ObservationRow] = []
        for observation in observations:
            for number, row in batch.pending_before(observation.territory, observation.time):
                numbers.append(number)
                before.append(row)
                after.append(observation.row)
        if not numbers:
            return
        values = reward_from_next(LazyBatch(before), LazyBatch(after))
        for number, value in zip(numbers, values, strict=True):
            unknown = np.isnan(value)
            expired = events.DecisionsExpired(self.clock(), [number])
            batch.write(expired if unknown else events.OutcomeRecorded(number, float(value), "observed"))

    def _record(
        self, batch: Batch, request: Request, observation: Observation, decision: Decision,
        made: list[tuple[events.DecisionMade, Decision]],
    ) -> Answer:  # fmt: skip
        """Number a decision and store it; if that fails, the observation is answered nevertheless."""
        number, id = batch.new_id()
        reply = self.domain.reply(id, decision, request.message)
        event = events.DecisionMade(
            number, observation.territory, observation.time, self.clock(), dict(request.message), decision.action,
            decision.propensity, decision.confidence, decision.send, decision.reason, decision.expected,
            self.storage.gate_hash, decision.version, reply, request.client,
        )  # fmt: skip
        record = batch.write(event, observation)
        if record is None:
            return Answer(self.unlogged_reply(reply))
        made.append((event, decision))
        return Answer(reply, record)

    def report(self, message: Mapping[str, Any], client: str = "", mark: Mark = no_mark) -> Answer:
        """Handle a report about a decision; a repeated report counts once."""
        return self.report_all([message], [client], mark)[0]

    def report_all(
        self, messages: Sequence[Mapping[str, Any]], clients: Sequence[str], mark: Mark = no_mark, waited: float = 0.0
    ) -> list[Answer]:
        """Handle a batch of reports, in their order; `clients` and `waited` are as in `answer`."""
        until = time.monotonic() + RETRY_SECONDS - waited
        parsed = [self._parse_report(message) for message in messages]
        mark("parse")
        pairs = zip(parsed, clients, strict=True)
        handled = [(report, client) for report, client in pairs if isinstance(report, OutcomeReport)]
        try:
            answers = iter(self._retry(partial(self._handle_reports, handled), until) if handled else [])
        except StorageUnavailable as error:
            answers = iter([Answer(unavailable(error))] * len(handled))
        return [report if isinstance(report, Answer) else next(answers) for report in parsed]

    def _handle_reports(self, reports: Sequence[tuple[OutcomeReport, str]]) -> list[Answer]:
        """Handle reports, each with the owner id of its sender."""
        with self.storage.reports([ReportTarget(report.id, report.by_territory) for report, _ in reports]) as reported:
            return [self._handle_report(report, next(reported), client) for report, client in reports]

    def _parse_report(self, message: Mapping[str, Any]) -> OutcomeReport | Answer:
        """The report in a message, or the answer to one that is not handled."""
        try:
            report = self.domain.parse_report(message)
        except InvalidMessage as error:
            return Answer(error_message(error.code, str(error)))
        if report.by_territory or not self.storage.is_unlogged(report.id):
            return report
        what = "that decision could not be logged, so nothing can be learned from it; do not report it"
        return Answer(error_message("UNLOGGED_DECISION", what))

    def _handle_report(self, report: OutcomeReport, reported: ReportedDecision | None, client: str) -> Answer:
        if reported is None:
            return Answer(error_message("UNKNOWN_DECISION", f"this service made no decision '{report.id[:40]}'"))
        if reported.pending and self._excludes(reported.client, reported.at, client):
            return Answer(error_message("FOREIGN_DECISION", "this decision belongs to another client"))
        ack = {"type": "outcome_ack", "decisionId": report.id}
        if reported.inactive and not reported.pending:
            what = f"'{report.id[:40]}' was deferred and has expired without being activated"
            return Answer(error_message("INACTIVE_DECISION", what))
        if reported.inactive and not report.activates:
            what = f"'{report.id[:40]}' was deferred and is not active; activate it, then report again"
            return Answer(error_message("INACTIVE_DECISION", what))
        if reported.inactive:
            activated = reported.activate()
            return Answer(self.unlogged_reply(ack)) if activated is None else Answer(ack, activated)
        if report.value is None and not report.failed:  # the action was carried out; its outcome is observed later
            if reported.status != FAILED:
                return Answer(ack | NOT_COUNTED if reported.status == EXPIRED else ack)
            reported.contradict()
            return _contradiction(report.id)
        value = self.domain.failed_outcome if report.value is None else report.value
        if not reported.pending:
            status, record = reported.reject(report_digest(value, report.failed))
            if status is OutcomeStatus.CONTRADICTING:
                return _contradiction(report.id)
            return Answer(ack | NOT_COUNTED if status is OutcomeStatus.LATE else ack, record)
        joined = reported.join(value, "failed" if report.failed else "report")
        return Answer(self.unlogged_reply(ack)) if joined is None else Answer(ack, joined)

    def unlogged_reply(self, reply: dict[str, Any]) -> dict[str, Any]:
        """What to send in place of a reply whose record could not be written."""
        if reply.get("type") == "outcome_ack":
            what = f"the outcome could not be stored: {self.storage.problem}; report it again later"
            return error_message("LOG_STOPPED", what)
        field = self.domain.id_field
        if self.domain.single_observations or field not in reply:  # the id of a single observation is its territory
            return reply
        return reply | {field: self.storage.unlogged_id()}

    def close(self) -> None:
        """Store what is left, and release the storage."""
        self.storage.close()


def unavailable(error: StorageUnavailable) -> dict[str, Any]:
    """The reply while nothing can be stored and nothing is decided."""
    return error_message("STORAGE_UNAVAILABLE", f"{error.diagnostics[0].what}; send the message again later")


def _contradiction(id: str) -> Answer:
    what = f"a different outcome of '{id[:40]}' was reported earlier; the first one counts"
    return Answer(error_message("CONTRADICTING_REPORT", what))


def error_message(code: str, what: str) -> dict[str, Any]:
    """An error for the game: a code for programs and a sentence for people."""
    return {"type": "error", "code": code, "message": what}
