"""Rule 11, a new episode: drawn from a counter-based hash of (key, row, episode, draw).

No generator state exists: both engines give the same towns, and a checkpoint needs only the counters.
"""

from __future__ import annotations

from typing import Any, Final

from townlet.town.exploring_starts import LOW, SHARE, SPAN
from townlet.town.ops import fill, real, rule, unit, where, wide
from townlet.town.rules import active

WORD: Final = 0xFFFFFFFF
CELL: Final = 0
HOUR: Final = 1
EXPLORES: Final = 2  # whether this episode begins elsewhere
PLACE: Final = 16  # and on: one draw for each affordance
METER: Final = 4096  # and on: one draw for each meter, far behind the places


@rule
def scramble(x: Any) -> Any:
    """A bijection of 32-bit words in which every bit of x moves half of the result's."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & WORD
    x = ((x ^ (x >> 15)) * 0x846CA68B) & WORD
    return x ^ (x >> 16)


@rule
def draw(key: Any, row: Any, episode: Any, index: Any) -> Any:
    """32 random bits for this draw of this episode of this row."""
    x = scramble((key & WORD) ^ scramble((key >> 32) & WORD))
    x = scramble((x + wide(row)) & WORD)
    x = scramble((x + wide(episode) * 0x9E3779B9) & WORD)
    return scramble((x + index * 0x85EBCA6B) & WORD)


@rule
def below(bits: Any, n: Any) -> Any:
    """A whole number in [0, n) from 32 random bits."""
    return (bits * n) >> 32


@rule
def fraction(bits: Any) -> Any:
    """A number in [0, 1) from 32 random bits: the upper 24, which float32 holds exactly."""
    return real(bits >> 8) * real(2.0**-24)


@rule
def begin(s: Any, key: Any, w: Any) -> None:
    """The first moment of an episode: fresh meters, a random cell, the morning."""
    choice = below(draw(key, s.row, s.episode, CELL), len(w.start_cells))
    s.cell = w.start_cells[choice]
    s.hour = fill(s.hour, w.start_hour)
    if w.random_hour:
        s.hour = below(draw(key, s.row, s.episode, HOUR), w.day)
    s.age = fill(s.age, 0)
    s.progress = fill(s.progress, 0)
    s.using = fill(s.using, w.none)
    for m in range(len(s.meters)):
        s.meters[m] = fill(s.meters[m], w.start[m])


@rule
def explore(s: Any, key: Any, starts: Any) -> None:
    """Exploring starts, after `begin`: in a share of the episodes every meter in play begins anywhere in its range."""
    elsewhere = fraction(draw(key, s.row, s.episode, EXPLORES)) < starts[SHARE][0]
    for m in range(len(s.meters)):
        value = unit(starts[LOW][m] + starts[SPAN][m] * fraction(draw(key, s.row, s.episode, METER + m)))
        s.meters[m] = where(elsewhere & (active(s, m) > real(0.5)), value, s.meters[m])


@rule
def shuffle(places: Any, picks: Any, s: Any, key: Any, cells: Any, w: Any) -> None:
    """A new cell for every affordance: Fisher–Yates that remembers only its swaps.

    Step i swaps places i and picks[i]; what lies at a place is found by walking back through the swaps.
    """
    for i in range(w.none):
        place = below(draw(key, s.row, s.episode, PLACE + i), cells - i) + i
        picks[i] = place
        for k in range(i - 1, -1, -1):
            place = where(place == picks[k], k, place)
        places[i] = place
