"""Play the simulated hive without a socket: gate and rewards as in the service, actions from any function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from townlet.decide.domain import Baseline, ObservationBatch
from townlet.decide.domains.hive.domain import DOMAIN, FAILED_OUTCOME, reward_from_next
from townlet.decide.domains.hive.game import OBSERVATION_TICKS, HiveGame
from townlet.decide.domains.hive.gate import HiveGateSettings
from townlet.decide.domains.hive.grid import CHUNKS, TYPES

ActionFunction = Callable[[ObservationBatch, float], int]  # an observation with B = 1 and its time → an action
SETTINGS: Final = HiveGateSettings()


def play(
    game: HiveGame, choose: ActionFunction, ticks: int, every: int = OBSERVATION_TICKS,
    settings: HiveGateSettings = SETTINGS,
) -> NDArray[np.float64]:  # fmt: skip
    """The reward of each decision; NaN if the gate refused it, and for the last one, whose outcome is unknown."""
    rewards: list[float] = []
    memory, previous = DOMAIN.initial_memory(), None
    for tick in range(0, ticks, every):
        observation = DOMAIN.parse_observation(game.observe())
        batch = {name: value[None] for name, value in (observation.row | memory).items()}
        if previous is not None:
            rewards[-1] = float(reward_from_next(previous, batch)[0])
        rewards.append(np.nan)
        previous, action = None, choose(batch, observation.time)
        if DOMAIN.gate(batch, np.array([observation.time]), settings, np.array([action])).send[0]:
            if game.spawn(action % CHUNKS, TYPES[action // CHUNKS]):
                memory, previous = DOMAIN.memory_after(memory, action, observation.time), batch
            else:
                rewards[-1] = FAILED_OUTCOME
        for _ in range(min(every, ticks - tick)):
            game.tick()
    return np.array(rewards)


def baseline_actions(
    baseline: Baseline, rng: np.random.Generator, settings: HiveGateSettings = SETTINGS
) -> ActionFunction:

    def choose(batch: ObservationBatch, time: float) -> int:
        return int(baseline(batch, DOMAIN.gate(batch, np.array([time]), settings), rng)[0])

    return choose
