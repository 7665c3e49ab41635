"""What varies while a town lives, field by field: the same names in both engines, files and the page."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from townlet.world.tables import World

State = dict[str, NDArray[np.generic]]

# One row is one record; with eight meters it fills a cache line.
FIELDS: Final[dict[str, str]] = {
    "cell": "u4",
    "age": "u4",
    "episode": "i4",
    "row": "i4",  # identity in the random stream, not the place in the batch
    "active": "i4",  # bit m: meter m takes part
    "multiplier": "f4",  # of decay and modulation
    "hour": "u2",
    "progress": "u2",
    "using": "u2",
    "here": "u2",
}
SETTINGS: Final = ("multiplier", "active", "reward_mix")  # driven from outside, by a curriculum


def record(meters: int) -> np.dtype[np.void]:
    """The record of one row."""
    return np.dtype([("meters", "f4", (meters,)), *FIELDS.items()])


def fresh(world: World, rows: int) -> State:
    """Rows before their first episode: all meters active, nothing scaled."""
    t = world.tables
    towns = rows if t.shuffled else 1
    state: State = {name: np.zeros(rows, kind) for name, kind in FIELDS.items()}
    state["row"] = np.arange(rows, dtype=np.int32)
    state["active"][:] = (1 << len(world.meters)) - 1
    state["multiplier"][:] = 1.0
    state["using"][:] = t.none
    state["meters"] = np.tile(t.start, (rows, 1))
    state["reward_mix"] = np.ones((rows, len(world.rewards)), np.float32)
    state["kind_at"] = np.repeat(t.kind_at, towns, axis=0)
    state["cell_of"] = np.repeat(t.cell_of, towns, axis=0)
    return state
