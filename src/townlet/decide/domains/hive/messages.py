"""Wire messages of the hive as pydantic models, and their conversion to columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import FailFast, Field, model_validator

from townlet.decide import domain
from townlet.decide.domain import DecisionId, Reason, UnitInterval, WireMessage, parse_message
from townlet.decide.domains.hive.grid import CHUNKS, COUNTS, SIDE, TYPES

MAX_ENTRIES: Final = 255  # maximum length of a list, so that a count fits into a byte
OFFSETS: Final = {name: index * CHUNKS for index, name in enumerate(COUNTS)}  # offsets of columns in a buffer

Chunk = Annotated[int, Field(ge=0, lt=CHUNKS, description=f"Index of a chunk: x + {SIDE} * z.")]
Amount = Annotated[float, Field(ge=0, le=1e9)]
ParasiteType = Literal["energy", "combat"]


class ProtectorEntry(WireMessage):
    """Position of a protector, in units of chunks, and the chunk in which it is."""

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
    """One of the player's amounts at the previous observation (`start`) and now (`end`)."""

    start: Amount
    end: Amount


Chunks = Annotated[list[Chunk], Field(max_length=MAX_ENTRIES), FailFast()]
Protectors = Annotated[list[ProtectorEntry], Field(max_length=MAX_ENTRIES), FailFast()]
Parasites = Annotated[list[ParasiteEntry], Field(max_length=MAX_ENTRIES), FailFast()]


class ObservationData(WireMessage):
    """Observation of a territory, with some values of the previous one. Sent by the game."""

    type: Literal["observation_data"] = "observation_data"
    timestamp: domain.Time
    territory_id: domain.TerritoryId
    mining_workers: Chunks = Field(description="Chunk of each worker who is mining.")
    workers_present: Chunks = Field(description="Chunk of each worker who is not mining.")
    protectors: Protectors
    parasites_start: Parasites = Field(description="Parasites at the previous observation.")
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
    confidence: UnitInterval = Field(description="Probability of the most likely chunk.")
    type_confidence: UnitInterval = Field(description="Probability of the chosen type.")
    model_version: domain.Version


class ObservationAck(WireMessage):
    """Spawn nothing, for this reason. Sent by the service."""

    type: Literal["observation_ack"] = "observation_ack"
    decision_id: DecisionId
    status: Literal["processed"] = "processed"
    action: Literal["none"] = "none"
    reason: Reason


MESSAGES: Final = (ObservationData, SpawnResult, SpawnDecision, ObservationAck)


def parse_observation(message: Mapping[str, Any]) -> domain.Observation:
    """Parse an `observation_data` message; raises `InvalidMessage` with the first invalid field."""
    data = parse_message(ObservationData, message, "INVALID_OBSERVATION")
    amounts = {
        "queen_energy": data.queen_energy.current, "queen_energy_max": data.queen_energy.max,
        "player_energy_start": data.player_energy.start, "player_energy_end": data.player_energy.end,
        "minerals_start": data.player_minerals.start, "minerals_end": data.player_minerals.end,
    }  # fmt: skip
    row: domain.ObservationRow = {
        **_counts(data),
        **{name: np.array(amount, np.float64) for name, amount in amounts.items()},
        "hive": np.array(data.hive_chunk, np.int64),
    }
    return domain.Observation(data.territory_id, data.timestamp, row)


def parse_report(message: Mapping[str, Any]) -> domain.OutcomeReport:
    """Parse a `spawn_result` message; it has no value, since the next observation shows the outcome of a spawn."""
    result = parse_message(SpawnResult, message, "INVALID_REPORT")
    return domain.OutcomeReport(result.decision_id, failed=not result.success)


def chunk_probabilities(probabilities: NDArray[np.floating]) -> NDArray[np.floating]:
    """Probabilities of chunks [..., CHUNKS]: those of actions [..., ACTIONS], summed over the types."""
    by_type = probabilities.reshape(*probabilities.shape[:-1], len(TYPES), CHUNKS)
    summed: NDArray[np.floating] = by_type.sum(-2)
    return summed


def reply(id: str, decision: domain.Decision, message: Mapping[str, Any]) -> dict[str, Any]:
    """A `spawn_decision`, or an `observation_ack` with a reason; dictionaries are faster to build than the models."""
    if not decision.send:
        ack = {"type": "observation_ack", "decisionId": id, "status": "processed", "action": "none"}
        return {**ack, "reason": decision.reason}
    type_index, chunk = divmod(decision.action, CHUNKS)
    by_type = decision.probabilities.reshape(len(TYPES), CHUNKS)
    return {
        "type": "spawn_decision",
        "decisionId": id,
        "spawnChunk": chunk,
        "spawnType": TYPES[type_index],
        "confidence": decision.confidence,
        "typeConfidence": min(1.0, float(by_type[type_index].sum())),  # rounding may exceed 1
        "modelVersion": decision.version,
    }


def _counts(data: ObservationData) -> dict[str, NDArray[np.uint8]]:
    """Counts per chunk [CHUNKS] for each name in `COUNTS`, as views of one buffer, which is faster than many arrays."""
    buffer = bytearray(len(COUNTS) * CHUNKS)
    for name, chunks in (("present", data.workers_present), ("mining", data.mining_workers)):
        for chunk in chunks:
            buffer[OFFSETS[name] + chunk] += 1
    for protector in data.protectors:
        buffer[OFFSETS["protectors"] + protector.chunk_id] += 1
    for when, parasites in (("start", data.parasites_start), ("end", data.parasites_end)):
        for parasite in parasites:
            buffer[OFFSETS[f"{parasite.type}_{when}"] + parasite.chunk_id] += 1
    return dict(zip(COUNTS, np.frombuffer(buffer, np.uint8).reshape(-1, CHUNKS), strict=True))
