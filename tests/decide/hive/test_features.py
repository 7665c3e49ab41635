"""What networks read: the 28 numbers of the description, and what is known of each action."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decide.hive import reference
from decide.hive.reference import Seen, law, scene_of, sights, times_of
from townlet.decide.domain import GateResult, ObservationBatch
from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.features import OF_ACTION, by_action, candidates, rate, summary
from townlet.decide.domains.hive.gate import GateSettings


def judged(*seen: Seen, settings: GateSettings | None = None) -> tuple[ObservationBatch, GateResult]:
    scene = scene_of(*seen)
    return scene, DOMAIN.gate(scene, times_of(*seen), settings or GateSettings())


@law
@given(st.lists(sights, min_size=1, max_size=5))
def test_the_28_numbers_are_those_of_the_slow_reference(seen: list[Seen]) -> None:
    found = summary(scene_of(*seen))
    assert found.dtype == np.float32
    assert found == pytest.approx(np.array([reference.features(one) for one in seen]), abs=1e-6)
    assert (np.abs(found) <= 1).all()


def test_an_observation_worked_out_by_hand() -> None:
    seen = Seen(
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
    expected = [*np.ravel(crowds), 3 / 6, 1 / 4, -0.2]
    assert summary(scene_of(seen))[0] == pytest.approx(np.array(expected), abs=1e-6)


@law
@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_rates_are_shares(start: float, end: float) -> None:
    found = rate(start, end).item()
    assert found == pytest.approx(reference.rate(start, end))
    assert found == -rate(end, start).item()


@law
@given(st.lists(sights, min_size=1, max_size=4))
def test_candidates_are_what_the_gate_sends_else_what_can_be_paid_for_else_all(seen: list[Seen]) -> None:
    _, verdicts = judged(*seen)
    for row, mask in enumerate(candidates(verdicts)):
        sent, paid = verdicts.send[row], verdicts.rated[row]
        assert (mask == (sent if sent.any() else paid if paid.any() else True)).all()
        assert mask.any()


@law
@given(st.lists(sights, min_size=1, max_size=3))
def test_what_is_known_of_each_action(seen: list[Seen]) -> None:
    scene, verdicts = judged(*seen)
    found = by_action(scene, verdicts)
    assert found.shape == (len(seen), 800, OF_ACTION)
    assert (np.abs(found[..., 5:]) <= 1).all()
    assert found[..., :4] == pytest.approx(verdicts.components.astype(np.float32))
    assert found[..., 4] == pytest.approx(verdicts.expected.astype(np.float32))
    for row, one in enumerate(seen):
        for action in range(0, 800, 97):
            kind, place = divmod(action, 400)
            around = [
                min(1.0, sum(reference.distance(place, other) < 3 for other in others) / 8)
                for others in ([*one.present, *one.mining], one.mining, one.protectors, [c for c, _ in one.end])
            ]
            assert found[row, action, 5] == kind
            assert found[row, action, 6:10] == pytest.approx(np.array(around), abs=1e-6)
            cost = (15, 25)[kind]
            assert found[row, action, 10] == pytest.approx(min(1, cost / max(one.queen, 1)))
