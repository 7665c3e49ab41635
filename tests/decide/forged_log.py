"""Logs of a small service whose records were changed; their checksums are valid."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from townlet.decide.storage import LOG
from townlet.decide.storage.segments import HEADER, encode_record, list_segments, read_records
from townlet.decide.storage.stored_service import is_url, open_stored

Fields = list[Any]  # of an event, its name first


def stored_events(place: str | Path) -> list[Fields]:
    """All records as JSON."""
    with closing(open_stored(place)) as stored:
        return [json.loads(payload) for _, payload in stored.records()]


def rewrite(place: str | Path, change: Callable[[Fields], object]) -> None:
    """Change the fields of records in place."""
    events = stored_events(place)
    before = [json.dumps(fields) for fields in events]
    for fields in events:
        change(fields)
    if is_url(place):
        _rewrite_rows(str(place), before, [json.dumps(fields) for fields in events])
    else:
        _rewrite_segment(Path(place) / LOG, events)


def _rewrite_segment(log: Path, events: list[Fields]) -> None:
    (segment,) = list_segments(log)
    numbers = [number for number, _ in read_records(log)]
    payloads = [json.dumps(fields).encode() for fields in events]
    records = b"".join(encode_record(*one) for one in zip(numbers, payloads, strict=True))
    segment.path.write_bytes(segment.path.read_bytes()[: HEADER.size] + records)


def _rewrite_rows(url: str, before: list[str], after: list[str]) -> None:
    import psycopg

    changed = {old: new for old, new in zip(before, after, strict=True) if old != new}
    with psycopg.connect(url) as connection:
        for id, body in connection.execute("SELECT id, body FROM event").fetchall():
            if (new := changed.get(json.dumps(json.loads(body)))) is not None:
                connection.execute("UPDATE event SET body = %s WHERE id = %s", [new, id])


REMOVED: Any = object()


def paths(value: Any, path: tuple[int | str, ...] = ()) -> list[tuple[int | str, ...]]:
    """The places of all values inside a record; of a list, the first three."""
    inside: list[tuple[int | str, Any]] = []
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside += [*enumerate(value)][: 3 if path else None]
    found: list[tuple[int | str, ...]] = []
    for key, part in inside:
        found += [(*path, key), *paths(part, (*path, key))]
    return found


def put(fields: Fields, path: tuple[int | str, ...], value: Any) -> None:
    """Replace a value inside a record, or remove it."""
    inner: Any = fields
    for key in path[:-1]:
        inner = inner[key]
    if value is REMOVED:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value


def forge(place: str | Path, kind: str, path: tuple[int | str, ...], value: Any, nth: int = 0) -> None:
    """Replace a value in the n-th record of a kind."""
    left = nth

    def change(fields: Fields) -> None:
        nonlocal left
        if fields[0] == kind:
            if left == 0:
                put(fields, path, value)
            left -= 1

    rewrite(place, change)
