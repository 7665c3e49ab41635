"""The map and the actions: 20 × 20 chunks, two types of parasite, and tables of distances and reach."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

SIDE: Final = 20
CHUNKS: Final = SIDE * SIDE
TYPES: Final = ("energy", "combat")
ENERGY, COMBAT = range(2)  # indices into TYPES
# Columns with counts per chunk.
COUNTS: Final = ("present", "mining", "protectors", "energy_start", "energy_end", "combat_start", "combat_end")
ACTIONS: Final = len(TYPES) * CHUNKS  # an action is type index · CHUNKS + chunk
COSTS: Final = (15.0, 25.0)  # price of a parasite of each type
DIAGONAL: Final = 26.87  # distance from corner to corner, in chunks


def read_only(table: NDArray[Any]) -> NDArray[Any]:
    table.flags.writeable = False
    return table


Z, X = np.divmod(np.arange(CHUNKS), SIDE)  # coordinates of each chunk
DISTANCE: Final[NDArray[np.float64]] = read_only(np.hypot(X[:, None] - X, Z[:, None] - Z))  # [from, to], in chunks


class ReachTables(NamedTuple):
    """Interaction of a unit, by its chunk, with a parasite, by its chunk [400, 400] or by its action [400, 800]."""

    survival: NDArray[np.float64]  # by chunk: probability that the parasite survives this protector
    workers: NDArray[np.float32]  # by action: 1 if the parasite disturbs this worker
    # By action: −1 if this protector shields workers from an energy parasite, 1 if a combat parasite disturbs it.
    protectors: NDArray[np.float32]


@lru_cache(maxsize=8)
def reach_tables(
    kill_range: float, threat_reach: float, decay: float, worker_reach: float, protector_reach: float,
    combat_reach: float,
) -> ReachTables:  # fmt: skip
    """The tables for these distances. Those with small integers are float32, whose sums are exact in any order."""
    threat = np.where(kill_range > DISTANCE, 1.0, np.exp(-decay * np.maximum(DISTANCE - kill_range, 0.0)))
    threat[threat_reach <= DISTANCE] = 0.0
    in_combat_reach = combat_reach > DISTANCE
    return ReachTables(
        read_only(1 - threat),
        read_only(np.hstack((worker_reach > DISTANCE, in_combat_reach)).astype(np.float32)),
        read_only(np.hstack((-1.0 * (protector_reach > DISTANCE), in_combat_reach)).astype(np.float32)),
    )
