"""Snapshots of the service's state and its trainer as of one log record, so that startup replays only later records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from townlet.decide.decider import LazyBatch
from townlet.decide.domain import Domain, ObservationBatch, ObservationRow
from townlet.decide.events import SCHEMA, DecisionMade, ServingChanged, decode, encode, stored_values
from townlet.decide.settings import DecideSettings, stored_settings
from townlet.decide.state import Experience, ServiceState, Totals
from townlet.decide.storage import StorageNotice
from townlet.decide.storage.protocol import LearnerStorage
from townlet.decide.territories import Territory
from townlet.decide.trainer import Trainer
from townlet.errors import TownletError
from townlet.interfaces.state import State
from townlet.runs import checkpoint

SNAPSHOT_INTERVAL: Final = 20_000  # records
SNAPSHOT_SCHEMA: Final = f"{SCHEMA}.4"  # fingerprint of the events in a snapshot, and version of its own layout


class Snapshot(NamedTuple):
    """The state of a service and its trainer after one record of its log."""

    record: int
    state: State
    info: Mapping[str, Any]

    @property
    def domain_name(self) -> str:
        """The domain of the service."""
        return str(_decode_json(self.state["service"]["settings"])["domain"])

    def settings(self, domain: Domain) -> DecideSettings:
        """The settings that were in force."""
        with stored_values(f"the snapshot of record {self.record}"):
            return stored_settings(domain, _decode_json(self.state["service"]["settings"]))


class SnapshotContents(NamedTuple):
    """A snapshot that is to be stored."""

    info: dict[str, Any]
    service: StateCopy
    trainer: State

    def state(self) -> State:
        """The arrays to store."""
        return {"service": serialize(self.service), "trainer": self.trainer}


def take(storage: LearnerStorage, log_id: str) -> SnapshotContents:
    """Copy the state of a service, whose lock must be held."""
    info = {
        "log": log_id, "record": storage.record, "schema": SNAPSHOT_SCHEMA, "at": storage.clock(),
        "last": storage.state.join.last, "versions": storage.versions.list_versions() if storage.settings.keep else [],
    }  # fmt: skip
    return SnapshotContents(info, copy_state(storage.state), storage.trainer.copy())


def is_usable(info: Mapping[str, Any], log_id: str) -> bool:
    """Whether a snapshot with this info is one of this log, in the layout of this release."""
    return info.get("log") == log_id and info.get("schema") == SNAPSHOT_SCHEMA


def load_newest(folder: Path, log_id: str, last: int, notices: list[StorageNotice]) -> Snapshot | None:
    """The newest valid snapshot of this log up to record `last`, or None.

    A damaged snapshot is skipped, since replaying the log gives the same state, and reported in `notices`.
    """
    for path in reversed(checkpoint.paths(folder)):
        try:
            state, info = checkpoint.load(path)
        except TownletError as error:
            what = f"The snapshot {path.name} is damaged: {error.diagnostics[0].what}"
            fix = "An older snapshot or the whole log is used instead. Check the disk."
            notices.append(StorageNotice("snapshot", what, fix, critical=False))
            continue
        if is_usable(info, log_id) and int(info["record"]) <= last:
            return Snapshot(int(info["record"]), state, info)
    return None


class StateCopy(NamedTuple):
    """A consistent copy of the state. Territories and experiences are immutable, so references to them suffice."""

    settings: DecideSettings
    other: State  # everything besides the fields here, already copied
    territories: dict[str, Territory]
    pending: list[Experience]


def copy_state(service: ServiceState) -> StateCopy:
    """Copy everything mutable. This must be fast: the caller holds the service's lock."""
    totals = asdict(service.totals)
    other = {
        "keys": encode_json(service.ids.state()),
        "serving": encode_json(service.serving),
        "gates": dict(service.gates),
        "reasons": totals.pop("reasons"),
        "totals": totals,
        "inserted": service.inserted,
        "join": service.join.state(),
        "inactive": np.array(sorted(service.inactive), np.int64),
        "buffer": service.buffer.state(),
        "held_out": service.held_out.state(),
    }
    return StateCopy(service.settings, other, dict(service.territories), list(service.pending.values()))


def serialize(copy: StateCopy) -> State:
    """Convert a copy to the arrays of a checkpoint."""
    territories, pending = copy.territories.values(), copy.pending
    answers = [answer for territory in territories for answer in territory.earlier]
    return {
        **copy.other,
        "settings": encode_json(copy.settings.model_dump(mode="json")),
        "territories": {
            "names": encode_json(list(copy.territories)),
            "last": _encode_decisions(territory.last for territory in territories),
            "states": _stack_observations([territory.state for territory in territories]),
            "earlier": {  # the answers of all territories, and how many belong to each
                "counts": np.array([len(territory.earlier) for territory in territories], np.int64),
                "times": np.array([time for time, _ in answers], np.float64),
                "replies": np.frombuffer(b"\n".join(reply for _, reply in answers), np.uint8),
            },
        },
        "pending": {
            "decisions": _encode_decisions(experience.decision for experience in pending),
            "observations": _stack_observations([experience.row for experience in pending]),
        },
    }


def restore(snapshot: Snapshot, service: ServiceState, trainer: Trainer) -> None:
    """Load a snapshot into a new service state and trainer."""
    restore_service(snapshot, service)
    trainer.restore(snapshot.state["trainer"])


def restore_service(snapshot: Snapshot, service: ServiceState) -> None:
    """Load a snapshot into a new service state."""
    with stored_values(f"the snapshot of record {snapshot.record}"):
        _restore_service(snapshot, snapshot.state["service"], service)


def _restore_service(snapshot: Snapshot, state: State, service: ServiceState) -> None:
    service.update_settings(snapshot.settings(service.domain))
    serving = _decode_json(state["serving"])
    service.serving = ServingChanged(*serving) if serving else None
    service.gates = dict(state["gates"])
    service.totals = Totals(**state["totals"], reasons=dict(state["reasons"]))
    service.inserted = int(state["inserted"])
    service.join.restore(state["join"])
    service.ids.restore(_last_numbers_and_keys(state, service.join.last))
    service.inactive = set(np.asarray(state["inactive"]).tolist())
    service.buffer.restore(state["buffer"])
    service.held_out.restore(state["held_out"])
    territories = state["territories"]
    names, last_decisions = _decode_json(territories["names"]), _decode_decisions(territories["last"])
    states = _split_observations(territories.get("states"), len(names), service.domain.initial_territory_state())
    earlier = territories["earlier"]
    times, replies = np.asarray(earlier["times"]).tolist(), bytes(np.asarray(earlier["replies"]))
    answers = zip(times, replies.split(b"\n") if times else (), strict=True)  # no replies would be split into one
    answers_of_each = [tuple(islice(answers, count)) for count in np.asarray(earlier["counts"]).tolist()]
    for name, territory_state, last, answered in zip(names, states, last_decisions, answers_of_each, strict=True):
        service.territories.store(name, Territory(territory_state, last.game_time, last, answered))
    decisions = _decode_decisions(state["pending"]["decisions"])
    rows = _split_observations(state["pending"]["observations"], len(decisions), service.domain.columns)
    experiences = [Experience(row, decision) for row, decision in zip(rows, decisions, strict=True)]
    service.pending = {experience.decision.number: experience for experience in experiences}


def _last_numbers_and_keys(state: State, last: int) -> list[tuple[int, str]]:
    """The state of `DecisionIds`; a snapshot of an earlier release has the first number of each key instead."""
    if "keys" in state:
        return [(number, key) for number, key in _decode_json(state["keys"])]
    first, keys = zip(*_decode_json(state["ids"]), strict=True)
    return [(following - 1, key) for following, key in zip([*first[1:], last + 1], keys, strict=True)]


def encode_json(value: Any) -> NDArray[np.uint8]:
    """JSON as an array of bytes: a checkpoint's manifest is meant for short values only."""
    return np.frombuffer(json.dumps(value, ensure_ascii=False).encode(), np.uint8)


def _decode_json(column: Any) -> Any:
    return json.loads(bytes(np.asarray(column)))


def _encode_decisions(decisions: Iterable[DecisionMade | None]) -> NDArray[np.uint8]:
    """Records of decisions; stored territories always have a last one."""
    return np.frombuffer(b"\n".join(encode(decision) for decision in decisions if decision is not None), np.uint8)


def _decode_decisions(column: Any) -> list[DecisionMade]:
    events = [decode(line) for line in bytes(np.asarray(column)).split(b"\n") if line]
    return [event for event in events if isinstance(event, DecisionMade)]


def _stack_observations(rows: list[ObservationRow]) -> ObservationBatch:
    stacked = LazyBatch(rows)
    return {name: stacked[name] for name in (rows[0] if rows else ())}


def _split_observations(columns: Any, count: int, names: Iterable[str]) -> list[ObservationRow]:
    arrays = {name: np.asarray(columns[name]) for name in names} if count else {}
    return [{name: column[index].copy() for name, column in arrays.items()} for index in range(count)]
