"""The observation (rule 12 of a step, see `rules.py`): one function per block, which returns entry k of the block.

The Numba engine calls these functions with the values of one row and one index k, the torch engine with columns [N, 1]
and all k at once. Functions of one-hot blocks return a class index, which the engine encodes as a one-hot vector; an
index beyond the last class gives all zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from townlet.town.ops import rule, take, to_float
from townlet.town.state import Row, Value
from townlet.town.world.schema import BLOCKS
from townlet.town.world.tables import Tables


@rule
def meters(s: Row, k: Value, kind_at: Value, layout_index: Value, w: Tables) -> Value:
    """The meters, in the world's order."""
    return take(s.meters, k)


@rule
def position(s: Row, k: Value, kind_at: Value, layout_index: Value, w: Tables) -> Value:
    """Coordinates / (size − 1)."""
    return w.position[s.cell, k]


@rule
def window(s: Row, k: Value, kind_at: Value, layout_index: Value, w: Tables) -> Value:
    """1 for each cell around the agent that holds an affordance, 0 for the others."""
    return to_float(window_typed(s, k, kind_at, layout_index, w) < w.n_affordances)


@rule
def clock(s: Row, k: Value, kind_at: Value, layout_index: Value, w: Tables) -> Value:
    """hour / day, or sine and cosine of that fraction of a full turn."""
    return w.clock[s.hour, k]


@rule
def progress(s: Row, k: Value, kind_at: Value, layout_index: Value, w: Tables) -> Value:
    """The completed fraction of the current session."""
    return to_float(s.progress) * w.tick_share[s.using]


@rule
def age(s: Row, k: Value, kind_at: Value, layout_index: Value, w: Tables) -> Value:
    """The elapsed fraction of the episode."""
    return to_float(s.age) * w.age_share


@rule
def position_onehot(s: Row, k: Value, kind_at: Value, layout_index: Value, w: Tables) -> Value:
    """The cell of the agent."""
    return s.cell


@rule
def affordance_here(s: Row, k: Value, kind_at: Value, layout_index: Value, w: Tables) -> Value:
    """The affordance at the agent's cell; the last class is "none"."""
    return s.here


@rule
def window_typed(s: Row, k: Value, kind_at: Value, layout_index: Value, w: Tables) -> Value:
    """The affordance on each cell around the agent; for a cell outside the map, an index beyond the last class."""
    return kind_at[layout_index, w.window_cell[s.cell, k]]


@rule
def map_typed(s: Row, k: Value, kind_at: Value, layout_index: Value, w: Tables) -> Value:
    """The affordance on each cell of the map."""
    return kind_at[layout_index, k]


Block = Callable[[Row, Value, Value, Value, Tables], Value]
VALUES: Final[dict[str, Block]] = {
    "meters": meters, "position": position, "window": window, "clock": clock, "progress": progress, "age": age,
}  # fmt: skip
ONE_HOT: Final[dict[str, Block]] = {
    "position_onehot": position_onehot, "affordance_here": affordance_here,
    "window_typed": window_typed, "map_typed": map_typed,
}  # fmt: skip
assert {*VALUES, *ONE_HOT} == set(BLOCKS)
