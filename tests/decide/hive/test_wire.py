"""Messages: what is right is read as it is, and what is wrong is named."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decide.hive.reference import Seen, law, sights
from townlet.decide.domain import Decision, InvalidMessage
from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.wire import ObservationAck, SpawnDecision

GOOD = Seen(present=(1, 2), mining=(45,), protectors=(41,), start=((3, "energy"),), end=((3, "combat"),)).message()


@law
@given(sights)
def test_an_observation_is_read_as_it_is(seen: Seen) -> None:
    sight = DOMAIN.parse_observation(json.loads(json.dumps(seen.message())))
    assert (sight.territory, sight.time) == ("north", seen.time)
    row = sight.row | DOMAIN.initial_memory()
    assert set(row) == set(DOMAIN.columns)
    for name, column in DOMAIN.columns.items():
        assert (row[name].shape, row[name].dtype) == (column.shape, np.dtype(column.dtype)), name
    for name, listed in (("present", seen.present), ("mining", seen.mining), ("protectors", seen.protectors)):
        assert {c: int(row[name][c]) for c in np.flatnonzero(row[name])} == Counter(listed)
    for kind in ("energy", "combat"):
        for name, listed_parasites in (("start", seen.start), ("end", seen.end)):
            counts = row[f"{kind}_{name}"]
            expected = Counter(c for c, t in listed_parasites if t == kind)
            assert {c: int(counts[c]) for c in np.flatnonzero(counts)} == expected
    assert (row["queen_energy"], row["hive"]) == (seen.queen, seen.hive)
    assert (row["player_energy_start"], row["player_energy_end"]) == seen.energy


WRONG: list[tuple[dict[str, Any], str]] = [
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


@pytest.mark.parametrize(("change", "field"), WRONG, ids=[f"{n}-{field}" for n, (_, field) in enumerate(WRONG)])
def test_a_wrong_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidMessage) as wrong:
        DOMAIN.parse_observation(GOOD | change)
    assert wrong.value.code == "INVALID_OBSERVATION"
    assert field in str(wrong.value).split(": ")[0]
    assert len(str(wrong.value)) < 300


@pytest.mark.parametrize("field", [key for key in GOOD if key != "type"])
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(InvalidMessage, match=field):
        DOMAIN.parse_observation({key: value for key, value in GOOD.items() if key != field})


def test_protectors_may_stand_anywhere_in_their_chunk() -> None:
    sight = DOMAIN.parse_observation(GOOD | {"protectors": [{"x": 1.99, "z": 2.0, "chunkId": 41}]})
    assert np.flatnonzero(sight.row["protectors"]).tolist() == [41]


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=10,
)


@law
@given(st.dictionaries(st.sampled_from([*GOOD, "decisionId", "success", "other"]), anything, max_size=4), st.booleans())
def test_nonsense_is_refused_and_nothing_else_happens(nonsense: dict[str, Any], whole: bool) -> None:
    for read in (DOMAIN.parse_observation, DOMAIN.parse_report):
        wrong = None
        try:
            read(GOOD | nonsense if whole else nonsense)
        except InvalidMessage as error:
            wrong = error
        assert wrong is None or len(str(wrong)) < 400


def test_a_result_says_whether_it_could_be_carried_out() -> None:
    done = DOMAIN.parse_report({"type": "spawn_result", "decisionId": "a-1", "success": True})
    failed = DOMAIN.parse_report({"type": "spawn_result", "decisionId": "a-1", "success": False, "reason": "full"})
    assert (done.id, done.value, done.failed) == ("a-1", None, False)
    assert (failed.id, failed.value, failed.failed) == ("a-1", None, True)
    with pytest.raises(InvalidMessage, match="success"):
        DOMAIN.parse_report({"type": "spawn_result", "decisionId": "a-1", "success": "yes"})


def test_a_decision_is_told() -> None:
    chances = np.full(800, 0.0, np.float32)
    chances[[210, 610, 5]] = 0.25, 0.35, 0.4
    (sure,) = DOMAIN.confidence(chances[None].astype(np.float64))  # of the chunk, whatever comes there
    told = DOMAIN.reply(Decision("a-1", 610, True, "positive_reward", sure, 7, chances))
    assert told == {
        "type": "spawn_decision", "decisionId": "a-1", "spawnChunk": 210, "spawnType": "combat",
        "confidence": pytest.approx(0.6), "typeConfidence": pytest.approx(0.35), "modelVersion": 7,
    }  # fmt: skip
    assert SpawnDecision.model_validate_json(json.dumps(told)).model_dump() == told


def test_waiting_is_told_with_its_reason() -> None:
    told = DOMAIN.reply(Decision("a-1", 610, False, "negative_reward", 0.4, 7, np.zeros(800, np.float32)))
    assert told == {
        "type": "observation_ack", "decisionId": "a-1", "status": "processed", "action": "none",
        "reason": "negative_reward",
    }  # fmt: skip
    assert ObservationAck.model_validate_json(json.dumps(told)).model_dump() == told


def test_confidence_never_leaves_its_range() -> None:
    chances = np.full(800, 1 / 800, np.float32) * np.float32(1.001)
    chances[:400] = 0
    chances[400] = 1
    told = DOMAIN.reply(Decision("a-1", 400, True, "positive_reward", 1.0, 1, chances))
    SpawnDecision.model_validate(told)


def test_messages_have_a_schema() -> None:
    schema = DOMAIN.schema()
    assert {DOMAIN.observation_type, DOMAIN.report_type, "spawn_decision", "observation_ack", "error"} <= set(schema)
    observation = schema["observation_data"]
    assert set(observation["properties"]) == set(GOOD)
    assert observation["properties"]["miningWorkers"]["maxItems"] == 255
    assert observation["additionalProperties"] is False
    json.dumps(schema)
