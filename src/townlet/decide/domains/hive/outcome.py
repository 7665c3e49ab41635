"""What came of a decision, by what the queen sees before and after."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from townlet.decide.domain import Scene
from townlet.decide.domains.hive.features import rate
from townlet.decide.domains.hive.sums import compare
from townlet.sim.compiled import compiled

FAILED: Final = -0.5  # of a spawn that could not be carried out
MINING, PROTECTORS, ENERGY = -0.4, -0.3, -0.3  # weights of what grew: the player's gain is the queen's loss
CLEARED: Final = 0.2  # for each chunk that is no longer mined
LOST: Final = 0.15  # for each protector that is gone
QUIET: Final = -0.1  # where nothing happened
SEEN: Final = ("mining", "protectors")
SMALL: Final = 0.05  # a rate below it is nothing


def outcome(before: Scene, after: Scene) -> NDArray[np.float64]:
    """The reward [B] in [−1, 1] between two successive observations of a territory."""
    energy = before["player_energy_end"], after["player_energy_end"]
    counts = np.zeros((len(energy[0]), 5), np.int64)
    compiled(compare)(*(np.ascontiguousarray(of[name]) for name in SEEN for of in (before, after)), counts)
    mined, mining, guards, left, cleared = counts.T
    grown = rate(np.stack((mined, guards, energy[0])), np.stack((mining, left, energy[1])))
    lost = np.maximum(guards - left, 0)
    quiet = (np.abs(grown) < SMALL).all(0)
    reward = MINING * grown[0] + PROTECTORS * grown[1] + ENERGY * grown[2]
    clipped: NDArray[np.float64] = np.clip(reward + CLEARED * cleared + LOST * lost + QUIET * quiet, -1.0, 1.0)
    return clipped
