"""Better choices bring better rewards in the simulated game."""

from __future__ import annotations

import numpy as np
import pytest

from townlet.decide.domain import ObservationBatch
from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.game import Game
from townlet.decide.domains.hive.gate import GateSettings
from townlet.decide.domains.hive.play import by, play


def mean(name: str, seeds: range, ticks: int, kill_range: float = 2.0) -> float:
    """The reward of what was carried out, as a mean over games."""
    games = [(Game(seed, kill_range=kill_range), np.random.default_rng(seed)) for seed in seeds]
    return float(np.mean([np.nanmean(play(game, by(DOMAIN.baselines[name], rng), ticks)) for game, rng in games]))


def test_what_the_gate_likes_is_better_than_chance() -> None:
    random, greedy = mean("random", range(3), 1000), mean("gate_greedy", range(3), 1000)
    assert greedy > random + 0.05


@pytest.mark.long
def test_baselines_in_order() -> None:
    means = {name: mean(name, range(10), 2000) for name in DOMAIN.baselines}
    print(means)
    assert means["random"] + 0.05 < min(means["nearest_worker"], means["gate_greedy"])
    changed = {name: mean(name, range(10), 2000, kill_range=4.0) for name in DOMAIN.baselines}
    print(changed)
    assert changed["nearest_worker"] < means["nearest_worker"] - 0.05


def test_the_same_choices_give_the_same_rewards() -> None:
    one, two = (play(Game(4), by(DOMAIN.baselines["random"], np.random.default_rng(1)), 300) for _ in range(2))
    assert np.array_equal(one, two, equal_nan=True)
    assert len(one) == 60
    assert np.isfinite(one).any()


def test_whoever_waits_gets_nothing() -> None:
    rewards = play(Game(0), lambda scene, time: 0, 100, settings=GateSettings(threshold=2.0))
    assert np.isnan(rewards).all()


def test_a_failed_spawn_is_counted_at_once() -> None:
    def on_a_protector(scene: ObservationBatch, time: float) -> int:
        return int(scene["protectors"][0].argmax())

    rewards = play(Game(0), on_a_protector, 10, settings=GateSettings(enabled=False))
    assert rewards.tolist() == [-0.5, -0.5]
