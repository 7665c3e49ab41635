"""Rule 12 on the CPU: observation and mask of one row, written in place.

A one-hot is changed at two places instead of written whole; only what can differ from the last step
is touched, unless the row is `fresh` (a new episode, a restored state).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from townlet.town.rules import allowed
from townlet.town.world.tables import BLOCK_KIND

POSITION_ONEHOT: Final = BLOCK_KIND["position_onehot"]
POSITION: Final = BLOCK_KIND["position"]
WINDOW: Final = BLOCK_KIND["window"]
WINDOW_TYPED: Final = BLOCK_KIND["window_typed"]
MAP_TYPED: Final = BLOCK_KIND["map_typed"]
METERS: Final = BLOCK_KIND["meters"]
AFFORDANCE_HERE: Final = BLOCK_KIND["affordance_here"]
CLOCK: Final = BLOCK_KIND["clock"]
PROGRESS: Final = BLOCK_KIND["progress"]
AGE: Final = BLOCK_KIND["age"]

ZERO: Final = np.float32(0.0)
ONE: Final = np.float32(1.0)


@njit
def write_kinds(obs, row, start, kinds, kind_at, town, cells, first):  # type: ignore[no-untyped-def]
    """One-hots of `kinds` values for a list of cells; cells outside the map stay all zero."""
    n = cells.shape[1]
    obs[row, start : start + n * kinds] = ZERO
    for k in range(n):
        kind = kind_at[town, cells[first, k]]
        if kind < kinds:
            obs[row, start + k * kinds + kind] = ONE


@njit
def write_map(obs, row, start, kinds, kind_at, town):  # type: ignore[no-untyped-def]
    """The whole layout as one-hots."""
    n = kind_at.shape[1] - 1
    obs[row, start : start + n * kinds] = ZERO
    for cell in range(n):
        obs[row, start + cell * kinds + kind_at[town, cell]] = ONE


@njit(forceinline=True)
def write_obs(obs, row, s, old_cell, old_here, fresh, kind_at, town, w):  # type: ignore[no-untyped-def]
    """All blocks of one row, in the world's order."""
    for b in range(len(w.block_kind)):
        kind, start = w.block_kind[b], w.block_start[b]
        if kind == METERS:
            for m in range(len(s.meters)):
                obs[row, start + m] = s.meters[m]
        elif kind == POSITION_ONEHOT:
            obs[row, start + old_cell] = ZERO
            obs[row, start + s.cell] = ONE
        elif kind == AFFORDANCE_HERE:
            obs[row, start + old_here] = ZERO
            obs[row, start + s.here] = ONE
        elif kind == POSITION:
            for d in range(w.position.shape[1]):
                obs[row, start + d] = w.position[s.cell, d]
        elif kind == WINDOW:
            for k in range(w.window_cell.shape[1]):
                obs[row, start + k] = np.float32(kind_at[town, w.window_cell[s.cell, k]] < w.none)
        elif kind == CLOCK:
            for d in range(w.clock.shape[1]):
                obs[row, start + d] = w.clock[s.hour, d]
        elif kind == PROGRESS:
            obs[row, start] = np.float32(s.progress) * w.tick_share[s.using]
        elif kind == AGE:
            obs[row, start] = np.float32(s.age) * w.age_share
        elif kind == WINDOW_TYPED:
            write_kinds(obs, row, start, w.none + 1, kind_at, town, w.window_cell, s.cell)
        elif kind == MAP_TYPED and fresh:
            write_map(obs, row, start, w.none + 1, kind_at, town)


@njit(forceinline=True)
def write_mask(mask, row, s, kind_at, town, w):  # type: ignore[no-untyped-def]
    """Which actions make sense now."""
    for action in range(mask.shape[1]):
        mask[row, action] = allowed(s, action, kind_at, town, w)


@njit
def write_fresh(obs, mask, row, s, kind_at, town, w):  # type: ignore[no-untyped-def]
    """Observation and mask of a row of which nothing is written yet."""
    obs[row] = ZERO
    write_obs(obs, row, s, s.cell, s.here, True, kind_at, town, w)
    write_mask(mask, row, s, kind_at, town, w)
