"""What came of a decision, by what the queen sees before and after."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from townlet.decide.domain import Scene
from townlet.decide.domains.hive.features import rate

FAILED: Final = -0.5  # of a spawn that could not be carried out
MINING, PROTECTORS, ENERGY = -0.4, -0.3, -0.3  # weights of what grew: the player's gain is the queen's loss
CLEARED: Final = 0.2  # for each chunk that is no longer mined
LOST: Final = 0.15  # for each protector that is gone
QUIET: Final = -0.1  # where nothing happened
SMALL: Final = 0.05  # a rate below it is nothing


def outcome(before: Scene, after: Scene) -> NDArray[np.float64]:
    """The reward [B] in [−1, 1] between two successive observations of a territory."""
    mining = [scene["mining"].sum(1, dtype=np.int64) for scene in (before, after)]
    protectors = [scene["protectors"].sum(1, dtype=np.int64) for scene in (before, after)]
    grown = np.stack((rate(*mining), rate(*protectors), rate(before["player_energy_end"], after["player_energy_end"])))
    cleared = np.count_nonzero((before["mining"] > 0) & (after["mining"] == 0), 1)
    lost = np.maximum(protectors[0] - protectors[1], 0)
    quiet = (np.abs(grown) < SMALL).all(0)
    reward = MINING * grown[0] + PROTECTORS * grown[1] + ENERGY * grown[2]
    clipped: NDArray[np.float64] = np.clip(reward + CLEARED * cleared + LOST * lost + QUIET * quiet, -1.0, 1.0)
    return clipped
