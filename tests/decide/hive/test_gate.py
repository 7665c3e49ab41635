"""The gate gives the numbers of the description, for all actions as for one, for many observations as for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from decide.hive import reference
from decide.hive.reference import Seen, gates, law, scene_of, sights, times_of
from townlet.decide.domain import GateResult
from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.chunks import tables
from townlet.decide.domains.hive.gate import GateSettings

KINDS = ("energy", "combat")
USUAL = GateSettings()


def judge(*seen: Seen, settings: GateSettings = USUAL, actions: list[int] | None = None) -> GateResult:
    return DOMAIN.gate(scene_of(*seen), times_of(*seen), settings, None if actions is None else np.array(actions))


def same(one: GateResult, other: GateResult) -> None:
    for name, a, b in zip(GateResult._fields, one, other, strict=True):
        assert a.shape == b.shape, name
        assert a.dtype == b.dtype, name
        assert a.tobytes() == b.tobytes(), name  # to the last bit


# chunk, type, workers, protectors, hive, energy, seconds since the last spawn there → R
TABLE = [
    (210, "energy", (), (), 210, 50.0, 0, 0.400000),
    (0, "energy", (), (), 399, 50.0, 300, 0.570000),
    (210, "energy", (212, 230), (), 210, 50.0, 0, 0.898511),
    (210, "energy", (212, 230), (211,), 210, 50.0, 300, 0.448511),
    (210, "combat", (212, 230), (211,), 210, 50.0, 0, 0.498511),
    (210, "energy", (212, 230), (215,), 210, 50.0, 0, 0.809259),
    (210, "energy", (0,), (), 210, 15.0, 0, 0.378947),
    (210, "combat", (212,), (), 210, 24.9, 0, None),
]


@pytest.mark.parametrize(("chunk", "kind", "workers", "protectors", "hive", "energy", "seconds", "reward"), TABLE)
def test_reference_values(chunk: int, kind: str, workers: tuple[int, ...], protectors: tuple[int, ...], hive: int,
                          energy: float, seconds: int, reward: float | None) -> None:  # fmt: skip
    seen = Seen(workers, (), protectors, queen=energy, hive=hive, spawned=((chunk, 1000.0),), time=1000.0 + seconds)
    action = KINDS.index(kind) * 400 + chunk
    for verdicts, at in ((judge(seen), (0, action)), (judge(seen, actions=[action]), (0,))):
        reason = DOMAIN.reasons[verdicts.reason[at]]
        if reward is None:
            assert (reason, verdicts.rated[at], verdicts.send[at]) == ("insufficient_energy", False, False)
            assert verdicts.expected[at] == 0
        else:
            assert verdicts.expected[at] == pytest.approx(reward, abs=1e-6)
            assert verdicts.send[at] == (reward > 0.6)
            assert reason == ("positive_reward" if reward > 0.6 else "negative_reward")


@law
@given(st.lists(sights, min_size=1, max_size=4), gates())
def test_all_agree_with_the_slow_reference(seen: list[Seen], settings: GateSettings) -> None:
    verdicts = judge(*seen, settings=settings)
    for row, one in enumerate(seen):
        for action in range(0, 800, 13):
            told = reference.judged(action % 400, KINDS[action // 400], one, settings)
            compare(verdicts, (row, action), told, settings)


def compare(verdicts: GateResult, at: tuple[int, ...], told: tuple[str, float | None, tuple[float, ...]],
            settings: GateSettings) -> None:  # fmt: skip
    reason, reward, parts = told
    if reward is None:
        assert not verdicts.rated[at]
        assert not verdicts.send[at]
        assert verdicts.expected[at] == 0
        assert not verdicts.components[at].any()
    else:
        assert verdicts.rated[at]
        assert verdicts.expected[at] == pytest.approx(reward, abs=1e-9)
        assert verdicts.components[at] == pytest.approx(np.array(parts), abs=1e-9)
        if settings.enabled and abs(reward - settings.threshold) < 1e-8:
            return  # the last digits decide
        assert verdicts.send[at] == (reason != "negative_reward")
    assert DOMAIN.reasons[verdicts.reason[at]] == reason


@law
@given(st.lists(st.tuples(sights, st.integers(0, 799)), min_size=1, max_size=5), gates())
def test_one_action_alone_has_the_bits_of_the_table(given: list[tuple[Seen, int]], settings: GateSettings) -> None:
    seen, actions = [one for one, _ in given], [action for _, action in given]
    whole = judge(*seen, settings=settings)
    picked = GateResult(*(part[np.arange(len(seen)), actions] for part in whole))
    same(judge(*seen, settings=settings, actions=actions), picked)


@law
@given(st.lists(sights, min_size=1, max_size=5), gates())
def test_many_observations_have_the_bits_of_each_alone(seen: list[Seen], settings: GateSettings) -> None:
    whole = judge(*seen, settings=settings)
    for row, one in enumerate(seen):
        same(judge(one, settings=settings), GateResult(*(part[row : row + 1] for part in whole)))


def test_crowded_maps_are_exact_as_well() -> None:
    rng = np.random.default_rng(0)
    seen = [
        Seen(*(tuple(rng.integers(0, 400, n).tolist()) for n in (255, 255, many)), time=1.0) for many in (255, 0, 40)
    ]
    whole = judge(*seen)
    for row, one in enumerate(seen):
        for action in range(0, 800, 37):
            told = reference.judged(action % 400, KINDS[action // 400], one, USUAL)
            compare(whole, (row, action), told, USUAL)
        same(judge(one, actions=[481]), GateResult(*(part[row : row + 1, 481] for part in whole)))


def test_nothing_to_judge_gives_nothing() -> None:
    none = {name: column[:0] for name, column in scene_of(Seen()).items()}
    assert DOMAIN.gate(none, np.empty(0), USUAL).components.shape == (0, 800, 4)
    assert DOMAIN.gate(none, np.empty(0), USUAL, np.empty(0, np.int64)).send.shape == (0,)


def test_a_threshold_that_is_just_reached_is_not_enough() -> None:
    seen = Seen(present=(210,), time=0.0, spawned=((210, 0.0),))
    reward = judge(seen).expected[0, 210]
    assert not judge(seen, settings=GateSettings(threshold=reward)).send[0, 210]
    assert not judge(seen, settings=GateSettings(threshold=reward - 0.9e-9)).send[0, 210]
    assert judge(seen, settings=GateSettings(threshold=reward - 1.1e-9)).send[0, 210]


def test_a_disabled_gate_sends_all_that_can_be_paid_for() -> None:
    verdicts = judge(Seen(queen=20.0), settings=GateSettings(enabled=False))
    assert verdicts.send[0].tolist() == [True] * 400 + [False] * 400
    assert [DOMAIN.reasons[r] for r in verdicts.reason[0, [0, 400]]] == ["gate_disabled", "insufficient_energy"]


def test_a_clock_that_goes_back_is_no_time_at_all() -> None:
    verdicts = judge(Seen(spawned=((210, 500.0),), time=100.0))
    assert verdicts.components[0, 210, 3] == 0


@pytest.mark.parametrize("action", [-1, 800])
def test_an_action_that_does_not_exist_is_refused(action: int) -> None:
    with pytest.raises(ValueError, match="0 to 799"):
        judge(Seen(), actions=[action])


CROWD = Seen(present=(210, 214), mining=(250,), protectors=(212, 217), spawned=((210, 900.0),), time=1000.0)
ALONE = Seen(hive=0, time=1000.0)
CHANGES: list[tuple[str, Any]] = [
    ("enabled", False), ("threshold", 0.1), ("margin", 0.1), ("survival_weight", 0.5), ("disruption_weight", 0.6),
    ("location_weight", 0.3), ("kill_range", 3.0), ("threat_reach", 4.0), ("threat_decay", 1.0), ("worker_reach", 3.0),
    ("protector_reach", 3.0), ("combat_reach", 3.0), ("hive_weight", 0.5), ("nearest_weight", 0.5), ("far", 5.0),
    ("exploration", 0.1), ("exploration_seconds", 200.0), ("energy_cost", 60.0), ("combat_cost", 60.0),
]  # fmt: skip


def test_every_setting_changes_a_verdict() -> None:
    assert {name for name, _ in CHANGES} == set(GateSettings.model_fields)
    usual = judge(CROWD, ALONE)
    for name, value in CHANGES:
        other = judge(CROWD, ALONE, settings=GateSettings(**{name: value}))
        assert any((a != b).any() for a, b in zip(usual, other, strict=True)), name


def test_every_setting_says_what_it_does() -> None:
    for name, field in GateSettings.model_fields.items():
        assert any(word in (field.description or "") for word in ("Raised", "Lowered", "Off")), name


@pytest.mark.parametrize(
    "wrong",
    [
        {"kill_range": 9.0},
        {"far": 0.0},
        {"threshold": float("nan")},
        {"unknown": 1},
        {"enabled": 1},
        {"threat_decay": -1.0},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        GateSettings(**wrong)


def test_tables_cannot_be_changed() -> None:
    for table in tables(2.0, 8.0, 0.5, 6.0, 1.2, 7.5):
        with pytest.raises(ValueError, match="read-only"):
            table[0, 0] = 1
