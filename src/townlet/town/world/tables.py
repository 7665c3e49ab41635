"""A compiled world: names, hashes, and the tables that the engines read.

Letters in shapes: M meters, A affordances, K actions, C cells, D steps per day, W cells of the window, R rewards,
B blocks, n entries of the group. In place of an affordance, A means "none" and A + 1 "outside the map".
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


def interface_hash(spec: WorldSpec, actions: tuple[str, ...], layout: ObservationLayout) -> str:
    """Hash of actions and observation: an agent acts as in training in every world with the same hash.

    The names of places and meters are part of it, because the columns of an observation stand for them.
    """
    interface = {
        "actions": list(actions),
        "affordances": [a.name for a in spec.affordances],
        "meters": [m.name for m in spec.meters],
        "cells": list(spec.map.size) if numbers_cells(layout) else [],
        "observation": [[b.name, list(b.shape), b.low, b.high] for b in layout],
    }
    return _digest(interface)


def numbers_cells(layout: ObservationLayout) -> bool:
    """Whether an observation has a column for each cell, so that its meaning depends on the size of the map."""
    return "position_onehot" in layout or "map_typed" in layout


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
# Types of the fields of `Tables`, by rank; `Any`, since each engine has its own type of array and number.
Int = Any
Float = Any
IntVector = Any
FloatVector = Any
IntMatrix = Any
FloatMatrix = Any

# Float32 sums drift by up to 8e-6: in every engine, a value within this tolerance of a limit counts as equal to it.
TOLERANCE: Final = 5e-5

REWARDS: Final = ("milestone", "survival", "vitality", "potential", "meter_bonus", "proximity")
BLOCK_KIND: Final = {name: kind for kind, name in enumerate(BLOCKS)}
REWARD_KIND: Final = {name: kind for kind, name in enumerate(REWARDS)}


class Tables(NamedTuple):
    """Every number the rules read. The annotations give the type of each field for Numba."""

    # map and actions
    next_cell: IntMatrix  # [K, C] target cell; INTERACT and WAIT stay
    passable: IntMatrix  # [K, C] 0 where the mask forbids a move into the boundary
    action_cost: FloatMatrix  # [K, M]
    start_cells: IntVector  # [S] cells a row may start on
    kind_at: IntMatrix  # [1, C + 1] affordance at each cell of the fixed layout; the last entry is "outside"
    cell_of: IntMatrix  # [1, A] cell of each affordance
    window_cell: IntMatrix  # [C, W] cells seen around a cell; C is outside
    position: FloatMatrix  # [C, dimensions] coordinates / (size − 1)
    # meters
    start: FloatVector  # [M] initial value
    decay: FloatVector  # [M] loss per step
    modulation_source: IntVector  # [n]
    modulation_target: IntVector  # [n]
    modulation_base: FloatVector  # [n]
    modulation_range: FloatVector  # [n]
    cascade_source: IntVector  # [n]
    cascade_target: IntVector  # [n]
    cascade_threshold: FloatVector  # [n]
    cascade_slope: FloatVector  # [n] strength / threshold
    lethal: IntVector  # [n]
    # affordances; entry A is "none"
    ticks: IntVector  # [A + 1] ticks of a session; 1 without time of day
    tick_share: FloatVector  # [A + 1] 1 / ticks
    price: FloatVector  # [A + 1] per tick
    open_at: IntMatrix  # [A + 1, D]
    effect: FloatMatrix  # [2 (A + 1), M] at 2a: a tick of affordance a other than the last; at 2a + 1: the last
    # time
    clock: FloatMatrix  # [D, 1 or 2] as observed
    # rewards
    reward_kind: IntVector  # [R] index in REWARDS
    reward_weight: FloatVector  # [R]
    vitality: IntVector  # [n] meters of the product
    bonus_above: FloatVector  # [M] this and the next three: `meter_bonus`
    bonus_reward: FloatVector  # [M]
    bonus_below: FloatVector  # [M]
    bonus_penalty: FloatVector  # [M]
    restores: IntMatrix  # [M, A] 1 for the affordances that raise a meter most (`proximity`)
    distance: IntMatrix  # [C, C] in moves; [1, 1] without the reward `proximity`
    # observation
    block_kind: IntVector  # [B] index in BLOCKS
    block_start: IntVector  # [B]
    # single numbers
    first_interact: Int  # actions from here up to WAIT, exclusive, interact
    wait: Int  # the last action
    n_affordances: Int  # A
    currency: Int  # index of the meter that pays
    day: Int  # D
    start_hour: Int
    random_hour: Int  # 0 or 1
    shuffled: Int  # 0 or 1
    mask_unaffordable: Int  # 0 or 1
    max_steps: Int
    uses_potential: Int  # 0 or 1
    milestone_shift: Int  # 1 to pay at ages 1, 11, 21, …, 0 at 10, 20, …
    milestone_every: Int
    milestone_big_every: Int
    milestone_bonus: Float
    milestone_big_bonus: Float
    milestone_death: Float
    survival_decay: Float
    survival_move: Float
    survival_baseline: Float  # used if survival_decay and survival_move are 0
    potential_gamma: Float
    proximity_below: Float
    proximity_scale: Float
    distance_scale: Float  # 1 / longest distance, for `proximity`
    age_share: Float  # 1 / max_steps
    tolerance: Float


@dataclass(frozen=True, eq=False)
class World:
    """A validated and compiled world; immutable.

    Attributes:
        name: its name.
        spec: the validated content of the world file.
        tables: the world as arrays, for the engines.
        layout: the parts of an observation.
        actions: the names of the actions.
        content_hash: hash of everything that determines the simulation.
        interface_hash: hash of observations and actions with the names that they stand for; see `interface_hash`.
        warnings: what `townlet world check` warns about.
    """

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
        """The names of the meters."""
        return tuple(m.name for m in self.spec.meters)

    @property
    def affordances(self) -> tuple[str, ...]:
        """The names of the affordances."""
        return tuple(a.name for a in self.spec.affordances)

    @property
    def rewards(self) -> tuple[str, ...]:
        """The names of the reward components."""
        return tuple(r.name for r in self.spec.rewards)

    @property
    def size(self) -> tuple[int, ...]:
        """Cells along x, y, z; empty without a map."""
        return self.spec.map.size if self.spec.map.kind == "grid" else ()

    def __repr__(self) -> str:
        parts = f"{len(self.meters)} meters, {len(self.affordances)} affordances, {self.content_hash[:12]}"
        return f"World({self.name!r}, {parts})"
