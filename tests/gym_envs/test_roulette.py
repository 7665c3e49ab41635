"""Roulette: rules, payouts, and a house edge that is the same for every bet."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import townlet
from townlet.errors import TownletError
from townlet.gym.roulette import BETS, LEAVE, POCKETS


def test_gymnasium_checker_passes() -> None:
    check_env(gym.make(townlet.ROULETTE).unwrapped, skip_render_check=True)


def test_even_chances_exclude_both_zeros_and_complement_each_other() -> None:
    assert [len(bet) for bet in BETS] == [1] * POCKETS + [18] * 6
    for first, second in ((38, 39), (40, 41), (42, 43)):
        assert BETS[first] | BETS[second] == frozenset(range(1, 37))


@pytest.mark.parametrize(("bet", "prize"), [(7, 35.0), (37, 35.0), (38, 1.0), (43, 1.0)])
def test_bets_win_as_often_as_their_pockets_and_lose_a_nineteenth_on_average(bet: int, prize: float) -> None:
    spins = 20_000
    env = gym.make(townlet.ROULETTE, length=spins)
    env.reset(seed=0)
    rewards = np.array([env.step(bet)[1] for _ in range(spins)])
    wins = len(BETS[bet]) / POCKETS
    assert set(rewards) == {-1.0, prize}
    assert wins * prize - (1 - wins) == pytest.approx(-1 / 19)
    assert abs((rewards > 0).mean() - wins) < 4 * np.sqrt(wins * (1 - wins) / spins)


def test_leaving_terminates_without_reward_and_the_last_spin_truncates() -> None:
    env = gym.make(townlet.ROULETTE, length=3)
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    env.reset()
    assert env.step(LEAVE)[1:] == (0.0, True, False, {})


def test_an_episode_without_spins_is_refused() -> None:
    with pytest.raises(TownletError, match="0 spins"):
        gym.make(townlet.ROULETTE, length=0)
