"""Better policies earn more in the simulated game."""

from __future__ import annotations

import numpy as np
import pytest

from townlet.decide.domain import ObservationBatch
from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.game import HiveGame
from townlet.decide.domains.hive.gate import HiveGateSettings
from townlet.decide.domains.hive.play import baseline_actions, play


def mean(name: str, seeds: range, ticks: int, kill_range: float = 2.0) -> float:
    """Mean reward of executed decisions over games."""
    games = [(HiveGame(seed, kill_range=kill_range), np.random.default_rng(seed)) for seed in seeds]
    return float(
        np.mean([np.nanmean(play(game, baseline_actions(DOMAIN.baselines[name], rng), ticks)) for game, rng in games])
    )


def test_gate_greedy_beats_random() -> None:
    random, greedy = mean("random", range(3), 1000), mean("gate_greedy", range(3), 1000)
    assert greedy > random + 0.05


@pytest.mark.long
def test_order_of_baselines() -> None:
    means = {name: mean(name, range(10), 2000) for name in DOMAIN.baselines}
    print(means)
    assert means["random"] + 0.05 < min(means["nearest_worker"], means["gate_greedy"])
    changed = {name: mean(name, range(10), 2000, kill_range=4.0) for name in DOMAIN.baselines}
    print(changed)
    assert changed["nearest_worker"] < means["nearest_worker"] - 0.05


def test_equal_actions_give_equal_rewards() -> None:
    one, two = (
        play(HiveGame(4), baseline_actions(DOMAIN.baselines["random"], np.random.default_rng(1)), 300) for _ in range(2)
    )
    assert np.array_equal(one, two, equal_nan=True)
    assert len(one) == 60
    assert np.isfinite(one).any()


def test_refused_actions_have_no_reward() -> None:
    rewards = play(HiveGame(0), lambda batch, time: 0, 100, settings=HiveGateSettings(threshold=2.0))
    assert np.isnan(rewards).all()


def test_failed_spawn_is_penalized_immediately() -> None:
    def spawn_on_protector(batch: ObservationBatch, time: float) -> int:
        return int(batch["protectors"][0].argmax())

    rewards = play(HiveGame(0), spawn_on_protector, 10, settings=HiveGateSettings(enabled=False))
    assert rewards.tolist() == [-0.5, -0.5]
