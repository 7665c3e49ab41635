"""Kernels of the Numba engine: loops over rows that write state, observation and mask in place.

Only values that can have changed since the last step are written (a one-hot at its old and its new index), unless the
row is `fresh` (a new episode, a restored state, or another array than that of the last step).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from townlet.jit import kernel
from townlet.town import observe
from townlet.town.engines.numba_lowering import prefetch  # the module also defines the rule book's operations for Numba
from townlet.town.reset import randomize_start, reset_row, shuffle_layout
from townlet.town.rules import action_is_valid, predict_use
from townlet.town.step import step_row
from townlet.town.world.tables import BLOCK_KIND

# The order of `BLOCKS`.
(
    POSITION_ONEHOT, POSITION, WINDOW, WINDOW_TYPED, MAP_TYPED, METERS, AFFORDANCE_HERE, CLOCK, PROGRESS, AGE,
) = range(len(BLOCK_KIND))  # fmt: skip

ZERO: Final = np.float32(0.0)
ONE: Final = np.float32(1.0)


@njit(forceinline=True)
def write_obs(obs, row, s, old_cell, old_here, fresh, kind_at, layout_index, w):  # type: ignore[no-untyped-def]
    """12. Write all blocks of the observation of one row, in the world's order."""
    for b in range(len(w.block_kind)):
        kind, start = w.block_kind[b], w.block_start[b]
        if kind == METERS:
            for k in range(len(s.meters)):
                obs[row, start + k] = observe.meters(s, k, kind_at, layout_index, w)
        elif kind == POSITION_ONEHOT:
            obs[row, start + old_cell] = ZERO
            obs[row, start + observe.position_onehot(s, 0, kind_at, layout_index, w)] = ONE
        elif kind == AFFORDANCE_HERE:
            obs[row, start + old_here] = ZERO
            obs[row, start + observe.affordance_here(s, 0, kind_at, layout_index, w)] = ONE
        elif kind == POSITION:
            for k in range(w.position.shape[1]):
                obs[row, start + k] = observe.position(s, k, kind_at, layout_index, w)
        elif kind == WINDOW:
            for k in range(w.window_cell.shape[1]):
                obs[row, start + k] = observe.window(s, k, kind_at, layout_index, w)
        elif kind == CLOCK:
            for k in range(w.clock.shape[1]):
                obs[row, start + k] = observe.clock(s, k, kind_at, layout_index, w)
        elif kind == PROGRESS:
            obs[row, start] = observe.progress(s, 0, kind_at, layout_index, w)
        elif kind == AGE:
            obs[row, start] = observe.age(s, 0, kind_at, layout_index, w)
        elif kind == WINDOW_TYPED:
            write_window(obs, row, start, s, kind_at, layout_index, w)
        elif kind == MAP_TYPED and fresh:
            write_map(obs, row, start, s, kind_at, layout_index, w)


@njit
def write_window(obs, row, start, s, kind_at, layout_index, w):  # type: ignore[no-untyped-def]
    """Write the one-hots of the cells in the window; a cell outside the map is all zeros."""
    n, classes = w.window_cell.shape[1], w.n_affordances + 1
    obs[row, start : start + n * classes] = ZERO
    for k in range(n):
        kind = observe.window_typed(s, k, kind_at, layout_index, w)
        if kind < classes:
            obs[row, start + k * classes + kind] = ONE


@njit
def write_map(obs, row, start, s, kind_at, layout_index, w):  # type: ignore[no-untyped-def]
    """Write the one-hots of all cells."""
    n, classes = kind_at.shape[1] - 1, w.n_affordances + 1
    obs[row, start : start + n * classes] = ZERO
    for k in range(n):
        obs[row, start + k * classes + observe.map_typed(s, k, kind_at, layout_index, w)] = ONE


@njit(forceinline=True)
def write_mask(mask, row, s, kind_at, layout_index, w):  # type: ignore[no-untyped-def]
    """Write the mask of valid actions of one row."""
    for action in range(mask.shape[1]):
        mask[row, action] = action_is_valid(s, action, kind_at, layout_index, w)


@njit
def write_fresh(obs, mask, row, s, kind_at, layout_index, w):  # type: ignore[no-untyped-def]
    """Write observation and mask of a row from scratch, whatever the previous observation was."""
    obs[row] = ZERO
    write_obs(obs, row, s, s.cell, s.here, True, kind_at, layout_index, w)
    write_mask(mask, row, s, kind_at, layout_index, w)


@njit  # not inlined: a copy of the state in the loop over rows would make all of its steps 10% slower
def keep_final(final, final_kind_at, state, kind_at, row, w):  # type: ignore[no-untyped-def]
    """Keep the last state of an episode for `final_obs` and `final_state`."""
    final[row] = state[row]
    if w.shuffled:
        final_kind_at[row] = kind_at[row]


@njit
def start_episode(s, key, kind_at, cell_of, layout_index, w):  # type: ignore[no-untyped-def]
    """11. Start a new episode in one row, with a new layout if the world shuffles it."""
    reset_row(s, key, w)
    if w.shuffled:
        for a in range(w.n_affordances):
            kind_at[layout_index, cell_of[layout_index, a]] = w.n_affordances
        cells = cell_of[layout_index]
        shuffle_layout(cells, cells.copy(), s, key, kind_at.shape[1] - 1, w)
        for a in range(w.n_affordances):
            kind_at[layout_index, cells[a]] = a
    s.here = kind_at[layout_index, s.cell]


@kernel
def step_rows(  # type: ignore[no-untyped-def]
    state, final, kind_at, cell_of, final_kind_at, w, key, mix, autoreset, reset_ended, actions,
    obs, mask, reward, components, terminated, truncated, used, new_obs, first, last,
):  # fmt: skip
    """Step the rows [first, last). Returns −1, or the row of an invalid action, in which case no row is stepped.

    `used` receives what the first len(used) rows use (`rules.predict_use`) and may be empty. `new_obs` tells that `obs`
    does not hold the observations of the last step. Without autoreset, a row that had ended stays as it is, or starts
    its next episode if `reset_ended`.
    """
    # An invalid action would read memory of other objects. Every thread checks all rows, so all return the same.
    for row in range(len(actions)):
        if actions[row] < 0 or actions[row] >= mask.shape[1]:
            return row
    for row in range(first, min(last, len(used))):
        ended = (terminated[row] or truncated[row]) and not autoreset
        effect = predict_use(state[row], actions[row], kind_at, row if w.shuffled else 0, w)
        used[row] = 2 * w.n_affordances if ended else effect
    for row in range(first, last):
        prefetch(obs, row)
        s = state[row]
        layout_index = row if w.shuffled else 0
        old_cell, old_here = s.cell, s.here
        if (terminated[row] or truncated[row]) and not autoreset:
            reward[row] = 0.0
            components[row] = 0.0
            restarts = reset_ended
            if restarts:
                terminated[row] = truncated[row] = False
        else:
            action = actions[row]
            total, dead, out_of_time = step_row(s, action, kind_at, cell_of, layout_index, mix, components, row, w)
            reward[row], terminated[row], truncated[row] = total, dead, out_of_time
            restarts = (dead or out_of_time) and autoreset
            if restarts:
                keep_final(final, final_kind_at, state, kind_at, row, w)
        if restarts:
            s.episode += 1
            start_episode(s, key, kind_at, cell_of, layout_index, w)
        if new_obs:
            for k in range(obs.shape[1]):
                obs[row, k] = ZERO
        write_obs(obs, row, s, old_cell, old_here, restarts or new_obs, kind_at, layout_index, w)
        write_mask(mask, row, s, kind_at, layout_index, w)
    return -1


@kernel
def reset_rows(state, kind_at, cell_of, w, key, rows, obs, mask):  # type: ignore[no-untyped-def]
    """Put some rows into the first state of their current episode."""
    for row in rows:
        layout_index = row if w.shuffled else 0
        start_episode(state[row], key, kind_at, cell_of, layout_index, w)
        write_fresh(obs, mask, row, state[row], kind_at, layout_index, w)


@kernel
def randomize_rows(state, kind_at, w, starts, key, rows, obs, mask):  # type: ignore[no-untyped-def]
    """Apply exploring starts to rows that were just reset; a separate kernel, so that it costs other runs nothing."""
    for row in rows:
        randomize_start(state[row], key, starts)
        write_fresh(obs, mask, row, state[row], kind_at, row if w.shuffled else 0, w)


@kernel
def find_causes(state, w, rows, causes):  # type: ignore[no-untyped-def]
    """Why the episodes of some rows ended, in causes [len(rows)]: the codes of `state.cause_codes`."""
    for k in range(len(rows)):
        causes[k] = len(w.lethal)
        for m in range(len(w.lethal)):
            if state[rows[k]].meters[w.lethal[m]] < w.tolerance:
                causes[k] = m
                break


@kernel
def observe_rows(state, kind_at, w, rows, obs, mask):  # type: ignore[no-untyped-def]
    """Observation and mask of some rows, written from scratch into obs [len(rows), D]."""
    for k in range(len(rows)):
        s = state[rows[k]]
        write_fresh(obs, mask, k, s, kind_at, rows[k] if w.shuffled else 0, w)
