"""Better policies earn more in the simulated game."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.domain import FAILED_OUTCOME, reward_from_next
from townlet.decide.domains.hive.game import HiveGame
from townlet.decide.domains.hive.gate import HiveGateSettings
from townlet.decide.domains.hive.grid import CHUNKS, TYPES


def play(baseline: str, seed: int, decisions: int, kill_range: float = 2.0) -> NDArray[np.float64]:
    """Reward of each action that was carried out, with the gate and the rewards of the service."""
    game, rng, settings = HiveGame(seed, kill_range=kill_range), np.random.default_rng(seed), HiveGateSettings()
    rewards: list[float] = []
    state, previous = DOMAIN.initial_territory_state(), None
    for _ in range(decisions):
        observation = DOMAIN.parse_observation(game.observe())
        batch = {name: value[None] for name, value in (observation.row | state).items()}
        if previous is not None:
            rewards.append(float(reward_from_next(previous, batch)[0]))
        previous, gated = None, DOMAIN.gate(batch, np.array([observation.time]), settings)
        action = int(DOMAIN.baselines[baseline](batch, gated, rng)[0])
        if gated.send[0, action]:
            if game.spawn(action % CHUNKS, TYPES[action // CHUNKS]):
                state, previous = DOMAIN.territory_state_after(state, action, observation.time), batch
            else:
                rewards.append(FAILED_OUTCOME)
        game.advance()
    return np.array(rewards)


def mean(baseline: str, seeds: range, decisions: int, kill_range: float = 2.0) -> float:
    """Mean reward over games."""
    return float(np.mean([play(baseline, seed, decisions, kill_range).mean() for seed in seeds]))


def test_gate_greedy_beats_random() -> None:
    random, greedy = mean("random", range(3), 200), mean("gate_greedy", range(3), 200)
    assert greedy > random + 0.05


@pytest.mark.long
def test_order_of_baselines() -> None:
    means = {name: mean(name, range(10), 400) for name in DOMAIN.baselines}
    print(means)
    assert means["random"] + 0.05 < min(means["nearest_worker"], means["gate_greedy"])
    changed = {name: mean(name, range(10), 400, kill_range=4.0) for name in DOMAIN.baselines}
    print(changed)
    assert changed["nearest_worker"] < means["nearest_worker"] - 0.05


def test_equal_actions_give_equal_rewards() -> None:
    one, two = (play("random", 4, 60) for _ in range(2))
    assert np.array_equal(one, two)
    assert len(one)
