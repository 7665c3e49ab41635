"""The game without a socket: whoever chooses, the gate judges, and what came of it is counted as the service does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from townlet.decide.domain import Baseline, ObservationBatch, ObservationRow
from townlet.decide.domains.hive.chunks import CHUNKS, TYPES
from townlet.decide.domains.hive.domain import DOMAIN
from townlet.decide.domains.hive.game import EVERY, Game
from townlet.decide.domains.hive.gate import GateSettings
from townlet.decide.domains.hive.outcome import FAILED, outcome

Choose = Callable[[ObservationBatch, float], int]  # an observation with B = 1 and its time → an action
SETTINGS: Final = GateSettings()


def play(
    game: Game, choose: Choose, ticks: int, every: int = EVERY, settings: GateSettings = SETTINGS
) -> NDArray[np.float64]:
    """The reward of each decision; NaN where the gate let the queen wait, and of the last, of which nobody hears."""
    rewards: list[float] = []
    known, before = DOMAIN.initial_memory(), None
    for moment in range(0, ticks, every):
        sight = DOMAIN.parse_observation(game.observe())
        scene = _alone(sight.row | known)
        if before is not None:
            rewards[-1] = float(outcome(before, scene)[0])
        rewards.append(np.nan)
        before, action = None, choose(scene, sight.time)
        verdict = DOMAIN.gate(scene, np.array([sight.time]), settings, np.array([action]))
        if verdict.send[0]:
            if game.spawn(action % CHUNKS, TYPES[action // CHUNKS]):
                known, before = DOMAIN.memory_after(known, action, sight.time), scene
            else:
                rewards[-1] = FAILED
        for _ in range(min(every, ticks - moment)):
            game.tick()
    return np.array(rewards)


def by(baseline: Baseline, rng: np.random.Generator, settings: GateSettings = SETTINGS) -> Choose:
    """A baseline as one who chooses."""

    def choose(scene: ObservationBatch, time: float) -> int:
        return int(baseline(scene, DOMAIN.gate(scene, np.array([time]), settings), rng)[0])

    return choose


def _alone(row: ObservationRow) -> ObservationBatch:
    return {name: value[None] for name, value in row.items()}
