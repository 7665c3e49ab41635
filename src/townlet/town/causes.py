"""Why lives end: which lethal meter is empty, or that time ran out."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from townlet.town.world.tables import World

TIME: Final = "time"


def cause_names(world: World) -> tuple[str, ...]:
    """The causes by code: the lethal meters in the world's order, then time."""
    return (*(world.meters[m] for m in world.tables.lethal), TIME)


def cause_codes(world: World, meters: NDArray[Any]) -> NDArray[np.int64]:
    """From the last meters of lives that ended [k, M]: the first lethal meter that is empty, else time [k]."""
    t = world.tables
    empty = meters[:, t.lethal] < t.tolerance
    return np.where(empty.any(axis=1), empty.argmax(axis=1), len(t.lethal))
