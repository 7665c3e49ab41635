"""Snapshots of state and trainer at one record of the log: a start replays only the records after it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from townlet.decide.decider import LazyBatch
from townlet.decide.domain import Domain, ObservationBatch, ObservationRow
from townlet.decide.events import SCHEMA, DecisionMade, ServingChanged, decode, encode
from townlet.decide.settings import DecideSettings, settings_model
from townlet.decide.state import Experience, ServiceState, Totals
from townlet.decide.storage import StorageNotice
from townlet.decide.territories import Territory
from townlet.decide.trainer import Trainer
from townlet.errors import TownletError
from townlet.interfaces.state import State
from townlet.runs import checkpoint

SNAPSHOT_RECORDS: Final = 20_000  # records between two snapshots


class Snapshot(NamedTuple):
    """The state of a service after one record of its log."""

    record: int
    state: State

    def settings(self, domain: Domain) -> DecideSettings:
        """The settings that were in force."""
        text = bytes(np.asarray(self.state["service"]["settings"]))
        return settings_model(domain).model_validate_json(text)


def save(folder: Path, log_id: str, record: int, service: StateCopy, trainer: State) -> None:
    """Write a snapshot and remove old ones."""
    state = {"service": serialize(service), "trainer": trainer}
    checkpoint.save(folder, checkpoint.folder_name(record), state, {"log": log_id, "record": record, "schema": SCHEMA})
    checkpoint.prune(folder)


def load_newest(folder: Path, log_id: str, last: int, notices: list[StorageNotice]) -> Snapshot | None:
    """The newest valid snapshot of this log up to record `last`, or None.

    A damaged one is skipped, since replaying the log gives the same state, and added to `notices`.
    """
    for path in reversed(checkpoint.paths(folder)):
        try:
            state, info = checkpoint.load(path)
        except TownletError as error:
            what = f"The snapshot {path.name} is damaged: {error.diagnostics[0].what}"
            fix = "The state was replayed from the log. Check the disk."
            notices.append(StorageNotice("snapshot", what, fix, critical=False))
            continue
        if info.get("log") == log_id and info.get("schema") == SCHEMA and int(info["record"]) <= last:
            return Snapshot(int(info["record"]), state)
    return None


class StateCopy(NamedTuple):
    """A consistent copy of the state. Territories and experiences are immutable, so references to them suffice."""

    settings: DecideSettings
    small: State  # parts that are copied quickly
    territories: dict[str, Territory]
    pending: list[Experience]


def copy_state(service: ServiceState) -> StateCopy:
    """Copy what could change, quickly; the caller holds the service's lock."""
    totals = asdict(service.totals)
    small = {
        "epochs": encode_json(service.ids.state()),
        "serving": encode_json(service.serving),
        "gates": dict(service.gates),
        "reasons": totals.pop("reasons"),
        "totals": totals,
        "inserted": service.inserted,
        "join": service.join.state(),
        "buffer": service.buffer.state(),
        "held_out": service.held_out.state(),
    }
    return StateCopy(service.settings, small, dict(service.territories), list(service.pending.values()))


def serialize(copy: StateCopy) -> State:
    """Convert a copy to the arrays of a checkpoint."""
    territories, pending = copy.territories.values(), copy.pending
    answers = [answer for territory in territories for answer in territory.earlier]
    return {
        **copy.small,
        "settings": encode_json(copy.settings.model_dump(mode="json")),
        "territories": {
            "names": encode_json(list(copy.territories)),
            "last": _encode_decisions(territory.last for territory in territories),
            "known": _stack_rows([territory.memory for territory in territories]),
            "earlier": {
                "counts": np.array([len(territory.earlier) for territory in territories], np.int64),
                "times": np.array([time for time, _ in answers], np.float64),
                "replies": np.frombuffer(b"\n".join(reply for _, reply in answers), np.uint8),
            },
        },
        "pending": {
            "made": _encode_decisions(experience.decision for experience in pending),
            "rows": _stack_rows([experience.row for experience in pending]),
        },
    }


def restore(snapshot: Snapshot, service: ServiceState, trainer: Trainer) -> None:
    """Load a snapshot into a new service state and trainer."""
    state = snapshot.state["service"]
    service.update_settings(snapshot.settings(service.domain))
    service.ids.restore(_decode_json(state["epochs"]))
    serving = _decode_json(state["serving"])
    service.serving = ServingChanged(*serving) if serving else None
    service.gates = dict(state["gates"])
    service.totals = Totals(**state["totals"], reasons=dict(state["reasons"]))
    service.inserted = int(state["inserted"])
    service.join.restore(state["join"])
    service.buffer.restore(state["buffer"])
    service.held_out.restore(state["held_out"])
    territories = state["territories"]
    names, last = _decode_json(territories["names"]), _decode_decisions(territories["last"])
    known = _split_rows(territories["known"], len(names), service.domain.initial_memory())
    stored = territories["earlier"]  # the answers of all territories, and how many belong to each
    times, replies = np.asarray(stored["times"]).tolist(), bytes(np.asarray(stored["replies"])).split(b"\n")
    answers = zip(times, replies, strict=False)
    earlier = [tuple(islice(answers, count)) for count in np.asarray(stored["counts"]).tolist()]
    for name, made, row, before in zip(names, last, known, earlier, strict=True):
        service.territories.store(name, Territory(row, made.time, made, before))
    decisions = _decode_decisions(state["pending"]["made"])
    rows = _split_rows(state["pending"]["rows"], len(decisions), service.domain.columns)
    service.pending = {made.number: Experience(row, made) for made, row in zip(decisions, rows, strict=True)}
    trainer.restore(snapshot.state["trainer"])


def encode_json(value: Any) -> NDArray[np.uint8]:
    """JSON as an array of bytes, since long values do not belong into a manifest."""
    return np.frombuffer(json.dumps(value, ensure_ascii=False).encode(), np.uint8)


def _decode_json(column: Any) -> Any:
    return json.loads(bytes(np.asarray(column)))


def _encode_decisions(decisions: Iterable[DecisionMade | None]) -> NDArray[np.uint8]:
    return np.frombuffer(b"\n".join(encode(decision) for decision in decisions if decision is not None), np.uint8)


def _decode_decisions(column: Any) -> list[DecisionMade]:
    events = [decode(line) for line in bytes(np.asarray(column)).split(b"\n") if line]
    return [event for event in events if isinstance(event, DecisionMade)]


def _stack_rows(rows: list[ObservationRow]) -> ObservationBatch:
    stacked = LazyBatch(rows)
    return {name: stacked[name] for name in (rows[0] if rows else ())}


def _split_rows(columns: Any, count: int, names: Iterable[str]) -> list[ObservationRow]:
    arrays = {name: np.asarray(columns[name]) for name in names} if count else {}
    return [{name: column[index].copy() for name, column in arrays.items()} for index in range(count)]
