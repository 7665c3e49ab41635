"""A compiled world: names, hashes, and the tables that the engines read.

Letters in shapes: M meters, A affordances, K actions, C cells, D steps per day, W cells of the window, R rewards,
B blocks. Kind A means "no affordance", kind A + 1 "outside the map".
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from townlet.interfaces.layout import ObservationLayout
from townlet.town.world.schema import BLOCKS, WorldSpec

# Excluded from the hash: texts and icons do not affect the rules, so a run can resume when they change.
_IGNORED: Final[dict[str, Any]] = {"description": True} | {
    key: {"__all__": {field}}
    for key, field in {"affordances": "icon", "meters": "group", "cascades": "name", "modulations": "name"}.items()
}


def content_hash(spec: WorldSpec) -> str:
    """Hash of everything that the rules read."""
    return _digest(spec.model_dump(mode="json", exclude=_IGNORED))


def interface_hash(actions: tuple[str, ...], layout: ObservationLayout) -> str:
    """Hash of actions and observation: an agent can act in every world with the same hash."""
    blocks = [[b.name, list(b.shape), b.low, b.high] for b in layout]
    return _digest({"actions": list(actions), "observation": blocks})


def _digest(value: Any) -> str:
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """The value with −0.0 replaced by 0.0."""
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return value + 0.0 if isinstance(value, float) else value


Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
# Ranks for `Tables`; `Any`, since each engine substitutes its type of array or number.
Int = Any
Float = Any
IntRow = Any
FloatRow = Any
IntGrid = Any
FloatGrid = Any

# Float32 sums drift by up to 8e-6; a value this close to a limit counts as on it, in every engine.
TOLERANCE: Final = 5e-5

REWARDS: Final = ("milestone", "survival", "vitality", "potential", "meter_bonus", "proximity")
BLOCK_KIND: Final = {name: kind for kind, name in enumerate(BLOCKS)}
REWARD_KIND: Final = {name: kind for kind, name in enumerate(REWARDS)}


class Tables(NamedTuple):
    """Every number the rules read. The annotations give the type of each field for Numba."""

    # map and actions
    next_cell: IntGrid  # [K, C] target cell; INTERACT and WAIT stay
    passable: IntGrid  # [K, C] 0 where the mask forbids a move into the boundary
    action_cost: FloatGrid  # [K, M]
    start_cells: IntRow  # [S] cells a row may start on
    kind_at: IntGrid  # [1, C + 1] kind of each cell of the fixed layout; the last is "outside"
    cell_of: IntGrid  # [1, A] cell of each affordance
    window_cell: IntGrid  # [C, W] cells seen around a cell; C is outside
    position: FloatGrid  # [C, dimensions] coordinates / (size − 1)
    # meters
    start: FloatRow  # [M]
    decay: FloatRow  # [M]
    modulation_source: IntRow  # [n]
    modulation_target: IntRow  # [n]
    modulation_base: FloatRow  # [n]
    modulation_range: FloatRow  # [n]
    cascade_source: IntRow  # [n]
    cascade_target: IntRow  # [n]
    cascade_threshold: FloatRow  # [n]
    cascade_slope: FloatRow  # [n] strength / threshold
    lethal: IntRow  # [n]
    # affordances; row A is "none"
    ticks: IntRow  # [A + 1] of a session; 1 without time of day
    tick_share: FloatRow  # [A + 1] 1 / ticks
    price: FloatRow  # [A + 1] per tick
    open_at: IntGrid  # [A + 1, D]
    effect: FloatGrid  # [2 (A + 1), M] row 2a: a tick of affordance a other than the last; row 2a + 1: the last
    # time
    clock: FloatGrid  # [D, 1 or 2] as observed
    # rewards
    reward_kind: IntRow  # [R] index in REWARDS
    reward_weight: FloatRow  # [R]
    vitality: IntRow  # [n] meters of the product
    bonus_above: FloatRow  # [M] the next four: `meter_bonus`
    bonus_reward: FloatRow  # [M]
    bonus_below: FloatRow  # [M]
    bonus_penalty: FloatRow  # [M]
    restores: IntGrid  # [M, A] 1 for the affordances that raise a meter most (`proximity`)
    distance: IntGrid  # [C, C] in moves, for `proximity`; else [1, 1]
    # observation
    block_kind: IntRow  # [B] index in BLOCKS
    block_start: IntRow  # [B]
    # single numbers
    first_interact: Int  # actions from here to WAIT interact
    wait: Int  # the last action
    n_affordances: Int  # A
    currency: Int  # meter that pays
    day: Int  # D
    start_hour: Int
    random_hour: Int  # 0 or 1
    shuffled: Int  # 0 or 1
    mask_unaffordable: Int  # 0 or 1
    max_steps: Int
    uses_potential: Int  # 0 or 1
    milestone_every: Int
    milestone_big_every: Int
    milestone_bonus: Float
    milestone_big_bonus: Float
    milestone_death: Float
    survival_decay: Float
    survival_move: Float
    potential_gamma: Float
    proximity_below: Float
    proximity_scale: Float
    proximity_reach: Float  # 1 / longest distance
    age_share: Float  # 1 / max_steps
    tolerance: Float


@dataclass(frozen=True, eq=False)
class World:
    """A validated and compiled world; immutable."""

    name: str
    spec: WorldSpec
    tables: Tables
    layout: ObservationLayout
    actions: tuple[str, ...]
    content_hash: str
    interface_hash: str
    warnings: tuple[str, ...] = ()

    @property
    def meters(self) -> tuple[str, ...]:
        return tuple(m.name for m in self.spec.meters)

    @property
    def affordances(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.spec.affordances)

    @property
    def rewards(self) -> tuple[str, ...]:
        return tuple(r.name for r in self.spec.rewards)

    @property
    def size(self) -> tuple[int, ...]:
        """Cells along x, y, z; empty without a map."""
        return self.spec.map.size if self.spec.map.kind == "grid" else ()

    def __repr__(self) -> str:
        parts = f"{len(self.meters)} meters, {len(self.affordances)} affordances, {self.content_hash[:12]}"
        return f"World({self.name!r}, {parts})"
