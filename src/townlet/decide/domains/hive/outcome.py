"""What came of a decision, by what the queen sees before and after."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from townlet.decide.domain import ObservationBatch
from townlet.decide.domains.hive.sums import reward
from townlet.jit import jit_if_available

FAILED: Final = -0.5  # of a spawn that could not be carried out
MINING, PROTECTORS, ENERGY = -0.4, -0.3, -0.3  # weights of what grew: the player's gain is the queen's loss
CLEARED: Final = 0.2  # for each chunk that is no longer mined
LOST: Final = 0.15  # for each protector that is gone
QUIET: Final = -0.1  # where nothing happened
SEEN: Final = ("mining", "protectors", "player_energy_end")
SMALL: Final = 0.05  # a rate below it is nothing


def outcome(before: ObservationBatch, after: ObservationBatch) -> NDArray[np.float64]:
    """The reward [B] in [−1, 1] between two successive observations of a territory."""
    columns = [np.ascontiguousarray(of[name]) for name in SEEN for of in (before, after)]
    rewards = np.empty(len(columns[0]))
    jit_if_available(reward)(*columns, (MINING, PROTECTORS, ENERGY), CLEARED, LOST, QUIET, SMALL, rewards)
    return rewards
