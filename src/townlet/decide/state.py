"""State of the service that follows from the log: decisions, outcomes, experience, and the decision ids.

Live and replayed events are applied by the same code, so a service that was killed continues as if it had not been.

A decision id is `<start>-<number>-<tag>`. Every start of the service draws a random key, and so does every session of a
database in which decisions are made; `<start>` is a hash of the key, `<tag>` a keyed hash of the number. So ids cannot
be guessed. If a log was copied or its end was lost, numbers are used a second time, but ids are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b, sha256
from hmac import compare_digest
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
from pydantic_core import to_json

from townlet.decide import events
from townlet.decide.buffer import ExperienceBuffer
from townlet.decide.domain import Domain, InvalidMessage, Observation, ObservationRow
from townlet.decide.join import Join, OutcomeStatus, report_digest
from townlet.decide.settings import DecideSettings, settings_hash, stored_settings
from townlet.decide.territories import MAX_ANSWERS, Territories, Territory, max_territories
from townlet.errors import TownletError

ID_PATTERN: Final = re.compile(r"([0-9a-f]{8})-(0|[1-9][0-9]{0,17})-([0-9a-f]{16})")
START_DIGITS: Final = 8  # length of `<start>`
UNLOGGED: Final = 0  # the number in the id of a decision that could not be logged
# Settings that determine the stored data; a folder keeps them forever.
FIXED_SETTINGS: Final = ("policy", "seed", "memory.capacity", "memory.held_out", "memory.held_out_capacity")
FIRST_OUTCOMES: Final = 500  # their mean is kept as the initial performance
GOLDEN: Final = 0x9E3779B97F4A7C15  # 2⁶⁴ over the golden ratio, as in SplitMix64
MAX_NUMBER: Final = 2**53  # of a decision
MASK: Final = 2**64 - 1
MESSAGE_INDEX: Final = events.DecisionMade._fields.index("message")
NO_MESSAGE: Final[dict[str, Any]] = {}  # replaces messages in memory: the log has them


class DecisionIds:
    """Creates ids with the newest key, and resolves those of all keys."""

    def __init__(self) -> None:
        self._keys: dict[str, bytes] = {}  # by their hashes
        self._last: dict[str, int] = {}  # hash of the key → highest number among the decisions with its ids
        self._current = ""  # hash of the newest key

    def add_key(self, key: str) -> None:
        """Create ids with another key from now on."""
        if self._current not in self._last:
            self._keys.pop(self._current, None)  # no decision has been made with that key
        self._current = sha256(bytes.fromhex(key)).hexdigest()[:START_DIGITS]
        self._keys[self._current] = bytes.fromhex(key)

    def add_decision(self, number: int, id: str | None) -> None:
        """Note the id of a decision that was made; None: its reply contains no id."""
        start = id[:START_DIGITS] if id else self._current
        self._last[start] = max(number, self._last.get(start, UNLOGGED))

    def create(self, number: int) -> str:
        return f"{self._current}-{number}-{_tag(self._keys[self._current], number)}"

    def signed_number(self, id: str) -> int | None:
        """The number in an id that was made with one of the keys; the decision may have been lost."""
        match = ID_PATTERN.fullmatch(id)
        if match is None or match[1] not in self._keys:
            return None
        number = int(match[2])
        return number if compare_digest(match[3], _tag(self._keys[match[1]], number)) else None

    def resolve(self, id: str) -> int | None:
        """The number of the decision with this id, `UNLOGGED`, or None if no decision of this log has it."""
        number = self.signed_number(id)
        return number if number is not None and number <= self._last.get(id[:START_DIGITS], UNLOGGED) else None

    def state(self) -> list[tuple[int, str]]:
        """The highest number of each key, and the key."""
        return [(self._last.get(start, UNLOGGED), key.hex()) for start, key in self._keys.items()]

    def restore(self, state: Iterable[tuple[int, str]]) -> None:
        self._keys.clear()
        self._last.clear()
        for last, key in state:
            self.add_key(key)
            self.add_decision(last, None)


def number_in(id: str) -> int | None:
    """The number in a decision id, which may be forged; None if this is not an id."""
    match = ID_PATTERN.fullmatch(id)
    return int(match[2]) if match else None


def _tag(key: bytes, number: int) -> str:
    return blake2b(b"%d" % number, digest_size=8, key=key).hexdigest()


class Experience(NamedTuple):
    """A decision and its observation, kept until the outcome is known."""

    row: ObservationRow
    decision: events.DecisionMade


@dataclass
class Totals:
    """Totals since the first start of the service."""

    sent: int = 0  # decisions that were sent
    reasons: dict[str, int] = field(default_factory=dict)  # decisions by reason
    completed: int = 0  # experiences with an outcome
    actual: float = 0.0  # sum of outcomes
    expected: float = 0.0  # sum of the gate's estimates of the same decisions
    first: float = 0.0  # sum of the first FIRST_OUTCOMES outcomes


class ServiceState:
    """The state of the service; changed only while the service's lock is held."""

    def __init__(self, domain: Domain, settings: DecideSettings) -> None:
        self.domain, self.settings = domain, settings
        memory = settings.memory
        self.join = Join()
        self.buffer = ExperienceBuffer(memory.capacity, domain.columns)
        self.held_out = ExperienceBuffer(memory.held_out_capacity, domain.columns)
        self._max_territories = max_territories(domain, memory)
        self.ids = DecisionIds()
        self.serving: events.ServingChanged | None = None  # the last change of the serving version
        self.gates: dict[str, int] = {}  # hash of gate settings → number, for all that were ever used
        self.territories = Territories()
        self.pending: dict[int, Experience] = {}  # by number of the decision
        self.inactive: set[int] = set()  # pending decisions that do not count until they are activated
        self.totals = Totals()
        self.inserted = 0  # experiences ever added to the buffer
        self.decision_listeners: list[Callable[[events.DecisionMade], None]] = []  # called for every decision
        self.outcome_listeners: list[Callable[[Experience, float, str], None]] = []  # called for every accepted outcome

    @property
    def decisions(self) -> int:
        """Number of decisions made."""
        return self.join.decisions

    @property
    def surplus_territories(self) -> list[str]:
        """Names of the territories beyond the limit, to be evicted."""
        return self.territories.surplus(self._max_territories)

    def territory(self, name: str) -> Territory:
        """The state of one stream of observations, by its name; a new one if it is unknown."""
        return self.territories.get(name) or Territory(self.domain.initial_territory_state(), -np.inf)

    def apply_stored(self, event: events.Event, record: int) -> None:
        """Apply an event as it was stored; an error names its record."""
        try:
            if isinstance(event, events.DecisionMade):
                self._check_stored(event)
            self.apply(event)
        except TownletError:
            raise
        except Exception as error:  # not `stored_values`, which would take time for every record
            raise events.unusable(f"record {record} of the log", error) from error

    def _check_stored(self, decision: events.DecisionMade) -> None:
        if not 0 < decision.number <= MAX_NUMBER:
            raise ValueError(f"a decision has the number {decision.number}")
        if not 0 <= decision.action < self.domain.n_actions:
            raise ValueError(f"decision {decision.number} is action {decision.action}, which does not exist")
        if not 0 < decision.propensity <= 1:
            raise ValueError(f"decision {decision.number} has the propensity {decision.propensity}")
        if decision.gate not in self.gates:
            raise ValueError(f"decision {decision.number} has gate settings that no start has")

    def apply(self, event: events.Event, observation: Observation | None = None) -> None:
        """Apply an event; `observation` is the parsed message of a decision, if available."""
        match event:
            case events.ServiceStarted():
                self.configure(event)
                self.ids.add_key(event.key)
                self.join.resume(event.at)
            case events.DecisionMade():
                self._add_decision(event, observation)
            case events.OutcomeRecorded():
                self._add_outcome(event)
            case events.DecisionActivated():
                self.inactive.discard(event.number)
            case events.DecisionsExpired():
                value = self.settings.memory.expired_outcome
                for number in event.numbers:
                    self.join.expire(number, event.at, number in self.inactive)
                    experience = self.pending.pop(number, None)
                    if number in self.inactive:
                        self.inactive.remove(number)
                    elif experience and value is not None:
                        self._complete(experience, value, "default")
            case events.TerritoriesEvicted():
                for name in event.names:
                    self.territories.discard(name)
            case events.ReportsRejected():
                self.join.set_rejected(event)
            case events.ServingChanged():
                self.serving = event

    def configure(self, started: events.ServiceStarted) -> None:
        """Apply the settings of a start; refuses a folder of another domain."""
        if (domain := started.settings["domain"]) != self.domain.name:
            what = f"this folder holds decisions for {domain}, not for {self.domain.name}"
            raise TownletError(what, f"serve {domain}, or choose another folder with --folder")
        self.domain.check_log(started.settings)
        self.update_settings(stored_settings(self.domain, started.settings))

    def update_settings(self, settings: DecideSettings) -> None:
        """Apply logged settings; raises an error if fixed ones differ from those the service was started with."""
        for name in (*FIXED_SETTINGS, *self.domain.fixed_settings):
            current, logged = attrgetter(name)(self.settings), attrgetter(name)(settings)
            if current != logged:
                what = f"{name} is {current}, but this folder was created with {logged}"
                raise TownletError(what, f"set {name}={logged}, or choose another folder with --folder")
        self.settings = settings
        self._max_territories = max_territories(self.domain, settings.memory)
        self.gates.setdefault(settings_hash(settings.gate), len(self.gates))

    def _add_decision(self, decision: events.DecisionMade, observation: Observation | None) -> None:
        territory = self.territory(decision.territory)
        territory_state = territory.state
        # `| territory_state` overwrites columns of a live observation: the territory may have been evicted since.
        observation = observation or self._parse_logged(decision)
        row = observation.row | territory_state
        self.join.add_decision(decision.number, decision.territory, decision.game_time, decision.at, decision.send)
        self.ids.add_decision(decision.number, decision.reply.get("decisionId"))
        self.totals.reasons[decision.reason] = self.totals.reasons.get(decision.reason, 0) + 1
        complete = decision
        # `_make` takes a tenth of the time of `_replace`.
        decision = events.DecisionMade._make((*decision[:MESSAGE_INDEX], NO_MESSAGE, *decision[MESSAGE_INDEX + 1 :]))
        experience = Experience(row, decision)
        if decision.send:
            self.totals.sent += 1
            territory_state = self.domain.territory_state_after(territory_state, decision.action, decision.game_time)
            self.pending[decision.number] = experience
            if observation.deferred:
                self.inactive.add(decision.number)
        elif self.settings.learning.train_on_wait or self._is_held_out(decision):
            self._store(experience, None)
        last = territory.last
        earlier = (*territory.earlier, (territory.time, to_json(last.reply))) if last else ()
        stored = Territory(territory_state, decision.game_time, decision, earlier[-MAX_ANSWERS:])
        self.territories.store(decision.territory, stored)
        for listener in self.decision_listeners:
            listener(complete)

    def _parse_logged(self, decision: events.DecisionMade) -> Observation:
        try:
            observation = self.domain.parse_observation(decision.message)
        except InvalidMessage as error:  # it was valid when the decision was made
            what = f"the domain {self.domain.name} can no longer read decision {decision.number} of the log: {error}"
            raise TownletError(what, "restore the modules that it uses, or choose another folder") from error
        if (observation.territory, observation.time) != (decision.territory, decision.game_time):
            raise ValueError(f"decision {decision.number} answers another observation than its own")
        return observation

    def _add_outcome(self, outcome: events.OutcomeRecorded) -> None:
        failed = outcome.how == "failed"
        digest = 0 if outcome.how == "observed" else report_digest(outcome.value, failed)
        status = self.join.add_outcome(outcome.number, digest, failed)
        accepted = status in (OutcomeStatus.JOINED, OutcomeStatus.FAILED)
        if accepted and (experience := self.pending.pop(outcome.number, None)):
            row, decision = experience
            if failed and (territory := self.territories.get(decision.territory)):
                restored = self.domain.territory_state_after_failure(
                    territory.state, row, decision.action, decision.game_time
                )
                self.territories[decision.territory] = replace(territory, state=restored)
            self._complete(experience, outcome.value, outcome.how)

    def _complete(self, experience: Experience, value: float, how: str) -> None:
        self.totals.completed += 1
        self.totals.actual += value
        self.totals.first += value if self.totals.completed <= FIRST_OUTCOMES else 0.0
        self.totals.expected += experience.decision.expected or 0.0
        self._store(experience, value)
        for listener in self.outcome_listeners:
            listener(experience, value, how)

    def _is_held_out(self, decision: events.DecisionMade) -> bool:
        """Whether a decision is held out of training. Decisions of the gate alone (version 0) never are."""
        return decision.version > 0 and is_held_out(decision.number, self.settings.memory.held_out)

    def _store(self, experience: Experience, value: float | None) -> None:
        decision = experience.decision
        held_out = self._is_held_out(decision)
        self.inserted += not held_out
        (self.held_out if held_out else self.buffer).add(
            experience.row,
            number=decision.number,
            action=decision.action,
            time=decision.game_time,
            propensity=decision.propensity,
            confidence=decision.confidence,
            send=decision.send,
            expected=decision.expected or 0.0,
            outcome=0.0 if value is None else value,
            has_outcome=value is not None,
            version=decision.version,
            gate=self.gates[decision.gate],
        )


def is_held_out(number: int, share: float) -> bool:
    """Whether a decision is held out: a fixed, pseudo-random choice by its number.

    The bits are mixed as in SplitMix64. Holding out every n-th decision would be too regular: if games
    take turns, only the decisions of some of them would ever be held out.
    """
    bits = number * GOLDEN & MASK
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & MASK
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & MASK
    return (bits ^ bits >> 31) / 2**64 < share
