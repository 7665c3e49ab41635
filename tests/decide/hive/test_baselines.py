"""Choices without learning."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from decide.hive import reference
from decide.hive.reference import Seen, law, scene_of, sights, times_of
from townlet.decide.domain import GateResult
from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.gate import GateSettings


def choose(name: str, *seen: Seen, seed: int = 0) -> tuple[list[int], GateResult]:
    scene = scene_of(*seen)
    verdicts = DOMAIN.gate(scene, times_of(*seen), GateSettings())
    found = DOMAIN.baselines[name](scene, verdicts, np.random.default_rng(seed))
    assert found.dtype == np.int64
    return found.tolist(), verdicts


@law
@given(st.lists(sights, min_size=1, max_size=4))
def test_gate_greedy_takes_the_first_of_the_best(seen: list[Seen]) -> None:
    found, verdicts = choose("gate_greedy", *seen)
    for row, action in enumerate(found):
        paid = np.flatnonzero(verdicts.rated[row])
        best = verdicts.expected[row, paid].max() if len(paid) else None
        assert action == (0 if best is None else next(a for a in paid if verdicts.expected[row, a] == best))


@law
@given(st.lists(sights, min_size=1, max_size=4))
def test_nearest_worker(seen: list[Seen]) -> None:
    for action, one in zip(choose("nearest_worker", *seen)[0], seen, strict=True):
        workers = sorted({*one.present, *one.mining})
        place = min(workers, key=lambda w: reference.distance(w, one.hive), default=one.hive)
        assert action == place  # energy is the cheaper one, also where nothing can be paid for


def test_nearest_worker_takes_what_can_be_paid_for() -> None:
    seen = Seen(present=(7,))
    scene, settings = scene_of(seen), GateSettings(energy_cost=90.0)
    verdicts = DOMAIN.gate(scene, times_of(seen), settings)
    assert DOMAIN.baselines["nearest_worker"](scene, verdicts, np.random.default_rng(0)).tolist() == [407]


def test_random_takes_everything_that_can_be_paid_for() -> None:
    drawn = {a for seed in range(30) for a in choose("random", *[Seen(queen=20.0)] * 100, seed=seed)[0]}
    assert max(drawn) < 400
    assert len(drawn) > 390
    assert max(choose("random", *[Seen(queen=1.0)] * 100)[0]) > 400  # nothing can be paid for, so all are alike
