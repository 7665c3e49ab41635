"""Integrity check of a service in PostgreSQL: every checksum, every event, and the tables that follow from the events.

The bytes of the tables themselves are protected by the page checksums of the server, if they are on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from psycopg import Connection

from townlet.decide.state import ServiceState
from townlet.decide.storage.consistency import EVENTS, EventChecker, check_events, check_snapshots, check_versions
from townlet.decide.storage.postgres.database import Database, durability_problem, without_password
from townlet.decide.storage.postgres.event_table import EventTable, is_moved
from townlet.decide.storage.postgres.rows import observation_format, territory_format
from townlet.decide.storage.serving_log import NOTHING_SERVES, ServingChange
from townlet.decide.storage.snapshots import Snapshot
from townlet.decide.storage.versions import weights_digest
from townlet.errors import TownletError
from townlet.interfaces.state import State, get_part
from townlet.runs.packing import unpack
from townlet.runs.verify import IntegrityReport

CHUNK: Final = 1000  # rows per round trip
LISTED: Final = 5  # rows that a problem lists
DISORDER: Final = """
    SELECT count(*) FROM (
        SELECT (after_transaction, after_id) < lag((after_transaction, after_id)) OVER (ORDER BY id) AS early
        FROM event WHERE after_id IS NOT NULL) AS learned
    WHERE early"""


def verify(
    database: Database, connection: Connection[Any], log_id: str, find_base: Callable[[], Snapshot | None]
) -> IntegrityReport:
    """Check the tables as they are in this transaction; `find_base` returns the snapshot where replay starts."""
    report = IntegrityReport(without_password(database.url))
    _check_server(report, connection)
    snapshots = _check_states(report, connection, "snapshot", "record", lambda state: {"state": state["service"]})
    versions = _check_states(report, connection, "version", "number", _digest)
    records = EventTable(database, visible=True).records()
    try:
        logged = check_events(report, records, snapshots.keys(), find_base())
    except TownletError as error:
        report.add(EVENTS, error.diagnostics[0].what)
        logged = EventChecker()
    _check_order(report, connection)
    check_snapshots(report, snapshots, log_id, logged, "snapshot {}".format)
    check_versions(report, versions, logged, "version {}".format)
    if logged.state is not None:
        _check_decisions(report, connection, logged.state)
        _check_territories(report, connection, logged.state)
    _check_changes(report, connection, logged, versions)
    damaged = not report.intact
    report.usable.append("Restore a backup of the database." if damaged else "A service can start from this database.")
    return report


def _check_server(report: IntegrityReport, connection: Connection[Any]) -> None:
    (version, checksums) = connection.execute(
        "SELECT current_setting('server_version'), current_setting('data_checksums')"
    ).fetchone() or ("", "")
    report.note("server", f"PostgreSQL {version}, page checksums {checksums}")
    if unsafe := durability_problem(connection):
        report.note("durability", unsafe)


def _check_states(
    report: IntegrityReport, connection: Connection[Any], table: str, key: str, keep: Callable[[State], dict[str, Any]]
) -> dict[int, dict[str, Any]]:
    """Check every byte of the snapshots or versions; returns the info of intact ones, and what `keep` makes of them."""
    intact: dict[int, dict[str, Any]] = {}
    for (number,) in connection.execute(f"SELECT {key} FROM {table} ORDER BY {key}").fetchall():
        found = connection.execute(f"SELECT info, state FROM {table} WHERE {key} = %s", [number], binary=True)
        info, state = found.fetchone() or ("{}", b"")
        try:
            kept = keep(unpack(state, "it"))
            intact[number] = json.loads(info) | kept
            if kept.get("weights", "") != intact[number].get("digest", ""):
                del intact[number]
                report.add(f"{table} {number}", "its weights do not match its digest")
        except (TownletError, ValueError) as error:
            what = error.diagnostics[0].what if isinstance(error, TownletError) else str(error)
            report.add(f"{table} {number}", what)
    return intact


def _digest(state: State) -> dict[str, Any]:
    return {"weights": weights_digest(get_part(state, "network", "version"))}


def _check_order(report: IntegrityReport, connection: Connection[Any]) -> None:
    (early,) = connection.execute(DISORDER).fetchone() or (0,)
    problem = f"{early} events were written by a learner that had applied less than the one before it" if early else ""
    report.add("order of the events", problem, "each learner continued where the one before it ended")
    if is_moved(connection):
        report.note("server", "another one stored the events; the next start continues their numbers")


def _check_decisions(report: IntegrityReport, connection: Connection[Any], state: ServiceState) -> None:
    """Compare the status of every decision with the events, and the observations of pending ones."""
    encode, wrong, count = observation_format(state.domain).encode, list[int](), 0
    with connection.cursor("decisions", scrollable=False) as cursor:
        cursor.itersize = CHUNK
        rows = cursor.execute("SELECT number, status, inactive, observation FROM decision", binary=True)
        for number, status, inactive, row in rows:
            count += 1
            pending = state.pending.get(number)
            if pending is not None:
                same = status == 0 and inactive == (number in state.inactive) and row == encode(pending.row)
            else:
                same = status == state.join.status(number) != 0 or state.join.is_forgotten(number)
            if not same:
                wrong.append(number)
    listed = ", ".join(map(str, sorted(wrong)[:LISTED]))
    problem = f"{len(wrong)} decisions differ from the events, such as {listed}" if wrong else ""
    (removed,) = connection.execute("SELECT coalesce(sum(count), 0)::bigint FROM removed_decisions").fetchone() or (0,)
    count += removed
    if not problem and count != state.decisions:
        problem = f"it has {count} decisions, but the events have {state.decisions}"
    aside = f"; {removed} of them are only counted" if removed else ""
    report.add("table decision", problem, f"{count} decisions have the status that follows from the events{aside}")


def _check_territories(report: IntegrityReport, connection: Connection[Any], state: ServiceState) -> None:
    """Compare every territory with the events."""
    encode, names, wrong = territory_format(state.domain).encode, set[str](), list[str]()
    for name, stored, game_time in connection.execute("SELECT name, state, game_time FROM territory", binary=True):
        names.add(name)
        territory = state.territories.get(name)
        if territory is None or territory.time != game_time or encode(territory.state) != stored:
            wrong.append(name)
    wrong += sorted(set(state.territories) - names)
    listed = ", ".join(wrong[:LISTED])
    problem = f"{len(wrong)} territories differ from the events, such as {listed}" if wrong else ""
    report.add("table territory", problem, f"{len(names)} territories have the state that follows from the events")


def _check_changes(
    report: IntegrityReport, connection: Connection[Any], logged: EventChecker, versions: dict[int, dict[str, Any]]
) -> None:
    """Compare the changes of what serves with the events and the versions."""
    rows = connection.execute("SELECT number, body FROM serving_change ORDER BY number").fetchall()
    problems, last = list[str](), NOTHING_SERVES
    for expected, (number, body) in enumerate(rows, rows[0][0] if rows else 1):
        try:
            last = ServingChange.model_validate_json(body)
        except ValueError:
            problems.append(f"change {number} is damaged")
            continue
        if number != expected or last.number != number:
            problems.append(f"change {expected} is missing")
            break
    applied = logged.state.serving if logged.state is not None else None
    if applied is not None and applied.number > last.number:
        problems.append(f"change {applied.number} is missing, but the log refers to it")
    elif applied is not None and (applied.gate_only, applied.pinned) != (last.gate_only, last.pinned):
        problems.append(f"gate-only mode or the pin differs from the log at change {applied.number}")
    if last.serving is not None and last.serving not in versions:
        problems.append(f"version {last.serving} serves, but is missing or damaged")
    serves = "nothing serves yet" if last.serving is None else f"version {last.serving} serves"
    serves += ", only the gate decides" if last.gate_only else ""
    report.add("table serving_change", "; ".join(problems), f"{len(rows)} changes; {serves}")
