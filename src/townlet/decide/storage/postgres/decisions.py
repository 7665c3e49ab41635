"""The decision path in PostgreSQL: each batch is one transaction that holds the locks of its territories."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from queue import LifoQueue
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from psycopg import Connection
from pydantic_core import from_json, to_json

from townlet.decide import events
from townlet.decide.clock import ServiceClock
from townlet.decide.domain import Domain, Observation, ObservationRow
from townlet.decide.join import EXPIRED, FAILED, JOINED, NONE, WAITED, DecisionCounts, OutcomeStatus
from townlet.decide.service_loop import ServiceLoop
from townlet.decide.settings import DecideSettings, settings_hash
from townlet.decide.state import DecisionIds, number_in
from townlet.decide.storage import StorageNotice
from townlet.decide.storage.availability import StorageUnavailable
from townlet.decide.storage.postgres.database import NOW, WAIT_SECONDS, Database, durability_problem, synchronize
from townlet.decide.storage.postgres.processes import ProcessReports
from townlet.decide.storage.postgres.reports import LOCK_TERRITORIES, ReportBatch
from townlet.decide.storage.postgres.rows import join_lines, lock_key, observation_format, territory_format
from townlet.decide.storage.postgres.service_row import add_key, encode_settings, open_service
from townlet.decide.storage.postgres.versions import VersionTable
from townlet.decide.storage.protocol import (
    ReportedDecision,
    ReportTarget,
    StoredReply,
    TerritoryUse,
)
from townlet.decide.storage.versions import VersionStore
from townlet.errors import TownletError
from townlet.rng import Streams

CONNECTIONS: Final = 2  # batches that may be in progress at the same time: one computes while another one commits
PROBLEM_SECONDS: Final = 15.0  # a load balancer that stopped sending requests tries again after this time

READ_TERRITORIES: Final = "SELECT name, state, game_time, at, client FROM territory WHERE name = ANY(%s)"
READ_PENDING: Final = """
    SELECT number, territory, game_time, observation FROM decision
    WHERE status = 0 AND territory = ANY(%s) ORDER BY game_time, number FOR UPDATE"""
# Locks territories, and returns as many numbers of decisions, and the time after each lock.
LOCK_AND_NUMBER: Final = LOCK_TERRITORIES.replace("(key)", f"(key), nextval('decision_number'), {NOW}")
END_DECISIONS: Final = "UPDATE decision SET status = %s, observation = NULL WHERE number = ANY(%s)"
STORE_DECISIONS: Final = """
    WITH made AS (
        SELECT * FROM unnest(
            %s::bigint[], %s::text[], %s::float8[], %s::float8[], %s::text[], %s::int[], %s::smallint[],
            string_to_array(%s, E'\\n'), %s::bool[], %b::bytea[], %b::bytea[]
        ) AS made (number, territory, game_time, at, client, action, status, reply, inactive, observation, state)),
    logged AS (INSERT INTO event (body) SELECT string_to_table(%s, E'\\n')),
    stored AS (
        INSERT INTO decision (number, territory, game_time, at, client, action, status, reply, inactive, observation)
        SELECT number, territory, game_time, at, client, action, status, reply, inactive, observation FROM made)
    INSERT INTO territory (name, state, game_time, at, client) SELECT territory, state, game_time, at, client FROM made
    ON CONFLICT (name) DO UPDATE SET (state, game_time, at, client) =
        (excluded.state, excluded.game_time, excluded.at, excluded.client)"""
COUNTS: Final = """
    SELECT status, sum(count)::bigint FROM (
        SELECT status, count(*) FROM decision GROUP BY status UNION ALL SELECT status, count FROM removed_decisions
    ) AS counted GROUP BY status"""


class StoredTerritory(NamedTuple):
    """A territory as it was when the batch locked it."""

    state: ObservationRow
    use: TerritoryUse | None


class PostgresStorage:
    """The decision path of one process; its state is in the database."""

    concurrency = CONNECTIONS

    def __init__(
        self, url: str, domain: Domain, settings: DecideSettings, clock: ServiceClock, role: str = "all"
    ) -> None:
        self.url, self.domain, self.settings, self.clock = url, domain, settings, clock
        self.gate_hash = settings_hash(settings.gate)
        self.observations, self.territories = observation_format(domain), territory_format(domain)
        self._control = Database(url, "control", serving=True)
        try:
            with self._control.transaction() as connection:
                synchronize(clock, connection)
                unsafe = durability_problem(connection)
            open_service(self._control, domain, settings, clock())
        except TownletError:
            self._control.close()
            raise
        # The key of each session in which a decision was made. A server that was restored, or that lacks the last
        # decisions of another one, numbers decisions as before; its sessions are new ones, so the ids differ.
        self._ids = WeakKeyDictionary[Connection[Any], DecisionIds]()
        self._connections: LifoQueue[Database] = LifoQueue()
        for _ in range(CONNECTIONS):
            self._connections.put(Database(url, "decisions", statement_seconds=WAIT_SECONDS))
        template = domain.policies[settings.policy].build(Streams(0).torch("empty"), settings.options)
        self.versions = VersionStore(VersionTable(self._control), template, settings.versions, clock)
        self.process = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        text = encode_settings(settings)
        self.process_reports = ProcessReports(url, self.process, role, self.versions, clock, text)
        self.rejected = dict.fromkeys(OutcomeStatus, 0)
        self._rejected_lock = threading.Lock()
        self._problem = ""  # why the database could not be used the last time
        self._problem_until = 0.0  # by the monotonic clock
        self._found = (
            [StorageNotice("durability", f"The database may lose data: {unsafe}.", "Turn the setting on.")]
            if unsafe
            else []
        )

    @property
    def notices(self) -> list[StorageNotice]:
        """Unsafe settings of the server, a wrong clock of this host, and processes with other settings."""
        return [*self._found, *self.clock.notices(), *self.process_reports.notices]

    @property
    def problem(self) -> str | None:
        """Why the database cannot be used: the last error, for some time, since there may be no further attempt."""
        return self._problem if time.monotonic() < self._problem_until else None

    @property
    def loops(self) -> Sequence[ServiceLoop]:
        """The loop that reports this process and reads what serves."""
        return [self.process_reports.loop]

    @property
    def seconds_since_refresh(self) -> float:
        """Since the changes of other processes to what serves were read."""
        return time.monotonic() - self.process_reports.refreshed

    @property
    def decision_stream(self) -> str:
        """Another one for each thread of each process."""
        return secrets.token_hex(8)

    @property
    def durable(self) -> int:
        """Every record is durable when the batch that wrote it ends."""
        return 0

    def on_durable(self, callback: Callable[[int], object]) -> None:
        """Never needed: no reply waits for a record."""

    @contextmanager
    def _transaction(self) -> Iterator[Connection[Any]]:
        database = self._connections.get()
        try:
            with database.transaction(pipelined=True) as connection:
                yield connection
            self._problem_until = 0.0
        except StorageUnavailable as error:
            self._problem, self._problem_until = error.diagnostics[0].what, time.monotonic() + PROBLEM_SECONDS
            raise
        finally:
            self._connections.put(database)

    @contextmanager
    def batch(self, territories: Iterable[str]) -> Iterator[PostgresBatch]:
        """Lock these territories until the end of the block, in a fixed order."""
        with self._transaction() as connection:
            batch = PostgresBatch(self, connection, sorted(set(territories)), self._ids.get(connection))
            yield batch
        if batch.has_decisions:
            self._ids[connection] = batch.ids

    @contextmanager
    def reports(self, targets: Sequence[ReportTarget]) -> Iterator[Iterator[ReportedDecision | None]]:
        """Lock the decisions of these reports, and their territories."""
        numbers = {one: None if one.by_territory else number_in(one.id) for one in targets}
        if not any(one.by_territory or number is not None for one, number in numbers.items()):
            yield iter([None] * len(targets))
            return
        with self._transaction() as connection:
            formats = self.observations, self.territories
            batch = ReportBatch(connection, numbers, self.domain, *formats, self.count_rejected)
            yield batch.reported(targets)
            batch.store()

    def unlogged_id(self) -> str:
        raise TownletError("every decision in a database is stored")

    def is_unlogged(self, id: str) -> bool:
        return False

    def count_rejected(self, status: OutcomeStatus) -> None:
        with self._rejected_lock:
            self.rejected[status] += 1

    def processes(self) -> list[dict[str, Any]]:
        """The last report of every process."""
        return self.process_reports.processes

    def learner_report(self) -> tuple[dict[str, Any], float | None]:
        """The last statistics of the learner, and their age."""
        return self.process_reports.learner, self.process_reports.learner_age

    def counts(self) -> DecisionCounts:
        """All decisions by status, and the reports that this process rejected."""
        with self._control.transaction() as connection:
            found: dict[int, int] = dict(connection.execute(COUNTS).fetchall())
        return DecisionCounts(
            sum(found.values()), found.get(JOINED, 0), found.get(EXPIRED, 0), found.get(NONE, 0), found.get(WAITED, 0),
            found.get(FAILED, 0), self.rejected[OutcomeStatus.DUPLICATE], self.rejected[OutcomeStatus.LATE],
            self.rejected[OutcomeStatus.UNKNOWN], self.rejected[OutcomeStatus.CONTRADICTING],
        )  # fmt: skip

    def maintain(self) -> None:
        """Nothing to do: the learner expires decisions and evicts territories."""

    def close(self) -> None:
        """Close all connections."""
        self.process_reports.stop()
        while not self._connections.empty():
            self._connections.get().close()
        self._control.close()


class PostgresBatch:
    """Territories that are locked until the transaction ends. The connection is in pipeline mode."""

    def __init__(
        self, storage: PostgresStorage, connection: Connection[Any], names: Sequence[str], ids: DecisionIds | None
    ) -> None:
        """`ids`: those of the session; None before its first decision."""
        self._storage, self._connection, domain = storage, connection, storage.domain
        self._new_key = "" if ids else secrets.token_hex(16)
        self.ids = ids or DecisionIds()
        if self._new_key:
            self.ids.add_key(self._new_key)
        numbers = connection.execute(LOCK_AND_NUMBER, [sorted(map(lock_key, names))])
        read = connection.execute(READ_TERRITORIES, [names], binary=True)
        observed = domain.reward_from_next is not None
        pending = connection.execute(READ_PENDING, [names], binary=True) if observed else None
        numbered = numbers.fetchall()
        self._numbers = iter([number for _, number, _ in numbered])
        storage.clock.advance_to(max((now for _, _, now in numbered), default=0.0))
        self._territories = {
            name: StoredTerritory(storage.territories.decode(state), TerritoryUse(game_time, at, client))
            for name, state, game_time, at, client in read.fetchall()
        }
        self._pending = pending.fetchall() if pending else []
        self._events: list[events.Event] = []
        self._decisions: list[tuple[events.DecisionMade, bool, bytes | None]] = []  # whether deferred, and the row
        self._states: dict[str, ObservationRow] = {}  # new states of territories

    def last_use(self, territory: str) -> TerritoryUse | None:
        stored = self._territories.get(territory)
        return stored.use if stored else None

    def reply_at(self, territory: str, time: float) -> StoredReply | None:
        sql = "SELECT reply FROM decision WHERE territory = %s AND game_time = %s ORDER BY number DESC LIMIT 1"
        row = self._connection.execute(sql, [territory, time]).fetchone()
        return StoredReply(from_json(row[0]), 0) if row else None

    def state(self, territory: str) -> ObservationRow:
        stored = self._territories.get(territory)
        return stored.state if stored else self._storage.domain.initial_territory_state()

    def pending_before(self, territory: str, time: float) -> list[tuple[int, ObservationRow]]:
        return [
            (number, self._storage.observations.decode(row))
            for number, name, game_time, row in self._pending
            if name == territory and game_time < time
        ]

    def new_id(self) -> tuple[int, str]:
        number = next(self._numbers)
        return number, self.ids.create(number)

    @property
    def has_decisions(self) -> bool:
        return bool(self._decisions)

    def write(self, event: events.Event, observation: Observation | None = None) -> int:
        self._events.append(event)
        if isinstance(event, events.DecisionMade) and observation is not None:
            encoded = self._storage.observations.encode(observation.row) if event.send else None
            self._decisions.append((event, observation.deferred, encoded))
            state = self.state(event.territory)
            if event.send:
                state = self._storage.domain.territory_state_after(state, event.action, event.game_time)
            self._states[event.territory] = state
        return 0

    @contextmanager
    def commit(self) -> Iterator[None]:
        """The transaction commits at the end of the batch; everything is sent to the server here."""
        yield
        made = [event for event, _, _ in self._decisions]
        joined = [event.number for event in self._events if isinstance(event, events.OutcomeRecorded)]
        expired = [n for event in self._events if isinstance(event, events.DecisionsExpired) for n in event.numbers]
        fields = ((e.number, e.territory, e.game_time, e.at, e.client, e.action) for e in made)
        status = [NONE if event.send else WAITED for event in made]
        replies = join_lines(to_json(event.reply) for event in made)
        inactive = [deferred and event.send for event, deferred, _ in self._decisions]
        rows = [row for _, _, row in self._decisions]
        states = [self._storage.territories.encode(self._states[event.territory]) for event in made]
        values = [*map(list, zip(*fields, strict=True)), status, replies, inactive, rows, states]
        if self._new_key:
            add_key(self._connection, self._new_key, self._storage.clock())
        for ended, numbers in ((JOINED, joined), (EXPIRED, expired)):
            if numbers:
                self._connection.execute(END_DECISIONS, [ended, numbers])
        self._connection.execute(STORE_DECISIONS, [*values, join_lines(map(events.encode, self._events))])
