"""What came of a decision, by two observations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decide.hive import reference
from decide.hive.reference import Seen, law, scene_of, sights
from townlet.decide.domains.hive import DOMAIN


def follow(*pairs: tuple[Seen, Seen]) -> np.ndarray:
    assert DOMAIN.reward_from_next is not None
    return DOMAIN.reward_from_next(scene_of(*(a for a, _ in pairs)), scene_of(*(b for _, b in pairs)))


@law
@given(st.lists(st.tuples(sights, sights), min_size=1, max_size=5))
def test_rewards_are_those_of_the_slow_reference(pairs: list[tuple[Seen, Seen]]) -> None:
    found = follow(*pairs)
    assert found == pytest.approx(np.array([reference.outcome(*pair) for pair in pairs]), abs=1e-9)
    assert (np.abs(found) <= 1).all()


MINING = Seen(mining=(45, 45, 67, 123), protectors=(1, 2), energy=(0.0, 100.0))


@pytest.mark.parametrize(
    ("after", "reward"),
    [
        (MINING, -0.1),  # nothing happened
        (Seen(mining=(45, 45, 67, 123), protectors=(1, 2), energy=(100.0, 90.0)), 0.03),
        (Seen(mining=(45, 45), protectors=(1, 2), energy=(100.0, 100.0)), 0.4 * 0.5 + 0.2 * 2),
        (Seen(mining=(45, 45, 67, 123), protectors=(9,), energy=(100.0, 100.0)), 0.3 * 0.5 + 0.15),
        (Seen(mining=(45, 45, 67, 123), protectors=(1, 2, 3), energy=(100.0, 100.0)), -0.3 / 3),
        (Seen(mining=(), protectors=(), energy=(100.0, 0.0)), 1.0),  # cut off
        (Seen(mining=(45, 45, 67, 123), protectors=(1, 2), energy=(100.0, 95.0)), 0.3 * 0.05),  # .05 is not small
    ],
)
def test_rewards_worked_out_by_hand(after: Seen, reward: float) -> None:
    assert follow((MINING, after)).item() == pytest.approx(reward)


def test_a_failed_spawn_costs_a_half() -> None:
    assert DOMAIN.failed_outcome == -0.5
