"""Removal of old rows, in small transactions beside the service.

Rows instead of partitions: deletion is no faster than insertion, dozens of rows per second for a million decisions a
day, and the space is used again. `benchmarks/RESULTS.md` has the cost.
"""

from __future__ import annotations

import json
from typing import Any, Final

from psycopg import Connection

from townlet.decide.storage.postgres.database import Database
from townlet.decide.storage.postgres.versions import require_epoch
from townlet.decide.storage.retention import plan_retention
from townlet.decide.storage.snapshots import SNAPSHOT_SCHEMA

CHUNK: Final = 10_000  # rows per transaction

REMOVE_EVENTS: Final = f"""
    DELETE FROM event WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM event
        WHERE transaction <= %s AND (coalesce(after_transaction, transaction), coalesce(after_id, id)) < (%s, %s)
        ORDER BY transaction, id LIMIT {CHUNK}))"""
REMOVE_DECISIONS: Final = f"""
    WITH removed AS (
        DELETE FROM decision WHERE number IN (
            SELECT number FROM decision WHERE number <= %s AND status <> 0 ORDER BY number LIMIT {CHUNK}
            FOR UPDATE SKIP LOCKED
        ) AND status <> 0 RETURNING status),
    counted AS (
        INSERT INTO removed_decisions AS before (status, count) SELECT status, count(*) FROM removed GROUP BY status
        ON CONFLICT (status) DO UPDATE SET count = before.count + excluded.count)
    SELECT count(*) FROM removed"""


def set_base(connection: Connection[Any], keep: str | None, now: float) -> None:
    """Remove the snapshots that are not kept; replay starts at the oldest one that is older than `keep`."""
    rows = connection.execute("SELECT info FROM snapshot ORDER BY record").fetchall()
    infos = [info for info in (json.loads(text) for (text,) in rows) if info.get("schema") == SNAPSHOT_SCHEMA]
    retention = plan_retention(infos, keep, now)
    removed = [info["record"] for info in infos if info["record"] not in retention.snapshots]
    connection.execute("DELETE FROM snapshot WHERE record = ANY(%s)", [removed])
    if retention.base is not None:
        connection.execute("UPDATE service SET base = %s", [retention.base])


def remove_old_rows(database: Database, epoch: int) -> None:
    """Remove the events before the base, and decisions made before it that are not pending."""
    with database.transaction() as connection:
        sql = "SELECT transaction, id, info FROM snapshot WHERE record = (SELECT base FROM service)"
        row = connection.execute(sql).fetchone()
    if row is None:
        return
    transaction, id, last = row[0], row[1], json.loads(row[2]).get("last", 0)
    removals = ((REMOVE_EVENTS, [transaction, transaction, id]), (REMOVE_DECISIONS, [last]))
    for statement, values in removals:
        removed = CHUNK
        while removed == CHUNK:
            with database.transaction() as connection:
                require_epoch(connection, epoch)
                done = connection.execute(statement, values)
                removed = done.fetchone()[0] if done.description else done.rowcount  # type: ignore[index]
