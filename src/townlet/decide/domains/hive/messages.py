"""Messages of the hive as models, and their conversion to columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import FailFast, Field, model_validator

from townlet.decide import domain as interface
from townlet.decide.domain import DecisionId, Reason, UnitInterval, WireMessage, parse_message
from townlet.decide.domains.hive.grid import CHUNKS, COUNTS, SIDE, TYPES

MAX_ENTRIES: Final = 255  # of a list, so that a count fits into a byte

Chunk = Annotated[int, Field(ge=0, lt=CHUNKS, description="A chunk: x + 20 z.")]
Amount = Annotated[float, Field(ge=0, le=1e9)]
ParasiteType = Literal["energy", "combat"]


class ProtectorEntry(WireMessage):
    """Position of a protector in chunks, and its chunk."""

    x: float = Field(ge=0, lt=SIDE, description="Chunks from the west; may have a fraction.")
    z: float = Field(ge=0, lt=SIDE, description="Chunks from the north; may have a fraction.")
    chunk_id: Chunk

    @model_validator(mode="after")
    def _check_chunk(self) -> Self:
        if int(self.z) * SIDE + int(self.x) != self.chunk_id:
            raise ValueError(f"chunkId is {self.chunk_id}, but x and z lie in chunk {int(self.z) * SIDE + int(self.x)}")
        return self


class ParasiteEntry(WireMessage):
    """Chunk and type of a parasite."""

    chunk_id: Chunk
    type: ParasiteType


class QueenEnergy(WireMessage):
    """The queen's energy and its maximum."""

    current: Amount
    max: Amount


class AmountChange(WireMessage):
    """An amount of the player at the last observation and now."""

    start: Amount
    end: Amount


Chunks = Annotated[list[Chunk], Field(max_length=MAX_ENTRIES), FailFast()]
Protectors = Annotated[list[ProtectorEntry], Field(max_length=MAX_ENTRIES), FailFast()]
Parasites = Annotated[list[ParasiteEntry], Field(max_length=MAX_ENTRIES), FailFast()]


class ObservationData(WireMessage):
    """Observation of a territory, with changes since the last one. Sent by the game."""

    type: Literal["observation_data"] = "observation_data"
    timestamp: interface.Time
    territory_id: interface.TerritoryId
    mining_workers: Chunks = Field(description="The chunk of each worker who mines.")
    workers_present: Chunks = Field(description="The chunk of each worker who does not mine.")
    protectors: Protectors
    parasites_start: Parasites = Field(description="Parasites at the last observation.")
    parasites_end: Parasites = Field(description="Parasites now.")
    queen_energy: QueenEnergy
    player_energy: AmountChange
    player_minerals: AmountChange
    hive_chunk: Chunk


class SpawnResult(WireMessage):
    """Whether a decision could be carried out. Sent by the game."""

    type: Literal["spawn_result"] = "spawn_result"
    decision_id: DecisionId
    success: bool
    reason: Reason = ""


class SpawnDecision(WireMessage):
    """Spawn a parasite in this chunk. Sent by the service."""

    type: Literal["spawn_decision"] = "spawn_decision"
    decision_id: DecisionId
    spawn_chunk: Chunk
    spawn_type: ParasiteType
    confidence: UnitInterval = Field(description="The highest probability of a chunk.")
    type_confidence: UnitInterval = Field(description="The probability of the chosen type.")
    model_version: interface.Version


class ObservationAck(WireMessage):
    """Wait, with a reason. Sent by the service."""

    type: Literal["observation_ack"] = "observation_ack"
    decision_id: DecisionId
    status: Literal["processed"] = "processed"
    action: Literal["none"] = "none"
    reason: Reason


MESSAGES: Final = (ObservationData, SpawnResult, SpawnDecision, ObservationAck)


def parse_observation(message: Mapping[str, Any]) -> interface.Observation:
    """Parse an `observation_data` message; raises `InvalidMessage` with the first invalid field."""
    data = parse_message(ObservationData, message, "INVALID_OBSERVATION")
    amounts = {
        "queen_energy": data.queen_energy.current, "queen_energy_max": data.queen_energy.max,
        "player_energy_start": data.player_energy.start, "player_energy_end": data.player_energy.end,
        "minerals_start": data.player_minerals.start, "minerals_end": data.player_minerals.end,
    }  # fmt: skip
    row: interface.ObservationRow = {
        **_counts(data),
        **{name: np.array(amount, np.float64) for name, amount in amounts.items()},
        "hive": np.array(data.hive_chunk, np.int64),
    }
    return interface.Observation(data.territory_id, data.timestamp, row)


def parse_report(message: Mapping[str, Any]) -> interface.OutcomeReport:
    """Parse a `spawn_result` message; the next observation shows the outcome of a successful spawn."""
    result = parse_message(SpawnResult, message, "INVALID_REPORT")
    return interface.OutcomeReport(result.decision_id, failed=not result.success)


def chunk_probabilities(probabilities: NDArray[np.floating]) -> NDArray[np.floating]:
    """Probabilities of chunks [..., 400] from those of actions [..., 800]."""
    summed: NDArray[np.floating] = probabilities.reshape(*probabilities.shape[:-1], len(TYPES), CHUNKS).sum(-2)
    return summed


def reply(id: str, decision: interface.Decision) -> dict[str, Any]:
    """A `spawn_decision`, or an `observation_ack` with a reason."""
    if not decision.send:
        ack = {"type": "observation_ack", "decisionId": id, "status": "processed", "action": "none"}
        return {**ack, "reason": decision.reason}
    kind, chunk = divmod(decision.action, CHUNKS)
    by_type = decision.probabilities.reshape(len(TYPES), CHUNKS)
    return {
        "type": "spawn_decision",
        "decisionId": id,
        "spawnChunk": chunk,
        "spawnType": TYPES[kind],
        "confidence": decision.confidence,
        "typeConfidence": min(1.0, float(by_type[kind].sum())),
        "modelVersion": decision.version,
    }


def _counts(data: ObservationData) -> dict[str, NDArray[np.uint8]]:
    """Counts per chunk [400] of each kind, as rows of one table: creating arrays takes the most time."""
    table = bytearray(len(COUNTS) * CHUNKS)
    for index, chunks in enumerate((data.workers_present, data.mining_workers)):
        for chunk in chunks:
            table[index * CHUNKS + chunk] += 1
    for protector in data.protectors:
        table[2 * CHUNKS + protector.chunk_id] += 1
    for index, parasites in enumerate((data.parasites_start, data.parasites_end), 3):
        for parasite in parasites:
            table[(index + 2 * TYPES.index(parasite.type)) * CHUNKS + parasite.chunk_id] += 1
    return dict(zip(COUNTS, np.frombuffer(table, np.uint8).reshape(-1, CHUNKS), strict=True))
