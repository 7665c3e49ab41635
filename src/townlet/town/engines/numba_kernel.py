"""The kernels of the CPU engine: each runs over a range of rows and releases Python's lock.

Compiled code is kept on disk in a folder named after everything that went into it, since Numba itself
looks only at the file of the kernel and would run old rules after an edit elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numba
from numba import njit

import townlet.town
import townlet.town.world.tables
from townlet.town.engines import numba_ops  # noqa: F401  (teaches Numba the rule book's operations)
from townlet.town.engines.numba_observe import write_fresh, write_mask, write_obs
from townlet.town.engines.prefetch import prefetch
from townlet.town.reset import begin, explore, shuffle
from townlet.town.rules import foretell
from townlet.town.step import live


@cache
def cache_folder() -> Path:
    """Where compiled kernels are kept: TOWNLET_CACHE, else the user's cache folder, else a temporary one."""
    digest = hashlib.sha256(f"{version('numba')} {platform.python_version()}".encode())
    sources = [*Path(townlet.town.__file__).parent.rglob("*.py"), Path(townlet.town.world.tables.__file__)]
    for source in sorted(sources):
        digest.update(source.read_bytes())
    asked = os.environ.get("TOWNLET_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "townlet"
    spare = Path(tempfile.gettempdir()) / f"townlet-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"
    for root in [Path(asked)] if asked else [home, spare]:
        folder = root / f"numba-{digest.hexdigest()[:16]}"
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(exist_ok=True)
        except OSError:
            continue
        # Compiled code is run: it must not lie where others may write.
        ours = not hasattr(os, "getuid") or (root.stat().st_uid == os.getuid() and not root.is_symlink())
        if ours and os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="townlet-numba-"))


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call, or read what an earlier process compiled."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_folder())
    try:
        compiled: Callable[..., Any] = njit(cache=True, nogil=True, error_model="numpy")(function)
    finally:
        numba.config.CACHE_DIR = before
    return compiled


@njit
def begin_row(s, key, kind_at, cell_of, town, w):  # type: ignore[no-untyped-def]
    """11. A new episode in one row, with a new layout where the world shuffles."""
    begin(s, key, w)
    if w.shuffled:
        for a in range(w.none):
            kind_at[town, cell_of[town, a]] = w.none
        places = cell_of[town]
        shuffle(places, places.copy(), s, key, kind_at.shape[1] - 1, w)
        for a in range(w.none):
            kind_at[town, places[a]] = a
    s.here = kind_at[town, s.cell]


@kernel
def step_rows(  # type: ignore[no-untyped-def]
    state, final, kind_at, cell_of, final_kind_at, w, key, mix, autoreset, actions,
    obs, mask, reward, components, terminated, truncated, used, first, last,
):  # fmt: skip
    """One step of the rows [first, last); −1, or the row of an action that does not exist, and nothing is done.

    Of the rows that `used` has a place for it is told what they used; who does not ask hands in an empty one.
    """
    # An index out of range would read foreign memory. Looking at all rows lets all threads refuse alike.
    for row in range(len(actions)):
        if actions[row] < 0 or actions[row] >= mask.shape[1]:
            return row
    for row in range(first, min(last, len(used))):
        ended = (terminated[row] or truncated[row]) and not autoreset
        here = foretell(state[row], actions[row], kind_at, row if w.shuffled else 0, w)
        used[row] = 2 * w.none if ended else here
    for row in range(first, last):
        if (terminated[row] or truncated[row]) and not autoreset:
            reward[row] = 0.0
            components[row] = 0.0
            continue
        prefetch(obs, row)
        s = state[row]
        town = row if w.shuffled else 0
        old_cell, old_here = s.cell, s.here
        gain, dead, late = live(s, actions[row], kind_at, cell_of, town, mix, components, row, w)
        reward[row], terminated[row], truncated[row] = gain, dead, late
        fresh = (dead or late) and autoreset
        if fresh:
            final[row] = s
            if w.shuffled:
                final_kind_at[row] = kind_at[row]
            s.episode += 1
            begin_row(s, key, kind_at, cell_of, town, w)
        write_obs(obs, row, s, old_cell, old_here, fresh, kind_at, town, w)
        write_mask(mask, row, s, kind_at, town, w)
    return -1


@kernel
def begin_rows(state, kind_at, cell_of, w, key, rows, obs, mask):  # type: ignore[no-untyped-def]
    """The episode of some rows from its first moment."""
    for row in rows:
        town = row if w.shuffled else 0
        begin_row(state[row], key, kind_at, cell_of, town, w)
        write_fresh(obs, mask, row, state[row], kind_at, town, w)


@kernel
def explore_rows(state, kind_at, w, starts, key, rows, obs, mask):  # type: ignore[no-untyped-def]
    """Exploring starts of rows whose episode has just begun; apart, so that nobody else pays for them."""
    for row in rows:
        explore(state[row], key, starts)
        write_fresh(obs, mask, row, state[row], kind_at, row if w.shuffled else 0, w)


@kernel
def observe_rows(state, kind_at, w, rows, obs, mask):  # type: ignore[no-untyped-def]
    """Observation and mask of some rows into obs [len(rows), D], from nothing."""
    for k in range(len(rows)):
        s = state[rows[k]]
        write_fresh(obs, mask, k, s, kind_at, rows[k] if w.shuffled else 0, w)
