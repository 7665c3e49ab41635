"""Consistency of the events in a decision log: each must follow from the ones before it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from townlet.decide.domains import DOMAINS
from townlet.decide.events import Begun, Decided, Event, Outcome, Published, Returned, Serving, Stepped, decode
from townlet.decide.join import Counts
from townlet.decide.settings import settings_of
from townlet.decide.state import Ledger
from townlet.decide.storage import snapshots
from townlet.decide.storage.log import read
from townlet.errors import TownletError
from townlet.runs import checkpoint

LOG: Final = "log"
MOST: Final = 5  # violations that are listed
COUNTED: Final = ("decisions", "joined", "expired", "waited", "failed")  # what a snapshot must count like the log


@dataclass
class LoggedFacts:
    """What the log says about other files."""

    published: dict[int, str] = field(default_factory=dict)  # digests of versions
    serving: Serving | None = None  # the last change of what serves
    counts: dict[int, dict[str, int]] = field(default_factory=dict)  # of decisions, at the records of snapshots
    complete: bool = False  # whether the log was read from its first record on


def check_events(add: Callable[[str, str, str], bool], folder: Path, last: int) -> LoggedFacts:
    """Apply all events up to record `last`, and check what each refers to."""
    facts, broken, checker = LoggedFacts(), list[str](), EventChecker()
    wanted = {checkpoint.order(path)[0] for path in checkpoint.listing(folder / snapshots.FOLDER)}
    record = 0
    try:
        for record, payload in read(folder / LOG):
            if record > last:
                break
            if not facts.complete and record > 1 and checker.ledger is None:
                add("events of the log", "", "its beginning was dropped, so they cannot be checked")
                return facts
            facts.complete = True
            broken += [f"record {record}: {what}" for what in checker.check(decode(payload))]
            if record in wanted:
                facts.counts[record] = {name: getattr(checker.counts, name) for name in COUNTED}
            if len(broken) >= MOST:
                break
    except (TownletError, ValueError, KeyError, TypeError, AttributeError) as error:
        broken.append(f"record {record}: {error}")
    facts.published, facts.serving = checker.published, checker.serving
    counts = checker.counts
    told = (
        f"{counts.decisions} decisions = {counts.joined} joined + {counts.expired} expired + {counts.pending} pending"
    )
    add("events of the log", "; ".join(broken), f"{told} + {counts.not_executed} not executed")
    return facts


class EventChecker:
    """Applies events to a state of its own, and compares each with what came before."""

    def __init__(self) -> None:
        self.ledger: Ledger | None = None  # until the first event
        self.published: dict[int, str] = {}
        self.serving: Serving | None = None
        self._step = 0

    @property
    def counts(self) -> Counts:
        """Counts of decisions by state."""
        return self.ledger.join.counts if self.ledger else Counts()

    def check(self, event: Event) -> list[str]:
        """Apply an event; returns the rules that it violates."""
        if self.ledger is None:
            if not isinstance(event, Begun):
                return ["the log does not begin with a start of the service"]
            domain = DOMAINS[event.settings["domain"]]
            self.ledger = Ledger(domain, settings_of(domain).model_validate_json(json.dumps(event.settings)))
        broken = self._references(event, self.ledger)
        self.ledger.apply(event)
        counts = self.ledger.join.counts
        if not counts.balanced:
            broken.append("the decisions do not add up")
        if isinstance(event, Decided) and counts.decisions != event.number:
            broken.append(f"decision {event.number} comes after {counts.decisions - 1} decisions")
        return broken

    def _references(self, event: Event, ledger: Ledger) -> list[str]:
        match event:
            case Decided(version=version, gate=gate, reply=reply):
                wrong = [] if version in self.published or not version else [f"version {version} was never published"]
                wrong += [] if gate in ledger.gates else ["its gate settings are not those of any start"]
                id = str(reply.get("decisionId"))
                known = ledger.ids.number(id, event.number) == event.number
                return wrong if known else [*wrong, f"its id {id[:40]} is not one of this log"]
            case Outcome(number=number) if not ledger.join.is_pending(number):
                return [f"an outcome of decision {number}, which was not pending"]
            case Published(version=version, digest=digest):
                self.published[version] = digest
            case Returned(version=version) if version not in self.published and self.published:
                return [f"a rollback to version {version}, which was never published"]
            case Serving(version=version):
                self.serving = event
                if version and version not in self.published and self.published:
                    return [f"version {version} serves, but was never published"]
            case Stepped(step=step):
                if step < self._step:
                    return [f"step {step} comes after step {self._step}"]
                self._step = step
        return []
