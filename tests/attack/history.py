"""Checks a recorded history of clients against the log and the statistics of the service they talked to.

The history holds only what clients sent and received. Nothing here uses the service's own state machine: the rules are
written down again, so that a mistake in the service is not repeated by its judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from townlet.decide.events import DecisionMade, DecisionsExpired, OutcomeRecorded
from townlet.decide.recovery import events
from townlet.decide.storage import LOG

Message = dict[str, Any]
DECISIONS = ("ad_decision", "no_ad", "spawn_decision", "observation_ack")  # replies to an observation
ACKNOWLEDGED = "outcome_ack"
# Refusals that a client may get for a correct message: retry later, or leave the report out.
STALE = "STALE_OBSERVATION"  # right for an observation that was never answered, once a later one was sent
REFUSALS = ("OVERLOADED", "RATE_LIMITED", "LOG_STOPPED", "UNLOGGED_DECISION")
COUNTED = ("decisions", "joined", "failed", "expired", "waited", "pending")
PARTS = ("joined", "expired", "pending", "not_executed")


@dataclass(frozen=True)
class Operation:
    """A message of a client and the answer it got; None where the connection or the client's patience ended first."""

    client: int
    begin: float  # seconds, of one clock for all clients
    end: float
    message: Message
    reply: Message | None

    @property
    def observation(self) -> tuple[str, float] | None:
        """What identifies an observation; None for a report."""
        if "territoryId" not in self.message:
            return None
        return self.message["territoryId"], self.message["timestamp"]

    @property
    def kept(self) -> str | None:
        """The id of a decision that the service promised to keep; None for everything else."""
        reply = self.reply or {}
        if reply.get("type") not in DECISIONS or is_unkept(reply["decisionId"]):
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
    """Decisions that waited for longer than `after` seconds, and the oldest beyond `most`, expired."""

    at: float
    after: float
    most: int


Logged = LoggedDecision | LoggedOutcome | LoggedExpiry


@dataclass(frozen=True)
class Poll:
    """Statistics that were read while the clients played."""

    begin: float
    counts: Mapping[str, int]


@dataclass
class History:
    """Everything that clients were told, and what the service says at the end."""

    operations: list[Operation] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    log: list[Logged] = field(default_factory=list)
    counts: Mapping[str, int] = field(default_factory=dict)  # `buffer` of the last statistics


def is_unkept(id: str) -> bool:
    """Whether an id says that the decision could not be written down, by the documented rule: its number is 0."""
    return id.split("-")[1] == "0"


def read_log(folder: Path) -> Iterator[Logged]:
    """Decisions, outcomes and expiries in the log of a service that was stopped."""
    ids: dict[int, str] = {}
    for event in events(folder / LOG):
        if isinstance(event, DecisionMade):
            ids[event.number] = event.reply["decisionId"]
            yield LoggedDecision(ids[event.number], event.message, event.reply, event.at, event.send)
        elif isinstance(event, OutcomeRecorded):
            yield LoggedOutcome(ids.get(event.number, f"number {event.number}"), event.value, event.how)
        elif isinstance(event, DecisionsExpired):
            yield LoggedExpiry(event.at, event.after, event.most)


def check(history: History) -> list[str]:
    """Every rule that is broken, in words."""
    return [
        *_refused(history.operations),
        *_changed(history.operations),
        *_lost(history),
        *_doubled(history),
        *_unreported(history),
        *_unbalanced(history),
        *_shrunk(history),
    ]


def _refused(operations: Sequence[Operation]) -> Iterator[str]:
    """Correct messages get an answer, or a refusal that says when to try again."""
    newest: dict[str, float] = {}
    kept: set[tuple[str, float]] = set()
    for one in operations:
        code = (one.reply or {}).get("code")
        if code == STALE and one.observation and one.observation not in kept:
            if newest.get(one.message["territoryId"], one.message["timestamp"]) <= one.message["timestamp"]:
                yield f"client {one.client}: its newest observation was refused as old: {one.reply}"
        elif code == "UNLOGGED_DECISION" and not is_unkept(one.message["decisionId"]):
            yield f"client {one.client}: {one.message['decisionId']} was promised to be kept and is said to be unkept"
        elif code is not None and code not in REFUSALS:
            yield f"client {one.client}: a correct message was refused: {one.reply}"
        if one.observation:
            place, moment = one.observation
            newest[place] = max(newest.get(place, moment), moment)
            kept |= {one.observation} if one.kept else set()


def _changed(operations: Sequence[Operation]) -> Iterator[str]:
    """An observation that is asked again gets the same answer, and no id is given to two observations."""
    answers: dict[tuple[str, float], Message] = {}
    owners: dict[str, tuple[str, float]] = {}
    for one in operations:
        if one.observation is None or one.kept is None:
            continue
        assert one.reply is not None
        if answers.setdefault(one.observation, one.reply) != one.reply:
            yield f"{one.observation} was answered with {answers[one.observation]}, and again with {one.reply}"
        if owners.setdefault(one.kept, one.observation) != one.observation:
            yield f"the id {one.kept} was given to {owners[one.kept]} and to {one.observation}"


def _lost(history: History) -> Iterator[str]:
    """What was acknowledged is in the log, with the same content."""
    decided = {one.id: one for one in history.log if isinstance(one, LoggedDecision)}
    values = {one.id: one.value for one in history.log if isinstance(one, LoggedOutcome)}
    expired = {id for id, ending in endings(history.log).items() if ending == "expired"}
    for one in history.operations:
        if one.observation and one.kept:
            if one.kept not in decided:
                yield f"the decision {one.kept} was acknowledged and is not in the log"
            elif (found := decided[one.kept]).reply != one.reply:
                yield f"client {one.client} was told {one.reply}, and the log says {found.reply}"
            elif found.message != one.message:
                yield f"{one.kept} answers {one.message}, and the log says {found.message}"
        value = reported(one.message)
        if one.reply and one.reply["type"] == ACKNOWLEDGED and value is not None:
            id = one.message["decisionId"]
            if one.reply.get("decisionId") != id:
                yield f"a report of {id} was acknowledged as one of {one.reply.get('decisionId')}"
            if values.get(id) != value and id not in expired:
                yield f"the outcome {value} of {id} was acknowledged and is not in the log"


def reported(message: Message) -> float | None:
    """The outcome that a report states; None for other messages, and where the outcome shows later."""
    if message["type"] == "click_report":
        return float(message["clicked"]) if message.get("shown", True) else 0.0
    if message["type"] == "spawn_result" and not message["success"]:
        return -0.5
    return None


def _doubled(history: History) -> Iterator[str]:
    """An observation is decided once, under one id, and has one outcome."""
    decided = [one for one in history.log if isinstance(one, LoggedDecision)]
    for id, count in Counter(one.id for one in decided).items():
        if count > 1:
            yield f"the log has {count} decisions with the id {id}"
    for id, count in Counter(one.id for one in history.log if isinstance(one, LoggedOutcome)).items():
        if count > 1:
            yield f"the log has {count} outcomes of {id}"
    observed = Counter((one.message["territoryId"], one.message["timestamp"]) for one in decided)
    yield from (f"{place} was decided {count} times" for place, count in observed.items() if count > 1)


def _unreported(history: History) -> Iterator[str]:
    """The log has no decision that was not asked for, and no outcome that was not reported or observed."""
    asked = [one.message for one in history.operations if one.observation]
    known = {(message["territoryId"], message["timestamp"]): message for message in asked}
    latest = {name: max(time for place, time in known if place == name) for name in {place for place, _ in known}}
    claims = {(one.message["decisionId"], reported(one.message)) for one in history.operations if not one.observation}
    sources: dict[str, Message] = {}
    for one in history.log:
        if isinstance(one, LoggedDecision):
            sources[one.id] = one.message
            if known.get((one.message["territoryId"], one.message["timestamp"])) != one.message:
                yield f"{one.id} answers an observation that no client sent: {one.message}"
        elif isinstance(one, LoggedOutcome):
            if one.id not in sources:
                yield f"an outcome of {one.id} comes before its decision"
            elif one.how == "next":
                source = sources[one.id]
                if latest[source["territoryId"]] <= source["timestamp"]:
                    yield f"{one.id} has an outcome of a next observation that no client sent"
            elif (one.id, one.value) not in claims:
                yield f"the log has an outcome {one.value} of {one.id} that no client reported"


def _unbalanced(history: History) -> Iterator[str]:
    """The statistics are those of the log: every decision in one place, every outcome counted once."""
    counts = history.counts
    if counts["decisions"] != sum(counts[part] for part in PARTS):
        yield f"the sum rule does not hold: {dict(counts)}"
    expected = counted(history.log)
    for name in COUNTED:
        if counts[name] != expected[name]:
            yield f"the statistics say {name} = {counts[name]}, and the log gives {expected[name]}"


def counted(log: Sequence[Logged]) -> Counter[str]:
    """Where the decisions of a log must be counted."""
    counts = Counter(endings(log).values())
    counts["decisions"] = counts.total()
    return counts


def endings(log: Sequence[Logged]) -> dict[str, str]:
    """Where every decision of a log is: waited, pending, joined, failed or expired."""
    found: dict[str, str] = {}
    pending: dict[str, float] = {}  # when each decision was made, oldest first
    clock = float("-inf")
    for one in log:
        if isinstance(one, LoggedDecision):
            clock = max(clock, one.at)
            found[one.id] = "pending" if one.sent else "waited"
            pending |= {one.id: clock} if one.sent else {}
        elif isinstance(one, LoggedOutcome):
            if pending.pop(one.id, None) is not None:
                found[one.id] = "failed" if one.how == "failed" else "joined"
        else:
            clock = max(clock, one.at)
            for id, at in list(pending.items()):
                if clock - at <= one.after and len(pending) <= one.most:
                    break
                del pending[id]
                found[id] = "expired"
    return found


def _shrunk(history: History) -> Iterator[str]:
    """Statistics never show less than what clients had been told before they were read."""
    told = sorted((one.end, one.kept) for one in history.operations if one.observation and one.kept)
    for poll in history.polls:
        before = {id for end, id in told if end < poll.begin}
        if poll.counts["decisions"] < len(before):
            yield f"{len(before)} decisions were acknowledged, and the statistics then said {poll.counts['decisions']}"
