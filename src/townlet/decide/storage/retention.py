"""Retention: which snapshots are kept, and how much of the log they cover.

With the setting `keep`, records are removed once a snapshot that is older covers them; replay then starts at that
snapshot, the base. Further snapshots within the period become the base later. After a snapshot the trainer may go back
to any version that was stored then, so these versions are kept with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

PARTS: Final = 10  # snapshots within the period that is kept
SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Retention(NamedTuple):
    """What is kept, by record numbers of snapshots."""

    snapshots: frozenset[int]
    base: int | None  # records up to this one may be removed


def parse_duration(text: str | None) -> float:
    """The seconds of a duration such as 90d; infinity for None."""
    return inf if text is None else float(text[:-1]) * SECONDS[text[-1]]


def is_due(records: int, seconds: float, interval: int, keep: str | None) -> bool:
    """Whether a snapshot is due, after this many records and seconds."""
    return records >= interval or (records > 0 and seconds >= parse_duration(keep) / PARTS)


def plan_retention(infos: Sequence[Mapping[str, Any]], keep: str | None, now: float) -> Retention:
    """What to keep of snapshots with these infos, oldest first: the base, further ones at intervals, and the last."""
    period, kept = parse_duration(keep), list[Mapping[str, Any]]()
    old = [info for info in infos if info.get("at", inf) <= now - period]
    for info in infos[max(len(old) - 1, 0) :]:
        if not kept or info is infos[-1] or info.get("at", 0.0) >= kept[-1].get("at", 0.0) + period / PARTS:
            kept.append(info)
    return Retention(frozenset(int(info["record"]) for info in kept), int(old[-1]["record"]) if old else None)


def needed_versions(infos: Collection[Mapping[str, Any]]) -> set[int]:
    """The versions to which a replay from one of these snapshots may go back."""
    return {version for info in infos for version in info.get("versions", ())}
