"""The history of versions as people can read it: what was decided many times in a row is one chapter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from townlet.decide.storage.serving_log import ServingChange

TOLD: Final = 20  # chapters, the last ones
NOTED: Final = ("hold", "refuse")  # verdicts that a note begins with


def summarize_history(history: Iterable[ServingChange]) -> list[dict[str, Any]]:
    """Changes with the same verdict in a row are one, oldest first: its versions, and the reason of the last."""
    found: list[dict[str, Any]] = []
    for change in history:
        verdict, reason = _verdict(change)
        if not found or found[-1]["verdict"] != verdict:
            found.append({"verdict": verdict, "first": change.version, "times": 0})
        told = {"last": change.version, "times": found[-1]["times"] + 1, "at": change.at, "served": change.served}
        found[-1] |= told | {"reason": reason, "estimate": change.estimate}
    return [one | {"estimate": asdict(one["estimate"]) if one["estimate"] else None} for one in found[-TOLD:]]


def _verdict(change: ServingChange) -> tuple[str, str]:
    """What was decided, and why."""
    verdict, colon, reason = change.reason.partition(": ")
    if change.kind == "note" and colon and verdict in NOTED:
        return verdict, reason
    noted = f"only noted, as another one is pinned: {change.kind}, {change.reason}"
    return (change.kind, change.reason) if change.served else ("noted", noted)
