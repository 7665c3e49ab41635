"""All that follows from the log: decisions, what came of them, and what may be learned from.

Live and replayed events take the same way, so that a service that was killed goes on as if it had not been.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from townlet.decide.budgets import KEPT, most_pending, most_territories
from townlet.decide.buffer import ExperienceBuffer
from townlet.decide.domain import Domain, Observation, ObservationRow
from townlet.decide.events import (
    DecisionMade,
    DecisionsExpired,
    Event,
    OutcomeRecorded,
    ReportsRejected,
    ServiceStarted,
    ServingChanged,
)
from townlet.decide.ids import DecisionIds
from townlet.decide.join import Join, OutcomeStatus, report_digest
from townlet.decide.json import written
from townlet.decide.settings import DecideSettings, settings_hash, settings_model
from townlet.decide.territories import Territories, Territory
from townlet.errors import TownletError

# What is kept, and the shape of what is learned.
FIXED_SETTINGS: Final = ("policy", "seed", "memory.capacity", "memory.held_out", "memory.judged_by")
FIRST_OUTCOMES: Final = 500  # outcomes that tell how it began
GOLDEN: Final = 0x9E3779B97F4A7C15  # 2⁶⁴ over the golden ratio: neighbours land far apart
MESSAGE: Final = DecisionMade._fields.index("message")
NO_MESSAGE: Final[dict[str, Any]] = {}  # stands in for messages: the log has them, and memory needs their rows only
WORD: Final = 2**64 - 1  # whole numbers of 64 bits


class Experience(NamedTuple):
    """A decision with what was seen, while it waits for its outcome."""

    row: ObservationRow
    made: DecisionMade


@dataclass
class Totals:
    """Counts over the whole life of the service."""

    sent: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    completed: int = 0  # experiences that could be learned from
    actual: float = 0.0  # sum of the outcomes of what was carried out
    expected: float = 0.0  # sum of what the gate had expected of the same
    first: float = 0.0  # sum of the first outcomes, FIRST of them: what it was like before anything was learned


class ServiceState:
    """The state of the service. Whoever changes it holds the service's lock."""

    def __init__(self, domain: Domain, settings: DecideSettings) -> None:
        self.domain, self.settings = domain, settings
        memory = settings.memory
        self.join = Join()
        self.buffer = ExperienceBuffer(memory.capacity, domain.columns)
        self.held_out = ExperienceBuffer(memory.judged_by, domain.columns)
        self._most_territories = most_territories(domain, memory)
        self.ids = DecisionIds()
        self.serving: ServingChanged | None = None  # the last change of what serves
        self.gates: dict[str, int] = {}  # every gate that ever judged: a number for each hash
        self.territories = Territories()
        self.pending: dict[int, Experience] = {}
        self.tally = Totals()
        self.inserted = 0  # experiences that may be learned from, ever
        self.outcome_listeners: list[Callable[[Experience, float, str], None]] = []  # told of every outcome that counts

    @property
    def most_pending(self) -> int:
        """Number of decisions that may be pending, by count and by bytes."""
        return most_pending(self.domain, self.settings.memory)

    @property
    def decisions(self) -> int:
        """Decisions ever made, which is the number of the last one."""
        return self.join.decisions

    def territory(self, name: str) -> Territory:
        """What is known of a territory; a new one where nothing is."""
        found = self.territories.get(name)
        return found if found else Territory(self.domain.initial_memory(), -np.inf)

    def apply(self, event: Event, sight: Observation | None = None) -> None:
        """One event more. `sight` is what the message of a decision was read as, where somebody has it already."""
        match event:
            case ServiceStarted():
                self.configure(event)
                self.ids.begin(self.decisions + 1, event.key)
            case DecisionMade():
                self._decided(event, sight)
            case OutcomeRecorded():
                self._joined(event)
            case DecisionsExpired():
                for number in self.join.expire(event.at, event.after, event.most):
                    self._expired(self.pending.pop(number, None))
            case ReportsRejected():
                self.join.set_refused(event)
            case ServingChanged():
                self.serving = event

    def configure(self, begun: ServiceStarted) -> None:
        """Go on as a start says; refuses a folder of something else."""
        if (of := begun.settings["domain"]) != self.domain.name:
            what = f"this folder holds decisions for {of}, and not for {self.domain.name}"
            raise TownletError(what, f"serve {of}, or name another folder with --folder")
        self.follow(settings_model(self.domain).model_validate_json(json.dumps(begun.settings)))

    def follow(self, settings: DecideSettings) -> None:
        """Go on with other settings; those that decide what is kept, and how, are the folder's for ever."""
        for name in FIXED_SETTINGS:
            asked, begun = (attrgetter(name)(found) for found in (self.settings, settings))
            if asked != begun:
                what = f"{name} is {asked} now, and what lies in this folder was begun with {begun}"
                raise TownletError(what, f"write {name}={begun}, or name another folder with --folder")
        self.settings = settings
        self._most_territories = most_territories(self.domain, settings.memory)
        self.gates.setdefault(settings_hash(settings.gate), len(self.gates))

    def _decided(self, made: DecisionMade, sight: Observation | None) -> None:
        place = self.territory(made.territory)
        # What is known of a place is taken here and nowhere else: a batch may have let go of it since it was read.
        row = (sight or self.domain.parse_observation(made.message)).row | place.known
        self.join.decided(made.number, made.territory, made.time, made.at, made.send)
        self.tally.reasons[made.reason] = self.tally.reasons.get(made.reason, 0) + 1
        made = DecisionMade._make(
            (*made[:MESSAGE], NO_MESSAGE, *made[MESSAGE + 1 :])
        )  # a tenth of the time of `_replace`
        known, experience = place.known, Experience(row, made)
        if made.send:
            self.tally.sent += 1
            known = self.domain.memory_after(known, made.action, made.time)
            self.pending[made.number] = experience
        elif self.settings.learning.train_on_wait or self._judges(made):
            self._keep(experience, None)
        before = (*place.earlier, (place.time, written(place.last.reply))) if place.last else ()
        self.territories.remember(made.territory, Territory(known, made.time, made, before[-KEPT:]))
        self.territories.trim(self._most_territories)

    def _joined(self, outcome: OutcomeRecorded) -> None:
        failed = outcome.how == "failed"
        digest = 0 if outcome.how == "next" else report_digest(outcome.value, failed)
        fate = (self.join.failed if failed else self.join.reported)(outcome.number, digest)
        if fate in (OutcomeStatus.JOINED, OutcomeStatus.FAILED) and (
            experience := self.pending.pop(outcome.number, None)
        ):
            if failed:
                self._unmake(experience)
            self._complete(experience, outcome.value, outcome.how)

    def _unmake(self, experience: Experience) -> None:
        """What could not be carried out has changed nothing in its territory."""
        row, made = experience
        if place := self.territories.get(made.territory):
            known = self.domain.memory_without(place.known, row, made.action, made.time)
            self.territories[made.territory] = replace(place, known=known)

    def _expired(self, experience: Experience | None) -> None:
        if (value := self.settings.memory.expired) is not None:
            self._complete(experience, value, "default")

    def _complete(self, experience: Experience | None, value: float, how: str) -> None:
        if experience is None:
            return
        self.tally.completed += 1
        self.tally.actual += value
        self.tally.first += value if self.tally.completed <= FIRST_OUTCOMES else 0.0
        self.tally.expected += experience.made.expected or 0.0
        self._keep(experience, value)
        for ear in self.outcome_listeners:
            ear(experience, value, how)

    def _judges(self, made: DecisionMade) -> bool:
        """Whether it is kept aside; what no network decided says nothing about one."""
        return made.version > 0 and is_held_out(made.number, self.settings.memory.held_out)

    def _keep(self, experience: Experience, value: float | None) -> None:
        """Into what is learned from, or into what judges: which of them follows from the number alone."""
        made = experience.made
        aside = self._judges(made)
        self.inserted += not aside
        (self.held_out if aside else self.buffer).add(
            experience.row,
            number=made.number,
            action=made.action,
            time=made.time,
            propensity=made.propensity,
            confidence=made.confidence,
            send=made.send,
            expected=made.expected or 0.0,
            outcome=0.0 if value is None else value,
            has_outcome=value is not None,
            version=made.version,
            gate=self.gates[made.gate],
        )


def is_held_out(number: int, share: float) -> bool:
    """Whether a decision is kept aside, the same for ever and as if by chance.

    The bits are mixed as SplitMix64 does it: multiples alone are so regular that of games that ask in turn only some
    would ever be kept aside.
    """
    bits = number * GOLDEN & WORD
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & WORD
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & WORD
    return (bits ^ bits >> 31) / 2**64 < share
