"""A digest of the metrics of a run, to compare runs."""

from __future__ import annotations

import hashlib

from townlet.runs.database import TABLES, WALL_TIME
from townlet.runs.metrics_reader import IRREPRODUCIBLE_METRICS, MetricsReader, as_rows


def content_digest(store: MetricsReader) -> str:
    """SHA-256 of all rows, without values that depend on the clock: equal for identical runs."""
    digest = hashlib.sha256()
    for table, columns in TABLES.items():
        digest.update(table.encode())
        for row in as_rows(store.read(table, [column for column in columns if column != WALL_TIME])):
            if row.get("name") not in IRREPRODUCIBLE_METRICS:
                digest.update(repr(row).encode())
    return digest.hexdigest()
