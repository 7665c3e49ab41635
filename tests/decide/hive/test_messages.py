"""Valid messages are parsed exactly; errors name the first invalid field."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from decide.hive.reference import Sample, law, samples
from townlet.decide.domain import Decision, InvalidMessage
from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.messages import ObservationAck, SpawnDecision

VALID = Sample(present=(1, 2), mining=(45,), protectors=(41,), start=((3, "energy"),), end=((3, "combat"),)).message()


@law
@given(samples)
def test_observation_is_parsed_exactly(sample: Sample) -> None:
    observation = DOMAIN.parse_observation(json.loads(json.dumps(sample.message())))
    assert (observation.territory, observation.time) == ("north", sample.time)
    row = observation.row | DOMAIN.initial_territory_state()
    assert set(row) == set(DOMAIN.columns)
    for name, column in DOMAIN.columns.items():
        assert (row[name].shape, row[name].dtype) == (column.shape, np.dtype(column.dtype)), name
    for name, listed in (("present", sample.present), ("mining", sample.mining), ("protectors", sample.protectors)):
        assert {c: int(row[name][c]) for c in np.flatnonzero(row[name])} == Counter(listed)
    for kind in ("energy", "combat"):
        for name, listed_parasites in (("start", sample.start), ("end", sample.end)):
            counts = row[f"{kind}_{name}"]
            expected = Counter(c for c, t in listed_parasites if t == kind)
            assert {c: int(counts[c]) for c in np.flatnonzero(counts)} == expected
    expected_scalars = (sample.queen, sample.hive, *sample.energy)
    names = ("queen_energy", "hive", "player_energy_start", "player_energy_end")
    assert tuple(row[name].item() for name in names) == expected_scalars


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"timestamp": float("nan")}, "timestamp"),
    ({"timestamp": 10**400}, "timestamp"),
    ({"timestamp": 1.7e12}, "timestamp"),  # milliseconds
    ({"timestamp": "1"}, "timestamp"),
    ({"territoryId": ""}, "territoryId"),
    ({"territoryId": "a" * 101}, "territoryId"),
    ({"territoryId": "a\nb"}, "territoryId"),
    ({"territoryId": "\ud800"}, "territoryId"),
    ({"hiveChunk": 400}, "hiveChunk"),
    ({"hiveChunk": -1}, "hiveChunk"),
    ({"hiveChunk": 3.5}, "hiveChunk"),
    ({"hiveChunk": 10**400}, "hiveChunk"),
    ({"miningWorkers": [1, 400]}, "miningWorkers.1"),
    ({"miningWorkers": [True]}, "miningWorkers.0"),
    ({"workersPresent": [1] * 256}, "workersPresent"),
    ({"workersPresent": None}, "workersPresent"),
    ({"protectors": [{"x": 1, "z": 2, "chunkId": 40}]}, "protectors.0"),
    ({"protectors": [{"x": 20, "z": 2, "chunkId": 40}]}, "protectors.0.x"),
    ({"protectors": [{"x": -0.5, "z": 2, "chunkId": 40}]}, "protectors.0.x"),
    ({"protectors": [{"x": 1, "z": 2}]}, "protectors.0.chunkId"),
    ({"parasitesEnd": [{"chunkId": 1, "type": "fire"}]}, "parasitesEnd.0.type"),
    ({"queenEnergy": {"current": -1, "max": 100}}, "queenEnergy.current"),
    ({"queenEnergy": {"current": 1}}, "queenEnergy.max"),
    ({"playerEnergy": {"start": 1, "end": float("inf")}}, "playerEnergy.end"),
    ({"surprise": 1}, "surprise"),
    ({"type": "spawn_result"}, "type"),
    ({"key" + str(n): n for n in range(100)}, "keys"),
]


@pytest.mark.parametrize(("change", "field"), INVALID, ids=[f"{n}-{field}" for n, (_, field) in enumerate(INVALID)])
def test_invalid_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidMessage) as wrong:
        DOMAIN.parse_observation(VALID | change)
    assert wrong.value.code == "INVALID_OBSERVATION"
    assert field in str(wrong.value).split(": ")[0]
    assert len(str(wrong.value)) < 300


@pytest.mark.parametrize("field", [key for key in VALID if key != "type"])
def test_missing_field_is_named(field: str) -> None:
    with pytest.raises(InvalidMessage, match=field):
        DOMAIN.parse_observation({key: value for key, value in VALID.items() if key != field})


def test_protector_positions_may_have_fractions() -> None:
    observation = DOMAIN.parse_observation(VALID | {"protectors": [{"x": 1.99, "z": 2.0, "chunkId": 41}]})
    assert np.flatnonzero(observation.row["protectors"]).tolist() == [41]


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=10,
)


@law
@given(
    st.dictionaries(st.sampled_from([*VALID, "decisionId", "success", "other"]), json_values, max_size=4), st.booleans()
)
def test_arbitrary_input_is_parsed_or_refused(arbitrary: dict[str, Any], valid: bool) -> None:
    for parse in (DOMAIN.parse_observation, DOMAIN.parse_report):
        wrong = None
        try:
            parse(VALID | arbitrary if valid else arbitrary)
        except InvalidMessage as error:
            wrong = error
        assert wrong is None or len(str(wrong)) < 400


def test_report_includes_whether_the_spawn_succeeded() -> None:
    done = DOMAIN.parse_report({"type": "spawn_result", "decisionId": "a-1", "success": True})
    failed = DOMAIN.parse_report({"type": "spawn_result", "decisionId": "a-1", "success": False, "reason": "full"})
    assert (done.id, done.value, done.failed) == ("a-1", None, False)
    assert (failed.id, failed.value, failed.failed) == ("a-1", None, True)
    with pytest.raises(InvalidMessage, match="success"):
        DOMAIN.parse_report({"type": "spawn_result", "decisionId": "a-1", "success": "yes"})


def decision(
    action: int, send: bool, reason: str, confidence: float, version: int, probabilities: NDArray[np.float32]
) -> Decision:
    return Decision(version, action, 0.1, confidence, send, reason, 0.2, np.zeros(4), probabilities, 0.5)


def test_decision_reply() -> None:
    probabilities = np.full(800, 0.0, np.float32)
    probabilities[[210, 610, 5]] = 0.25, 0.35, 0.4
    (confidence,) = DOMAIN.confidence(probabilities[None].astype(np.float64))  # of the chunk, summed over types
    reply = DOMAIN.reply("a-1", decision(610, True, "positive_reward", confidence, 7, probabilities), {})
    assert reply == {
        "type": "spawn_decision", "decisionId": "a-1", "spawnChunk": 210, "spawnType": "combat",
        "confidence": pytest.approx(0.6), "typeConfidence": pytest.approx(0.35), "modelVersion": 7,
    }  # fmt: skip
    assert SpawnDecision.model_validate_json(json.dumps(reply)).model_dump() == reply


def test_acknowledgement_contains_the_reason() -> None:
    reply = DOMAIN.reply("a-1", decision(610, False, "negative_reward", 0.4, 7, np.zeros(800, np.float32)), {})
    assert reply == {
        "type": "observation_ack", "decisionId": "a-1", "status": "processed", "action": "none",
        "reason": "negative_reward",
    }  # fmt: skip
    assert ObservationAck.model_validate_json(json.dumps(reply)).model_dump() == reply


def test_confidence_stays_in_unit_interval() -> None:
    probabilities = np.full(800, 1 / 800, np.float32) * np.float32(1.001)
    probabilities[:400] = 0
    probabilities[400] = 1
    reply = DOMAIN.reply("a-1", decision(400, True, "positive_reward", 1.0, 1, probabilities), {})
    SpawnDecision.model_validate(reply)


def test_schema_covers_all_messages() -> None:
    schema = DOMAIN.schema()
    assert {DOMAIN.observation_type, *DOMAIN.report_types, "spawn_decision", "observation_ack", "error"} <= set(schema)
    observation = schema["observation_data"]
    assert set(observation["properties"]) == set(VALID)
    assert observation["properties"]["miningWorkers"]["maxItems"] == 255
    assert observation["additionalProperties"] is False
    json.dumps(schema)
