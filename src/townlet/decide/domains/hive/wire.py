"""Every message of this game, as models, and observations as columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import FailFast, Field, model_validator

from townlet.decide.domain import (
    Decision,
    DecisionId,
    Observation,
    ObservationRow,
    OutcomeReport,
    Reason,
    TerritoryId,
    Time,
    UnitInterval,
    Version,
    WireMessage,
    parse_message,
)
from townlet.decide.domains.hive.chunks import CHUNKS, COUNTS, SIDE, TYPES

MOST: Final = 255  # entries of a list, so that a count fits into a byte

Chunk = Annotated[int, Field(ge=0, lt=CHUNKS, description="A chunk: x + 20 z.")]
Amount = Annotated[float, Field(ge=0, le=1e9)]
Kind = Literal["energy", "combat"]


class Protector(WireMessage):
    """Who guards the workers: where he stands, in chunks, and the chunk that this is."""

    x: float = Field(ge=0, lt=SIDE, description="Chunks from the west; a whole number or the exact place.")
    z: float = Field(ge=0, lt=SIDE, description="Chunks from the north.")
    chunk_id: Chunk

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if int(self.z) * SIDE + int(self.x) != self.chunk_id:
            raise ValueError(f"chunkId {self.chunk_id} is not where x and z are, {int(self.z) * SIDE + int(self.x)}")
        return self


class Parasite(WireMessage):
    """One of the queen's."""

    chunk_id: Chunk
    type: Kind


class Store(WireMessage):
    """How much the queen has, and how much she can have."""

    current: Amount
    max: Amount


class Change(WireMessage):
    """How much the player had at the last observation, and has now."""

    start: Amount
    end: Amount


Chunks = Annotated[list[Chunk], Field(max_length=MOST), FailFast()]
Protectors = Annotated[list[Protector], Field(max_length=MOST), FailFast()]
Parasites = Annotated[list[Parasite], Field(max_length=MOST), FailFast()]


class ObservationData(WireMessage):
    """What the queen sees of a territory, and what changed since she looked last. The game says this."""

    type: Literal["observation_data"] = "observation_data"
    timestamp: Time
    territory_id: TerritoryId
    mining_workers: Chunks = Field(description="The chunk of each worker who mines.")
    workers_present: Chunks = Field(description="The chunk of each worker who does not mine.")
    protectors: Protectors
    parasites_start: Parasites = Field(description="Those that lived at the last observation.")
    parasites_end: Parasites = Field(description="Those that live now.")
    queen_energy: Store
    player_energy: Change
    player_minerals: Change
    hive_chunk: Chunk


class SpawnResult(WireMessage):
    """Whether a decision could be carried out. The game says this."""

    type: Literal["spawn_result"] = "spawn_result"
    decision_id: DecisionId
    success: bool
    reason: Reason = ""


class SpawnDecision(WireMessage):
    """Spawn this there. The service says this."""

    type: Literal["spawn_decision"] = "spawn_decision"
    decision_id: DecisionId
    spawn_chunk: Chunk
    spawn_type: Kind
    confidence: UnitInterval = Field(description="The highest probability of a chunk.")
    type_confidence: UnitInterval = Field(description="The probability of the type that was chosen.")
    model_version: Version


class ObservationAck(WireMessage):
    """Do nothing, and why. The service says this."""

    type: Literal["observation_ack"] = "observation_ack"
    decision_id: DecisionId
    status: Literal["processed"] = "processed"
    action: Literal["none"] = "none"
    reason: Reason


MESSAGES: Final = (ObservationData, SpawnResult, SpawnDecision, ObservationAck)


def read(message: Mapping[str, Any]) -> Observation:
    """An observation as columns; the first wrong field is named."""
    seen = parse_message(ObservationData, message, "INVALID_OBSERVATION")
    row: ObservationRow = {
        **_counts(seen),
        "queen_energy": np.array(seen.queen_energy.current, np.float64),
        "queen_energy_max": np.array(seen.queen_energy.max, np.float64),
        "player_energy_start": np.array(seen.player_energy.start, np.float64),
        "player_energy_end": np.array(seen.player_energy.end, np.float64),
        "minerals_start": np.array(seen.player_minerals.start, np.float64),
        "minerals_end": np.array(seen.player_minerals.end, np.float64),
        "hive": np.array(seen.hive_chunk, np.int64),
    }
    return Observation(seen.territory_id, seen.timestamp, row)


def read_report(message: Mapping[str, Any]) -> OutcomeReport:
    """What the game tells of a decision: what came of one that was carried out shows later."""
    result = parse_message(SpawnResult, message, "INVALID_REPORT")
    return OutcomeReport(result.decision_id, failed=not result.success)


def by_chunk(chances: NDArray[np.floating]) -> NDArray[np.floating]:
    """Probabilities of actions [..., 800] as those of chunks [..., 400]."""
    summed: NDArray[np.floating] = chances.reshape(*chances.shape[:-1], len(TYPES), CHUNKS).sum(-2)
    return summed


def reply(choice: Decision) -> dict[str, Any]:
    """The answer to an observation: spawn, or do nothing and why."""
    if not choice.send:
        return {
            "type": "observation_ack",
            "decisionId": choice.id,
            "status": "processed",
            "action": "none",
            "reason": choice.reason,
        }
    kind, chunk = divmod(choice.action, CHUNKS)
    chances = choice.probabilities.reshape(len(TYPES), CHUNKS)
    return {
        "type": "spawn_decision",
        "decisionId": choice.id,
        "spawnChunk": chunk,
        "spawnType": TYPES[kind],
        "confidence": choice.confidence,
        "typeConfidence": min(1.0, float(chances[kind].sum())),
        "modelVersion": choice.version,
    }


def _counts(seen: ObservationData) -> dict[str, NDArray[np.uint8]]:
    """How many of each there are in each chunk [400]: lines of one table, since making arrays takes longest."""
    table = bytearray(len(COUNTS) * CHUNKS)
    for place, chunks in enumerate((seen.workers_present, seen.mining_workers)):
        for chunk in chunks:
            table[place * CHUNKS + chunk] += 1
    for protector in seen.protectors:
        table[2 * CHUNKS + protector.chunk_id] += 1
    for place, parasites in enumerate((seen.parasites_start, seen.parasites_end), 3):
        for parasite in parasites:
            table[(place + 2 * TYPES.index(parasite.type)) * CHUNKS + parasite.chunk_id] += 1
    return dict(zip(COUNTS, np.frombuffer(table, np.uint8).reshape(-1, CHUNKS), strict=True))
