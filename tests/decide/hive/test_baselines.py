"""Baselines that do not learn."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from decide.hive import reference
from decide.hive.reference import Sample, batch_of, law, samples, times_of
from townlet.decide.domain import GateResult
from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.gate import HiveGateSettings


def choose(name: str, *samples: Sample, seed: int = 0) -> tuple[list[int], GateResult]:
    batch = batch_of(*samples)
    gated = DOMAIN.gate(batch, times_of(*samples), HiveGateSettings())
    found = DOMAIN.baselines[name](batch, gated, np.random.default_rng(seed))
    assert found.dtype == np.int64
    return found.tolist(), gated


@law
@given(st.lists(samples, min_size=1, max_size=4))
def test_gate_greedy_takes_first_best_action(samples: list[Sample]) -> None:
    found, gated = choose("gate_greedy", *samples)
    for row, action in enumerate(found):
        paid = np.flatnonzero(gated.rated[row])
        best = gated.expected[row, paid].max() if len(paid) else None
        assert action == (0 if best is None else next(a for a in paid if gated.expected[row, a] == best))


@law
@given(st.lists(samples, min_size=1, max_size=4))
def test_nearest_worker_takes_energy_at_nearest_worker(samples: list[Sample]) -> None:
    for action, sample in zip(choose("nearest_worker", *samples)[0], samples, strict=True):
        workers = sorted({*sample.present, *sample.mining})
        chunk = min(workers, key=lambda w: reference.distance(w, sample.hive), default=sample.hive)
        assert action == chunk  # energy is cheaper, even if nothing is affordable


def test_nearest_worker_takes_affordable_type() -> None:
    sample = Sample(present=(7,))
    batch, settings = batch_of(sample), HiveGateSettings(energy_cost=90.0)
    gated = DOMAIN.gate(batch, times_of(sample), settings)
    assert DOMAIN.baselines["nearest_worker"](batch, gated, np.random.default_rng(0)).tolist() == [407]


def test_random_covers_all_affordable_actions() -> None:
    drawn = {a for seed in range(30) for a in choose("random", *[Sample(queen=20.0)] * 100, seed=seed)[0]}
    assert max(drawn) < 400
    assert len(drawn) > 390
    assert max(choose("random", *[Sample(queen=1.0)] * 100)[0]) > 400  # nothing is affordable
