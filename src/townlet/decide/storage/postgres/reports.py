"""A batch of reports: their decisions and territories are locked until the transaction ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from townlet.decide import events
from townlet.decide.domain import Domain
from townlet.decide.join import FAILED, JOINED, NONE, OutcomeStatus, rejection, report_digest
from townlet.decide.storage.postgres.rows import RowFormat, join_lines, lock_key
from townlet.decide.storage.protocol import ReportTarget

LOCK_TERRITORIES: Final = "SELECT pg_advisory_xact_lock(key) FROM (SELECT unnest(%s::bigint[]) AS key OFFSET 0) AS keys"
INSERT_EVENTS: Final = "INSERT INTO event (body) SELECT string_to_table(%s, E'\\n')"
READ_TERRITORIES: Final = "SELECT territory FROM decision WHERE number = ANY(%s)"
READ_DECISIONS: Final = """
    SELECT number, territory, status, digest, client, at, game_time, action, inactive, observation,
        CASE WHEN number = ANY(%s) THEN reply END
    FROM decision WHERE number = ANY(%s) OR number = ANY(ARRAY(
        SELECT (SELECT number FROM decision WHERE territory = name ORDER BY game_time DESC, number DESC LIMIT 1)
        FROM unnest(%s::text[]) AS name))
    ORDER BY number FOR UPDATE"""
STORE_DECISIONS: Final = f"""
    UPDATE decision SET status = new.status, digest = new.digest, inactive = new.inactive,
        observation = CASE WHEN new.status = {NONE} THEN observation END
    FROM unnest(%s::bigint[], %s::smallint[], %s::int[], %s::bool[]) AS new (number, status, digest, inactive)
    WHERE decision.number = new.number"""


@dataclass
class StoredDecision:
    """The row of a decision."""

    number: int
    territory: str
    status: int
    digest: int
    client: str
    at: float
    game_time: float
    action: int
    inactive: bool
    observation: bytes | None
    reply: str | None  # if a report names the decision by its id


class ReportBatch:
    """Reports that are handled in one transaction, in pipeline mode; what they change is sent at its end."""

    def __init__(
        self, connection: Connection[Any], targets: Mapping[ReportTarget, int | None], domain: Domain,
        observations: RowFormat, territories: RowFormat, count_rejected: Callable[[OutcomeStatus], object],
    ) -> None:  # fmt: skip
        """`targets` have the numbers of those decisions that are named by their ids."""
        self.connection, self.domain, self.count_rejected = connection, domain, count_rejected
        self.observations, self.territories, self._targets = observations, territories, targets
        self.events: list[events.Event] = []
        self.changed: dict[int, StoredDecision] = {}
        numbers = [number for number in targets.values() if number is not None]
        names = [target.id for target in targets if target.by_territory]
        locked = {*names, *(name for (name,) in connection.execute(READ_TERRITORIES, [numbers]))}
        connection.execute(LOCK_TERRITORIES, [sorted(map(lock_key, locked))])
        rows = connection.execute(READ_DECISIONS, [numbers, numbers, names], binary=True)
        self._decisions = {decision.number: decision for decision in (StoredDecision(*row) for row in rows)}

    def reported(self, targets: Sequence[ReportTarget]) -> Iterator[PostgresReport | None]:
        """The decision of each report, as the ones before it have left it."""
        last: dict[str, StoredDecision] = {}
        for one in sorted(self._decisions.values(), key=lambda one: (one.game_time, one.number)):
            last[one.territory] = one
        for target in targets:
            found = last.get(target.id) if target.by_territory else self._decisions.get(self._targets[target] or 0)
            if found and not target.by_territory and target.id not in (found.reply or ""):
                found = None  # the number is that of another decision: the id was forged, or its decision was lost
            yield None if found is None else PostgresReport(self, found)

    def store(self) -> None:
        """Send everything that has changed."""
        if not self.events:
            return
        changed = [(one.number, one.status, one.digest, one.inactive) for one in self.changed.values()]
        self.connection.execute(STORE_DECISIONS, list(map(list, zip(*changed, strict=True))))
        self.connection.execute(INSERT_EVENTS, [join_lines(map(events.encode, self.events))])


class PostgresReport:
    """A decision about which a report has arrived."""

    def __init__(self, batch: ReportBatch, decision: StoredDecision) -> None:
        self._batch, self._decision = batch, decision
        self.status, self.client, self.at = decision.status, decision.client, decision.at
        self.pending = self.status == NONE
        self.inactive = decision.inactive

    def join(self, value: float, how: str) -> int:
        decision, failed = self._decision, how == "failed"
        decision.status, decision.digest = FAILED if failed else JOINED, report_digest(value, failed)
        if failed:
            self._undo_in_territory()
        return self._write(events.OutcomeRecorded(decision.number, value, how))

    def activate(self) -> int:
        self._decision.inactive = False
        return self._write(events.DecisionActivated(self._decision.number))

    def _write(self, event: events.Event) -> int:
        self._batch.events.append(event)
        self._batch.changed[self._decision.number] = self._decision
        return 0

    def _undo_in_territory(self) -> None:
        """The state of the territory as if the action had not been sent."""
        batch, decision = self._batch, self._decision
        sql = "SELECT state FROM territory WHERE name = %s"
        row = batch.connection.execute(sql, [decision.territory], binary=True).fetchone()
        if row is None or decision.observation is None:
            return
        state, before = batch.territories.decode(row[0]), batch.observations.decode(decision.observation)
        restored = batch.domain.territory_state_after_failure(state, before, decision.action, decision.game_time)
        update = "UPDATE territory SET state = %s WHERE name = %s"
        batch.connection.execute(update, [batch.territories.encode(restored), decision.territory])

    def reject(self, digest: int) -> tuple[OutcomeStatus, int]:
        status = rejection(self.status, self._decision.digest, digest)
        self._batch.count_rejected(status)
        return status, 0

    def contradict(self) -> None:
        self._batch.count_rejected(OutcomeStatus.CONTRADICTING)
