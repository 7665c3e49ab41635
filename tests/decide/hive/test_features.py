"""Network inputs: 28 summary features, and features of each action."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decide.hive import reference
from decide.hive.reference import Sample, batch_of, law, samples, times_of
from townlet.decide.domain import GateResult, ObservationBatch
from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.gate import HiveGateSettings
from townlet.decide.domains.hive.policies import (
    ACTION_FEATURES,
    action_features,
    candidate_mask,
    growth_rate,
    summary_features,
)


def rated(*samples: Sample, settings: HiveGateSettings | None = None) -> tuple[ObservationBatch, GateResult]:
    batch = batch_of(*samples)
    return batch, DOMAIN.gate(batch, times_of(*samples), settings or HiveGateSettings())


@law
@given(st.lists(samples, min_size=1, max_size=5))
def test_summary_features_match_reference(samples: list[Sample]) -> None:
    found = summary_features(batch_of(*samples))
    assert found.dtype == np.float32
    assert found == pytest.approx(np.array([reference.features(sample) for sample in samples]), abs=1e-6)
    assert (np.abs(found) <= 1).all()


def test_summary_features_of_a_hand_computed_example() -> None:
    sample = Sample(
        present=(399, 7, 7), mining=(7, 30), protectors=(7, 100), start=((7, "energy"), (30, "combat")),
        end=((7, "energy"), (7, "energy")), queen=47.0, energy=(100.0, 80.0),
    )  # fmt: skip
    crowds = [
        [7 / 399, 0.6, 0.5, 0.5, 0],  # energy parasites from 1 to 2
        [30 / 399, 0.2, 0, 0, -1],  # before 399, which has as many workers
        [1, 0.2, 0, 0, 0],
        [0] * 5,
        [0] * 5,
    ]
    expected = [*np.ravel(np.array(crowds, float)), 3 / 6, 1 / 4, -0.2]
    assert summary_features(batch_of(sample))[0] == pytest.approx(np.array(expected), abs=1e-6)


@law
@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_growth_rate_matches_reference_and_is_antisymmetric(start: float, end: float) -> None:
    found = growth_rate(start, end).item()
    assert found == pytest.approx(reference.rate(start, end))
    assert found == -growth_rate(end, start).item()


@law
@given(st.lists(samples, min_size=1, max_size=4))
def test_candidates_are_sent_else_affordable_else_all_actions(samples: list[Sample]) -> None:
    _, gated = rated(*samples)
    for row, mask in enumerate(candidate_mask(gated)):
        sent, paid = gated.send[row], gated.rated[row]
        assert (mask == (sent if sent.any() else paid if paid.any() else True)).all()
        assert mask.any()


@law
@given(st.lists(samples, min_size=1, max_size=3))
def test_action_features_match_reference(samples: list[Sample]) -> None:
    batch, gated = rated(*samples)
    found = action_features(batch, gated)
    assert found.shape == (len(samples), 800, ACTION_FEATURES)
    assert (np.abs(found[..., 5:]) <= 1).all()
    assert found[..., :4] == pytest.approx(gated.components.astype(np.float32))
    assert found[..., 4] == pytest.approx(gated.expected.astype(np.float32))
    for row, sample in enumerate(samples):
        for action in range(0, 800, 97):
            kind, chunk = divmod(action, 400)
            around = [
                min(1.0, sum(reference.distance(chunk, other) < 3 for other in others) / 8)
                for others in (
                    [*sample.present, *sample.mining],
                    sample.mining,
                    sample.protectors,
                    [c for c, _ in sample.end],
                )
            ]
            assert found[row, action, 5] == kind
            assert found[row, action, 6:10] == pytest.approx(np.array(around), abs=1e-6)
            cost = (15, 25)[kind]
            assert found[row, action, 10] == pytest.approx(min(1, cost / max(sample.queen, 1)))
