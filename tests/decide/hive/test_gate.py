"""The gate matches the reference, for all actions or one, and for one observation or many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from decide.hive import reference
from decide.hive.reference import Sample, batch_of, gates, law, samples, times_of
from townlet.decide.domain import GateResult
from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.gate import HiveGateSettings
from townlet.decide.domains.hive.grid import reach_tables

KINDS = ("energy", "combat")
DEFAULTS = HiveGateSettings()


def run_gate(*samples: Sample, settings: HiveGateSettings = DEFAULTS, actions: list[int] | None = None) -> GateResult:
    return DOMAIN.gate(batch_of(*samples), times_of(*samples), settings, None if actions is None else np.array(actions))


def assert_identical(first: GateResult, second: GateResult) -> None:
    parts: list[tuple[str, Any, Any]] = list(zip(GateResult._fields, first, second, strict=True))
    for name, a, b in parts:
        assert a.shape == b.shape, name
        assert a.dtype == b.dtype, name
        assert a.tobytes() == b.tobytes(), name  # bit for bit


# chunk, type, workers, protectors, hive, energy, seconds since the last spawn there → R
TABLE = [
    (210, "energy", (), (), 210, 50.0, 0, 0.400000),
    (0, "energy", (), (), 399, 50.0, 300, 0.570000),
    (210, "energy", (212, 230), (), 210, 50.0, 0, 0.898511),
    (210, "energy", (212, 230), (211,), 210, 50.0, 300, 0.448511),
    (210, "combat", (212, 230), (211,), 210, 50.0, 0, 0.498511),
    (210, "energy", (212, 230), (215,), 210, 50.0, 0, 0.809259),
    (210, "energy", (212,), (211, 209, 230), 210, 50.0, 0, -0.502977),
    (210, "energy", (0,), (), 210, 15.0, 0, 0.378947),
    (210, "combat", (212,), (), 210, 24.9, 0, None),
]


@pytest.mark.parametrize(("chunk", "kind", "workers", "protectors", "hive", "energy", "seconds", "reward"), TABLE)
def test_gate_matches_hand_computed_table(
    chunk: int, kind: str, workers: tuple[int, ...], protectors: tuple[int, ...], hive: int, energy: float,
    seconds: int, reward: float | None,
) -> None:  # fmt: skip
    sample = Sample(workers, (), protectors, queen=energy, hive=hive, spawned=((chunk, 1000.0),), time=1000.0 + seconds)
    action = KINDS.index(kind) * 400 + chunk
    for gated, at in ((run_gate(sample), (0, action)), (run_gate(sample, actions=[action]), (0,))):
        reason = DOMAIN.reasons[gated.reason[at]]
        if reward is None:
            assert (reason, gated.rated[at], gated.send[at]) == ("insufficient_energy", False, False)
            assert gated.expected[at] == 0
        else:
            assert gated.expected[at] == pytest.approx(reward, abs=1e-6)
            assert gated.send[at] == (reward > 0.6)
            assert reason == ("positive_reward" if reward > 0.6 else "negative_reward")


@law
@given(st.lists(samples, min_size=1, max_size=4), gates())
def test_gate_matches_reference(samples: list[Sample], settings: HiveGateSettings) -> None:
    gated = run_gate(*samples, settings=settings)
    for row, sample in enumerate(samples):
        for action in range(0, 800, 13):
            expected = reference.rated(action % 400, KINDS[action // 400], sample, settings)
            compare(gated, (row, action), expected, settings)


def compare(gated: GateResult, at: tuple[int, ...], expected: tuple[str, float | None, tuple[float, ...]],
            settings: HiveGateSettings) -> None:  # fmt: skip
    reason, reward, components = expected
    if reward is None:
        assert not gated.rated[at]
        assert not gated.send[at]
        assert gated.expected[at] == 0
        assert not gated.components[at].any()
    else:
        assert gated.rated[at]
        assert gated.expected[at] == pytest.approx(reward, abs=1e-9)
        assert gated.components[at] == pytest.approx(np.array(components), abs=1e-9)
        if settings.enabled and abs(reward - settings.threshold) < 1e-8:
            return  # rounding decides
        assert gated.send[at] == (reason != "negative_reward")
    assert DOMAIN.reasons[gated.reason[at]] == reason


def part_of(table: GateResult, index: Any) -> GateResult:
    """The same rows and columns of every array of a result."""
    parts: list[Any] = [part[index] for part in table]
    return GateResult(*parts)


@law
@given(st.lists(st.tuples(samples, st.integers(0, 799)), min_size=1, max_size=5), gates())
def test_single_action_is_bitwise_equal_to_table(given: list[tuple[Sample, int]], settings: HiveGateSettings) -> None:
    samples, actions = [sample for sample, _ in given], [action for _, action in given]
    table = run_gate(*samples, settings=settings)
    picked = part_of(table, (np.arange(len(samples)), actions))
    assert_identical(run_gate(*samples, settings=settings, actions=actions), picked)


@law
@given(st.lists(samples, min_size=1, max_size=5), gates())
def test_batch_is_bitwise_equal_to_single_observations(samples: list[Sample], settings: HiveGateSettings) -> None:
    table = run_gate(*samples, settings=settings)
    for row, sample in enumerate(samples):
        assert_identical(run_gate(sample, settings=settings), part_of(table, slice(row, row + 1)))


def test_crowded_maps_match_reference() -> None:
    rng = np.random.default_rng(0)

    def chunks(count: int) -> tuple[int, ...]:
        return tuple(rng.integers(0, 400, count).tolist())

    samples = [Sample(chunks(255), chunks(255), chunks(many), time=1.0) for many in (255, 0, 40)]
    table = run_gate(*samples)
    for row, sample in enumerate(samples):
        for action in range(0, 800, 37):
            expected = reference.rated(action % 400, KINDS[action // 400], sample, DEFAULTS)
            compare(table, (row, action), expected, DEFAULTS)
        assert_identical(run_gate(sample, actions=[481]), part_of(table, (slice(row, row + 1), 481)))


def test_empty_batch_gives_empty_result() -> None:
    none = {name: column[:0] for name, column in batch_of(Sample()).items()}
    assert DOMAIN.gate(none, np.empty(0), DEFAULTS).components.shape == (0, 800, 4)
    assert DOMAIN.gate(none, np.empty(0), DEFAULTS, np.empty(0, np.int64)).send.shape == (0,)


def test_estimate_equal_to_threshold_is_not_sent() -> None:
    sample = Sample(present=(210,), time=0.0, spawned=((210, 0.0),))
    reward = run_gate(sample).expected[0, 210]
    assert not run_gate(sample, settings=HiveGateSettings(threshold=reward)).send[0, 210]
    assert not run_gate(sample, settings=HiveGateSettings(threshold=reward - 0.9e-9)).send[0, 210]
    assert run_gate(sample, settings=HiveGateSettings(threshold=reward - 1.1e-9)).send[0, 210]


def test_disabled_gate_sends_every_affordable_action() -> None:
    gated = run_gate(Sample(queen=20.0), settings=HiveGateSettings(enabled=False))
    assert gated.send[0].tolist() == [True] * 400 + [False] * 400
    assert [DOMAIN.reasons[r] for r in gated.reason[0, [0, 400]]] == ["gate_disabled", "insufficient_energy"]


def test_clock_set_back_counts_as_no_elapsed_time() -> None:
    gated = run_gate(Sample(spawned=((210, 500.0),), time=100.0))
    assert gated.components[0, 210, 3] == 0


@pytest.mark.parametrize("action", [-1, 800])
def test_unknown_action_is_refused(action: int) -> None:
    with pytest.raises(ValueError, match="0 to 799"):
        run_gate(Sample(), actions=[action])


CROWD = Sample(present=(210, 214), mining=(250,), protectors=(212, 217), spawned=((210, 900.0),), time=1000.0)
ALONE = Sample(hive=0, time=1000.0)
CHANGES: list[tuple[str, Any]] = [
    ("enabled", False), ("threshold", 0.1), ("margin", 0.1), ("survival_weight", 0.5), ("disruption_weight", 0.6),
    ("location_weight", 0.3), ("kill_range", 3.0), ("threat_reach", 4.0), ("threat_decay", 1.0), ("worker_reach", 3.0),
    ("protector_reach", 3.0), ("combat_reach", 3.0), ("hive_weight", 0.5), ("nearest_weight", 0.5), ("far", 5.0),
    ("exploration", 0.1), ("exploration_seconds", 200.0), ("energy_cost", 60.0), ("combat_cost", 60.0),
]  # fmt: skip


def test_every_setting_changes_the_result() -> None:
    assert {name for name, _ in CHANGES} == set(HiveGateSettings.model_fields)
    default = run_gate(CROWD, ALONE)
    for name, value in CHANGES:
        other = run_gate(CROWD, ALONE, settings=HiveGateSettings(**{name: value}))
        assert any(np.any(a != b) for a, b in zip(default, other, strict=True)), name


def test_every_setting_describes_its_effect() -> None:
    for name, field in HiveGateSettings.model_fields.items():
        assert any(word in (field.description or "") for word in ("Higher:", "Lower:", "Off:")), name


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
def test_invalid_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HiveGateSettings(**wrong)


def test_tables_are_read_only() -> None:
    for table in reach_tables(2.0, 8.0, 0.5, 6.0, 1.2, 7.5):
        with pytest.raises(ValueError, match="read-only"):
            table[0, 0] = 1
