"""Rewards from two successive observations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decide.hive import reference
from decide.hive.reference import Sample, batch_of, law, samples
from townlet.decide.domains.hive import DOMAIN


def rewards_of(*pairs: tuple[Sample, Sample]) -> np.ndarray:
    assert DOMAIN.reward_from_next is not None
    return DOMAIN.reward_from_next(batch_of(*(a for a, _ in pairs)), batch_of(*(b for _, b in pairs)))


@law
@given(st.lists(st.tuples(samples, samples), min_size=1, max_size=5))
def test_rewards_match_reference(pairs: list[tuple[Sample, Sample]]) -> None:
    found = rewards_of(*pairs)
    assert found == pytest.approx(np.array([reference.outcome(*pair) for pair in pairs]), abs=1e-9)
    assert (np.abs(found) <= 1).all()


MINING = Sample(mining=(45, 45, 67, 123), protectors=(1, 2), energy=(0.0, 100.0))


@pytest.mark.parametrize(
    ("after", "reward"),
    [
        (MINING, -0.1),  # nothing changed
        (Sample(mining=(45, 45, 67, 123), protectors=(1, 2), energy=(100.0, 90.0)), 0.03),
        (Sample(mining=(45, 45), protectors=(1, 2), energy=(100.0, 100.0)), 0.4 * 0.5 + 0.2 * 2),
        (Sample(mining=(45, 45, 67, 123), protectors=(9,), energy=(100.0, 100.0)), 0.3 * 0.5 + 0.15),
        (Sample(mining=(45, 45, 67, 123), protectors=(1, 2, 3), energy=(100.0, 100.0)), -0.3 / 3),
        (Sample(mining=(), protectors=(), energy=(100.0, 0.0)), 1.0),  # clipped
        (
            Sample(mining=(45, 45, 67, 123), protectors=(1, 2), energy=(100.0, 95.0)),
            0.3 * 0.05,
        ),  # not negligible
    ],
)
def test_rewards_of_hand_computed_examples(after: Sample, reward: float) -> None:
    assert rewards_of((MINING, after)).item() == pytest.approx(reward)


def test_failed_spawn_costs_one_half() -> None:
    assert DOMAIN.failed_outcome == -0.5
