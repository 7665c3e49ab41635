"""Check the recorded history of clients against the log and the statistics of the service.

The history holds only what clients sent and received. Nothing here uses the service's state machine: the rules are
implemented a second time, so that a mistake in the service is not repeated by its checker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from townlet.decide.events import DecisionMade, DecisionsExpired, OutcomeRecorded
from townlet.decide.recovery import read_events
from townlet.decide.storage import LOG

Message = dict[str, Any]
DECISIONS = ("ad_decision", "no_ad", "spawn_decision", "observation_ack")  # replies to an observation
ACKNOWLEDGED = "outcome_ack"
# Refusals of correct messages: retry later, or omit the report.
STALE = "STALE_OBSERVATION"  # correct for an observation that was never answered, once a later one was sent
REFUSALS = ("OVERLOADED", "RATE_LIMITED", "LOG_STOPPED", "UNLOGGED_DECISION")
COUNTED = ("decisions", "joined", "failed", "expired", "waited", "pending")
PARTS = ("joined", "expired", "pending", "not_executed")


@dataclass(frozen=True)
class Operation:
    """A message of a client and its reply; None if the connection broke or the client gave up."""

    client: int
    begin: float  # seconds, of one clock for all clients
    end: float
    message: Message
    reply: Message | None

    @property
    def observation(self) -> tuple[str, float] | None:
        """Key of an observation; None for a report."""
        if "territoryId" not in self.message:
            return None
        return self.message["territoryId"], self.message["timestamp"]

    @property
    def stored_id(self) -> str | None:
        """The id of a decision that the service has stored; None for everything else."""
        reply = self.reply or {}
        if reply.get("type") not in DECISIONS or is_unstored(reply["decisionId"]):
            return None
        return str(reply["decisionId"])


@dataclass(frozen=True)
class LoggedDecision:
    """A decision in the log."""

    id: str
    message: Message
    reply: Message
    at: float
    sent: bool  # an outcome can follow


@dataclass(frozen=True)
class LoggedOutcome:
    """An outcome in the log."""

    id: str
    value: float
    how: str  # report, failed or next


@dataclass(frozen=True)
class LoggedExpiry:
    """Decisions that waited for too long, or were the oldest beyond the limit."""

    ids: tuple[str, ...]


Logged = LoggedDecision | LoggedOutcome | LoggedExpiry


@dataclass(frozen=True)
class Poll:
    """Statistics that were read while the clients played."""

    begin: float
    counts: Mapping[str, int]


@dataclass
class History:
    """Everything that clients received, and the final log and statistics."""

    operations: list[Operation] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    log: list[Logged] = field(default_factory=list)
    counts: Mapping[str, int] = field(default_factory=dict)  # `buffer` of the last statistics


def is_unstored(id: str) -> bool:
    """Whether an id marks a decision that could not be stored, by the documented rule: its number is 0."""
    return id.split("-")[1] == "0"


def read_log(folder: Path) -> Iterator[Logged]:
    """Decisions, outcomes and expiries in the log of a service that was stopped."""
    ids: dict[int, str] = {}
    for event in read_events(folder / LOG):
        if isinstance(event, DecisionMade):
            ids[event.number] = event.reply["decisionId"]
            yield LoggedDecision(ids[event.number], event.message, event.reply, event.at, event.send)
        elif isinstance(event, OutcomeRecorded):
            yield LoggedOutcome(ids.get(event.number, f"number {event.number}"), event.value, event.how)
        elif isinstance(event, DecisionsExpired):
            yield LoggedExpiry(tuple(ids[number] for number in event.numbers))


def check(history: History) -> list[str]:
    """Messages about all violated rules."""
    return [
        *_wrongly_refused(history.operations),
        *_changed(history.operations),
        *_lost(history),
        *_doubled(history),
        *_unreported(history),
        *_unbalanced(history),
        *_shrunk(history),
    ]


def _wrongly_refused(operations: Sequence[Operation]) -> Iterator[str]:
    """A correct message gets a reply, or a refusal that allows a retry."""
    newest: dict[str, float] = {}
    stored: set[tuple[str, float]] = set()
    for op in operations:
        code = (op.reply or {}).get("code")
        if code == STALE and op.observation and op.observation not in stored:
            if newest.get(op.message["territoryId"], op.message["timestamp"]) <= op.message["timestamp"]:
                yield f"client {op.client}: its newest observation was refused as stale: {op.reply}"
        elif code == "UNLOGGED_DECISION" and not is_unstored(op.message["decisionId"]):
            yield f"client {op.client}: {op.message['decisionId']} was stored and is reported as not stored"
        elif code is not None and code not in REFUSALS:
            yield f"client {op.client}: a correct message was refused: {op.reply}"
        if op.observation:
            place, moment = op.observation
            newest[place] = max(newest.get(place, moment), moment)
            stored |= {op.observation} if op.stored_id else set()


def _changed(operations: Sequence[Operation]) -> Iterator[str]:
    """A repeated observation gets the same reply, and no id is given to two observations."""
    answers: dict[tuple[str, float], Message] = {}
    owners: dict[str, tuple[str, float]] = {}
    for op in operations:
        if op.observation is None or op.stored_id is None:
            continue
        assert op.reply is not None
        if answers.setdefault(op.observation, op.reply) != op.reply:
            yield f"{op.observation} was answered with {answers[op.observation]}, and again with {op.reply}"
        if owners.setdefault(op.stored_id, op.observation) != op.observation:
            yield f"the id {op.stored_id} was given to {owners[op.stored_id]} and to {op.observation}"


def _lost(history: History) -> Iterator[str]:
    """Everything acknowledged is in the log, with the same content."""
    decided = {entry.id: entry for entry in history.log if isinstance(entry, LoggedDecision)}
    values = {entry.id: entry.value for entry in history.log if isinstance(entry, LoggedOutcome)}
    expired = {id for id, ending in endings(history.log).items() if ending == "expired"}
    for entry in history.operations:
        if entry.observation and entry.stored_id:
            if entry.stored_id not in decided:
                yield f"the decision {entry.stored_id} was acknowledged, but is not in the log"
            elif (found := decided[entry.stored_id]).reply != entry.reply:
                yield f"client {entry.client} received {entry.reply}, but the log has {found.reply}"
            elif found.message != entry.message:
                yield f"{entry.stored_id} answers {entry.message}, but the log has {found.message}"
        value = reported(entry.message)
        if entry.reply and entry.reply["type"] == ACKNOWLEDGED and value is not None:
            id = entry.message["decisionId"]
            if entry.reply.get("decisionId") != id:
                yield f"a report of {id} was acknowledged as entry of {entry.reply.get('decisionId')}"
            if values.get(id) != value and id not in expired:
                yield f"the outcome {value} of {id} was acknowledged, but is not in the log"


def reported(message: Message) -> float | None:
    """The outcome in a report; None for other messages, and if the next observation shows it."""
    if message["type"] == "click_report":
        return float(message["clicked"]) if message.get("shown", True) else 0.0
    if message["type"] == "spawn_result" and not message["success"]:
        return -0.5
    return None


def _doubled(history: History) -> Iterator[str]:
    """An observation is decided once, under one id, and has one outcome."""
    decided = [entry for entry in history.log if isinstance(entry, LoggedDecision)]
    for id, count in Counter(entry.id for entry in decided).items():
        if count > 1:
            yield f"the log has {count} decisions with the id {id}"
    for id, count in Counter(entry.id for entry in history.log if isinstance(entry, LoggedOutcome)).items():
        if count > 1:
            yield f"the log has {count} outcomes of {id}"
    observed = Counter((entry.message["territoryId"], entry.message["timestamp"]) for entry in decided)
    yield from (f"{place} was decided {count} times" for place, count in observed.items() if count > 1)


def _unreported(history: History) -> Iterator[str]:
    """The log has no decision without a request, and no outcome without a report or an observation."""
    sent = [entry.message for entry in history.operations if entry.observation]
    known = {(message["territoryId"], message["timestamp"]): message for message in sent}
    latest = {name: max(time for place, time in known if place == name) for name in {place for place, _ in known}}
    reports = [op.message for op in history.operations if not op.observation]
    claims = {(message["decisionId"], reported(message)) for message in reports}
    sources: dict[str, Message] = {}
    for entry in history.log:
        if isinstance(entry, LoggedDecision):
            sources[entry.id] = entry.message
            if known.get((entry.message["territoryId"], entry.message["timestamp"])) != entry.message:
                yield f"{entry.id} answers an observation that no client sent: {entry.message}"
        elif isinstance(entry, LoggedOutcome):
            if entry.id not in sources:
                yield f"an outcome of {entry.id} comes before its decision"
            elif entry.how == "observed":
                source = sources[entry.id]
                if latest[source["territoryId"]] <= source["timestamp"]:
                    yield f"{entry.id} has an outcome of a next observation that no client sent"
            elif (entry.id, entry.value) not in claims:
                yield f"the log has an outcome {entry.value} of {entry.id} that no client reported"


def _unbalanced(history: History) -> Iterator[str]:
    """The statistics match the log: every decision is counted once."""
    counts = history.counts
    if counts["decisions"] != sum(counts[part] for part in PARTS):
        yield f"the sum rule does not hold: {dict(counts)}"
    expected = counted(history.log)
    for name in COUNTED:
        if counts[name] != expected[name]:
            yield f"the statistics have {name} = {counts[name]}, but the log gives {expected[name]}"


def counted(log: Sequence[Logged]) -> Counter[str]:
    """Expected counts of the decisions in a log."""
    counts = Counter(endings(log).values())
    counts["decisions"] = counts.total()
    return counts


def endings(log: Sequence[Logged]) -> dict[str, str]:
    """Final status of every decision in a log: waited, pending, joined, failed or expired."""
    found: dict[str, str] = {}
    for entry in log:
        if isinstance(entry, LoggedDecision):
            found[entry.id] = "pending" if entry.sent else "waited"
        elif isinstance(entry, LoggedOutcome):
            if found.get(entry.id) == "pending":
                found[entry.id] = "failed" if entry.how == "failed" else "joined"
        else:
            found |= {id: "expired" for id in entry.ids if found.get(id) == "pending"}
    return found


def _shrunk(history: History) -> Iterator[str]:
    """Statistics never show fewer decisions than had been acknowledged before they were read."""
    acknowledged = sorted((op.end, op.stored_id) for op in history.operations if op.observation and op.stored_id)
    for poll in history.polls:
        before = {id for end, id in acknowledged if end < poll.begin}
        if poll.counts["decisions"] < len(before):
            yield f"{len(before)} decisions were acknowledged, but the statistics showed {poll.counts['decisions']}"
