"""Rule 11, the start of an episode. Random numbers are a hash of (key, row, episode, draw).

There is no generator state: both engines draw the same episodes, and a checkpoint needs only the counters.
"""

from __future__ import annotations

from typing import Final

from townlet.town.ops import clamp01, fill, rule, to_float, to_int64, where
from townlet.town.rules import active_flag
from townlet.town.state import FRACTION, LOW, SPAN, Row, Value
from townlet.town.world.tables import Tables

MASK32: Final = 0xFFFFFFFF
# Each random number of an episode has its own draw number.
CELL: Final = 0
HOUR: Final = 1
EXPLORES: Final = 2  # whether the episode has an exploring start
PLACE: Final = 16  # the first of A draws, one per affordance
METER: Final = 4096  # the first of M draws, one per meter; beyond those of the affordances


@rule
def hash32(x: Value) -> Value:
    """A bijective hash of 32-bit words: flipping one bit of x flips about half of the result's bits."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & MASK32
    x = ((x ^ (x >> 15)) * 0x846CA68B) & MASK32
    return x ^ (x >> 16)


@rule
def random_bits(key: Value, row: Value, episode: Value, draw: Value) -> Value:
    """32 random bits for one draw of one episode of one row."""
    x = hash32((key & MASK32) ^ hash32((key >> 32) & MASK32))
    x = hash32((x + to_int64(row)) & MASK32)
    x = hash32((x + to_int64(episode) * 0x9E3779B9) & MASK32)
    return hash32((x + draw * 0x85EBCA6B) & MASK32)


@rule
def random_below(bits: Value, n: Value) -> Value:
    """An integer in [0, n) from 32 random bits."""
    return (bits * n) >> 32


@rule
def random_unit(bits: Value) -> Value:
    """A number in [0, 1) from the upper 24 of 32 random bits, which float32 holds exactly."""
    return to_float(bits >> 8) * to_float(2.0**-24)


@rule
def reset_row(s: Row, key: Value, w: Tables) -> None:
    """11. The first state of an episode: meters, cell and hour. `here` follows once the engine has the layout."""
    choice = random_below(random_bits(key, s.row, s.episode, CELL), len(w.start_cells))
    s.cell = w.start_cells[choice]
    s.hour = fill(s.hour, w.start_hour)
    if w.random_hour:
        s.hour = random_below(random_bits(key, s.row, s.episode, HOUR), w.day)
    s.age = fill(s.age, 0)
    s.progress = fill(s.progress, 0)
    s.using = fill(s.using, w.n_affordances)
    for m in range(len(s.meters)):
        s.meters[m] = fill(s.meters[m], w.start[m])


@rule
def randomize_start(s: Row, key: Value, starts: Value) -> None:
    """Exploring starts, after `reset_row`: in a fraction of episodes, draw every active meter from its range."""
    explores = random_unit(random_bits(key, s.row, s.episode, EXPLORES)) < starts[FRACTION][0]
    for m in range(len(s.meters)):
        value = clamp01(starts[LOW][m] + starts[SPAN][m] * random_unit(random_bits(key, s.row, s.episode, METER + m)))
        s.meters[m] = where(explores & (active_flag(s, m) > to_float(0.5)), value, s.meters[m])


@rule
def shuffle_layout(places: Value, picks: Value, s: Row, key: Value, cells: Value, w: Tables) -> None:
    """Draw one of `cells` cells for each affordance into `places`: a Fisher–Yates shuffle that stores only its swaps.

    Step i swaps the cells at i and picks[i]; undoing the swaps in reverse order finds the cell at a position.
    """
    for i in range(w.n_affordances):
        place = random_below(random_bits(key, s.row, s.episode, PLACE + i), cells - i) + i
        picks[i] = place
        for k in range(i - 1, -1, -1):
            place = where(place == picks[k], k, place)
        places[i] = place
