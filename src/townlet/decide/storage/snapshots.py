"""Milestones: ledger and trainer at one record of the log, so that a start need not read all that was ever written."""

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
from townlet.decide.domain import ColumnSpec, Domain, ObservationBatch, ObservationRow
from townlet.decide.events import SCHEMA, DecisionMade, ServingChanged, decode, encode
from townlet.decide.settings import DecideSettings, settings_model
from townlet.decide.state import Experience, ServiceState, Totals
from townlet.decide.storage import StorageNotice
from townlet.decide.territories import Answers, Territory
from townlet.decide.trainer import Trainer
from townlet.errors import TownletError
from townlet.interfaces.state import State
from townlet.runs import checkpoint

SNAPSHOT_RECORDS: Final = 20_000  # records between two of them


class Snapshot(NamedTuple):
    """A moment that one can go on from."""

    record: int  # the last of the log that is in it
    state: State

    def settings(self, domain: Domain) -> DecideSettings:
        """Those that held then."""
        return _settings(domain, self.state["ledger"])

    def restore(self, ledger: ServiceState, trainer: Trainer) -> None:
        """Bring both there."""
        restore(ledger, self.state["ledger"])
        trainer.restore(self.state["trainer"])


def save(folder: Path, log_id: str, record: int, state: State) -> None:
    """Write one, and let go of those before the last."""
    checkpoint.save(folder, checkpoint.folder_name(record), state, {"log": log_id, "record": record, "schema": SCHEMA})
    checkpoint.prune(folder)


def load_newest(folder: Path, log_id: str, last: int, notices: list[StorageNotice]) -> Snapshot | None:
    """The newest snapshot of this log that is whole and not beyond its last record, or None.

    A damaged one is skipped, since the log gives the same state, and added to `notices`.
    """
    for path in reversed(checkpoint.paths(folder)):
        try:
            state, info = checkpoint.load(path)
        except TownletError as error:
            what = f"The snapshot {path.name} is damaged: {error.diagnostics[0].what}"
            notices.append(StorageNotice("snapshot", what, "The log gave the same state. Check the disk.", grave=False))
            continue
        if info.get("log") == log_id and info.get("schema") == SCHEMA and int(info["record"]) <= last:
            return Snapshot(int(info["record"]), state)
    return None


class StateCopy(NamedTuple):
    """All that follows from the log so far. Territories and experiences never change, so that names of them do."""

    settings: DecideSettings
    small: State  # parts that are quickly copied
    territories: dict[str, Territory]
    pending: list[Experience]


def copy_state(ledger: ServiceState) -> StateCopy:
    """A copy of what would change, quickly; whoever calls holds the service's lock."""
    tally = asdict(ledger.tally)
    small = {
        "epochs": encode_json(ledger.ids.state()),
        "serving": encode_json(ledger.serving),
        "gates": dict(ledger.gates),
        "reasons": tally.pop("reasons"),
        "tally": tally,
        "inserted": ledger.inserted,
        "join": ledger.join.state(),
        "buffer": ledger.buffer.state(),
        "held_out": ledger.held_out.state(),
    }
    return StateCopy(ledger.settings, small, dict(ledger.territories), list(ledger.pending.values()))


def serialize(taken: StateCopy) -> State:
    """The same as it is kept."""
    places, waiting = taken.territories, taken.pending
    return {
        **taken.small,
        "settings": encode_json(taken.settings.model_dump(mode="json")),
        "territories": {
            "names": encode_json(list(places)),
            "last": _encode_decisions(place.last for place in places.values()),
            "known": _stack_rows([place.known for place in places.values()]),
            "earlier": _encode_answers([place.earlier for place in places.values()]),
        },
        "pending": {
            "made": _encode_decisions(one.made for one in waiting),
            "rows": _stack_rows([one.row for one in waiting]),
        },
    }


def restore(ledger: ServiceState, state: State) -> None:
    """Let a new ledger go on where a state was taken."""
    ledger.follow(_settings(ledger.domain, state))
    ledger.ids.restore(json.loads(bytes(_numbers(state["epochs"]))))
    serving = json.loads(bytes(_numbers(state["serving"])))
    ledger.serving = ServingChanged(*serving) if serving else None
    ledger.gates = dict(state["gates"])
    ledger.tally = Totals(**state["tally"], reasons=dict(state["reasons"]))
    ledger.inserted = int(state["inserted"])
    ledger.join.restore(state["join"])
    ledger.buffer.restore(state["buffer"])
    ledger.held_out.restore(state["held_out"])
    places = state["territories"]
    names, last = json.loads(bytes(_numbers(places["names"]))), _decode_decisions(places["last"])
    known = _split_rows(places["known"], len(names), ledger.domain.initial_memory())
    earlier = _decode_answers(places["earlier"])
    for name, made, row, answers in zip(names, last, known, earlier, strict=True):
        ledger.territories.remember(name, Territory(row, made.time, made, answers))
    waiting = _decode_decisions(state["pending"]["made"])
    rows = _split_rows(state["pending"]["rows"], len(waiting), ledger.domain.columns)
    ledger.pending = {one.number: Experience(row, one) for one, row in zip(waiting, rows, strict=True)}


def _settings(domain: Domain, state: State) -> DecideSettings:
    return settings_model(domain).model_validate_json(bytes(_numbers(state["settings"])))


def encode_json(value: Any) -> NDArray[np.uint8]:
    """JSON as numbers: what may be long does not belong into a manifest."""
    return np.frombuffer(json.dumps(value, ensure_ascii=False).encode(), np.uint8)


def _encode_decisions(made: Iterable[DecisionMade | None]) -> NDArray[np.uint8]:
    return np.frombuffer(b"\n".join(encode(one) for one in made if one is not None), np.uint8)


def _decode_decisions(column: Any) -> list[DecisionMade]:
    found = [decode(line) for line in bytes(_numbers(column)).split(b"\n") if line]
    return [one for one in found if isinstance(one, DecisionMade)]


def _encode_answers(earlier: list[Answers]) -> State:
    """Of all territories one after the other, and how many are of each."""
    every = [answer for answers in earlier for answer in answers]
    return {
        "counts": np.array([len(answers) for answers in earlier], np.int64),
        "times": np.array([time for time, _ in every], np.float64),
        "replies": np.frombuffer(b"\n".join(reply for _, reply in every), np.uint8),
    }


def _decode_answers(state: Any) -> list[Answers]:
    every = zip(_numbers(state["times"]).tolist(), bytes(_numbers(state["replies"])).split(b"\n"), strict=False)
    return [tuple(islice(every, count)) for count in _numbers(state["counts"]).tolist()]


def _stack_rows(rows: list[ObservationRow]) -> ObservationBatch:
    stacked = LazyBatch(rows)
    return {name: stacked[name] for name in (rows[0] if rows else ())}


def _split_rows(columns: Any, count: int, names: Iterable[str] | dict[str, ColumnSpec]) -> list[ObservationRow]:
    if not count:
        return []
    arrays = {name: _numbers(columns[name]) for name in names}
    return [{name: column[place].copy() for name, column in arrays.items()} for place in range(count)]


def _numbers(column: Any) -> NDArray[Any]:
    return np.asarray(column)
