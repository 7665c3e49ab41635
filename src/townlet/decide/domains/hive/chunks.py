"""The map and the actions: 20 × 20 chunks, two types of parasite, and tables of what reaches from where to where."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

SIDE: Final = 20
CHUNKS: Final = SIDE * SIDE
TYPES: Final = ("energy", "combat")
# Columns that hold how many of something are in each chunk.
COUNTS: Final = ("present", "mining", "protectors", "energy_start", "energy_end", "combat_start", "combat_end")
ENERGY, COMBAT = range(2)
ACTIONS: Final = len(TYPES) * CHUNKS  # an action is type · 400 + chunk
COSTS: Final = (15.0, 25.0)  # of an energy and a combat parasite
FAR: Final = 26.87  # from corner to corner
NEVER: Final = -1e18  # when a parasite was last spawned where none ever was


def frozen(table: NDArray[Any]) -> NDArray[Any]:
    """The same array, which nobody can change from now on."""
    table.flags.writeable = False
    return table


def _distances() -> NDArray[np.float64]:
    z, x = np.divmod(np.arange(CHUNKS), SIDE)
    return frozen(np.hypot(x[:, None] - x, z[:, None] - z))


DISTANCE: Final[NDArray[np.float64]] = _distances()  # [from, to] in chunks


class Tables(NamedTuple):
    """What somebody in one chunk means for a parasite: [400, 400] by chunk or [400, 800] by action."""

    survive: NDArray[np.float64]  # by chunk: the chance to survive this protector
    workers: NDArray[np.float32]  # by action: 1 where this worker is disturbed
    protectors: NDArray[np.float32]  # by action: −1 where this protector saves from energy, 1 where combat disturbs it


@lru_cache(maxsize=8)
def tables(
    kill_range: float,
    threat_reach: float,
    decay: float,
    worker_reach: float,
    protector_reach: float,
    combat_reach: float,
) -> Tables:
    """The tables for these ranges. Whole numbers as float32 add up exactly, in any order."""
    apart = DISTANCE
    threat = np.where(apart < kill_range, 1.0, np.exp(-decay * np.maximum(apart - kill_range, 0.0)))
    threat[apart >= threat_reach] = 0.0
    fought = apart < combat_reach
    return Tables(
        frozen(1 - threat),
        frozen(np.hstack((apart < worker_reach, fought)).astype(np.float32)),
        frozen(np.hstack((-1.0 * (apart < protector_reach), fought)).astype(np.float32)),
    )
