"""The map as tables: where a move leads, what a window sees, how far two cells are apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from townlet.interfaces.layout import ObservationLayout
from townlet.town.world.schema import (
    Bonus,
    Milestone,
    Potential,
    Proximity,
    Survival,
    Vitality,
    WorldSpec,
    blocks,
    clock_encoding,
    layout,
    window_side,
)
from townlet.town.world.sessions import cures, is_open, session
from townlet.town.world.tables import (
    BLOCK_KIND,
    REWARD_KIND,
    TOLERANCE,
    Floats,
    Ints,
    Tables,
    World,
    content_hash,
    interface_hash,
)

# Last axis first, minus before plus.
MOVES = {1: ("LEFT", "RIGHT"), 2: ("UP", "DOWN", "LEFT", "RIGHT"), 3: ("BELOW", "ABOVE", "UP", "DOWN", "LEFT", "RIGHT")}


def flat(cell: Sequence[int], size: Sequence[int]) -> int:
    """The number of the cell x, y, z: x + X·(y + Y·z)."""
    number = 0
    for at, n in zip(reversed(cell), reversed(size), strict=True):
        number = number * n + at
    return number


def coordinates(size: Sequence[int]) -> Ints:
    """x, y, z of every cell: int [C, dimensions]."""
    cells = np.arange(int(np.prod(size)), dtype=np.int32)
    axes = []
    for n in size:
        axes.append(cells % n)
        cells = cells // n
    return np.ascontiguousarray(np.stack(axes, axis=1), dtype=np.int32)


def _number(axes: Sequence[Ints], size: Sequence[int]) -> Ints:
    number = np.zeros_like(axes[0])
    for at, n in zip(reversed(axes), reversed(size), strict=True):
        number = number * n + at
    return number


def _land(at: Ints, n: int, boundary: str) -> Ints:
    """Where a step to coordinate −1 … n lands on an axis of n cells."""
    if boundary == "wrap":
        return at % n
    if boundary == "bounce":
        at = np.where(at < 0, 1, np.where(at >= n, n - 2, at)).astype(np.int32)
    return np.clip(at, 0, n - 1)


def moves(size: Sequence[int], boundary: str) -> tuple[Ints, Ints]:
    """Next cell and passability of each move: two int [2 · dimensions, C]."""
    places = coordinates(size)
    leads, passable = [], []
    for axis in reversed(range(len(size))):
        for step in (-1, 1):
            wanted = places[:, axis] + np.int32(step)
            axes = [places[:, i] for i in range(len(size))]
            axes[axis] = _land(wanted, size[axis], boundary)
            leads.append(_number(axes, size))
            inside = (wanted >= 0) & (wanted < size[axis])
            passable.append(inside if boundary == "clamp" else np.ones_like(inside))
    return np.stack(leads).astype(np.int32), np.stack(passable).astype(np.int32)


def windows(size: Sequence[int], boundary: str, side: int) -> Ints:
    """Cells around each cell, row by row, on its own level: int [C, side or side²]; C is outside."""
    places = coordinates(size)
    seen_axes = min(len(size), 2)
    reach = np.arange(side, dtype=np.int32) - side // 2
    shape = (len(places),) + (side,) * seen_axes
    inside = np.ones(shape, dtype=bool)
    axes = []
    for axis, n in enumerate(size):
        at = places[:, axis].reshape(-1, *[1] * seen_axes)
        if axis < seen_axes:
            # x runs along the last axis of the window, y along the one before.
            at = at + reach.reshape([side if i == seen_axes - 1 - axis else 1 for i in range(seen_axes)])
            inside &= (at >= 0) & (at < n) if boundary != "wrap" else True
            at = at % n
        axes.append(np.broadcast_to(at, shape))
    cells = np.where(inside, _number(axes, size), len(places))
    return np.ascontiguousarray(cells.reshape(len(places), -1), dtype=np.int32)


def positions(size: Sequence[int]) -> Floats:
    """Coordinates / (size − 1): float [C, dimensions]; 0 along an axis of one cell."""
    longest = np.maximum(np.asarray(size) - 1, 1)
    return np.ascontiguousarray(coordinates(size) / longest, dtype=np.float32)


def steps_between(size: Sequence[int], boundary: str) -> Ints:
    """Fewest moves from each cell to each other: int [C, C].

    A bounce never shortens a way: it leads where the opposite move leads.
    """
    places = coordinates(size)
    total = np.zeros((len(places), len(places)), dtype=np.int32)
    for axis, n in enumerate(size):
        apart = np.abs(places[:, None, axis] - places[None, :, axis])
        total += np.minimum(apart, n - apart) if boundary == "wrap" else apart
    return total


R = TypeVar("R", Milestone, Survival, Vitality, Potential, Proximity)


def compile_world(name: str, spec: WorldSpec, warnings: Sequence[str] = ()) -> World:
    """The compiled world; the spec must have passed the checks of sense."""
    seen = layout(spec)
    acts = actions(spec)
    tables = Tables(
        **_map(spec),
        **_meters(spec),
        **_affordances(spec),
        **_time(spec),
        **_rewards(spec),
        **_observation(spec, seen),
        tolerance=TOLERANCE,
    )
    return World(name, spec, tables, seen, acts, content_hash(spec), interface_hash(acts, seen), tuple(warnings))


def actions(spec: WorldSpec) -> tuple[str, ...]:
    """Names of the actions in order: moves, INTERACT, WAIT; without a map one INTERACT per affordance."""
    if spec.map.kind == "aspatial":
        return (*(f"INTERACT {a.name}" for a in spec.affordances), "WAIT")
    return (*MOVES[len(spec.map.size)], "INTERACT", "WAIT")


def _ints(values: ArrayLike) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int32)


def _floats(values: ArrayLike) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float32)


def _map(spec: WorldSpec) -> dict[str, Any]:
    ground = _no_ground(spec) if spec.map.kind == "aspatial" else _ground(spec)
    names = actions(spec)
    cost = np.zeros((len(names), len(spec.meters)))
    for k, action in enumerate(names):
        if action == "WAIT":
            cost[k] = [m.wait for m in spec.meters]
        elif not action.startswith("INTERACT"):
            cost[k] = [m.move for m in spec.meters]
    first = next(k for k, action in enumerate(names) if action.startswith("INTERACT"))
    return ground | {"first_interact": first, "wait": len(names) - 1, "action_cost": _floats(cost)}


def _ground(spec: WorldSpec) -> dict[str, Any]:
    size, boundary, none = spec.map.size, spec.map.boundary, len(spec.affordances)
    leads, passable = moves(size, boundary)
    cells = leads.shape[1]
    stay = np.arange(cells, dtype=np.int32)
    if spec.map.layout == "fixed":
        cell_of = _ints([[flat(a.cell or (), size) for a in spec.affordances]])
    else:
        cell_of = _ints([range(none)])  # a legal stand-in: every episode draws its own
    kind_at = np.full((1, cells + 1), none, dtype=np.int32)
    kind_at[0, cell_of[0]] = np.arange(none)
    kind_at[0, cells] = none + 1
    side = window_side(spec)
    return {
        "next_cell": _ints(np.vstack([leads, stay, stay])),
        "passable": _ints(np.vstack([passable, np.ones((2, cells))])),
        "start_cells": stay if spec.map.start == "random" else _ints([flat(spec.map.start, size)]),
        "kind_at": kind_at,
        "cell_of": cell_of,
        "window_cell": windows(size, boundary, side) if side else np.zeros((cells, 0), dtype=np.int32),
        "position": positions(size),
    }


def _no_ground(spec: WorldSpec) -> dict[str, Any]:
    """Without a map, "cell" a means at affordance a, reached by its own INTERACT; the last is nowhere."""
    none = len(spec.affordances)
    cells = none + 1
    leads = np.tile(np.arange(cells), (cells, 1))  # WAIT, the last action, stays
    leads[:none] = np.arange(none)[:, None]
    return {
        "next_cell": _ints(leads),
        "passable": np.ones((cells, cells), dtype=np.int32),
        "start_cells": _ints([none]),
        "kind_at": _ints([range(none + 2)]),
        "cell_of": _ints([range(none)]),
        "window_cell": np.zeros((cells, 0), dtype=np.int32),
        "position": np.zeros((cells, 0), dtype=np.float32),
    }


def _meters(spec: WorldSpec) -> dict[str, Any]:
    index = {m.name: i for i, m in enumerate(spec.meters)}
    return {
        "start": _floats([m.start for m in spec.meters]),
        "decay": _floats([m.decay for m in spec.meters]),
        "modulation_source": _ints([index[m.source] for m in spec.modulations]),
        "modulation_target": _ints([index[m.target] for m in spec.modulations]),
        "modulation_base": _floats([m.base for m in spec.modulations]),
        "modulation_range": _floats([m.range for m in spec.modulations]),
        "cascade_source": _ints([index[c.source] for c in spec.cascades]),
        "cascade_target": _ints([index[c.target] for c in spec.cascades]),
        "cascade_threshold": _floats([c.threshold for c in spec.cascades]),
        "cascade_slope": _floats([c.strength / c.threshold for c in spec.cascades]),
        "lethal": _ints([index[name] for name in spec.lethal]),
        # Without a currency all prices are 0, so it does not matter which meter "pays" them.
        "currency": index[spec.currency] if spec.currency is not None else 0,
    }


def _affordances(spec: WorldSpec) -> dict[str, Any]:
    temporal, day, none = spec.clock.temporal, spec.clock.day, len(spec.affordances)
    sessions = [session(a, temporal) for a in spec.affordances]
    ticks = np.array([s.ticks for s in sessions] + [1])
    open_at = np.zeros((none + 1, day))
    effect = np.zeros((2 * (none + 1), len(spec.meters)))
    for a, (affordance, used) in enumerate(zip(spec.affordances, sessions, strict=True)):
        open_at[a] = [not temporal or is_open(affordance, hour) for hour in range(day)]
        effect[2 * a] = [used.inner.get(m.name, 0.0) for m in spec.meters]
        effect[2 * a + 1] = [used.last.get(m.name, 0.0) for m in spec.meters]
    return {
        "ticks": _ints(ticks),
        "tick_share": _floats(1.0 / ticks),
        "price": _floats([s.price for s in sessions] + [0.0]),
        "open_at": _ints(open_at),
        "effect": _floats(effect),
        "n_affordances": none,
        "mask_unaffordable": int(spec.mask_unaffordable),
    }


def _time(spec: WorldSpec) -> dict[str, Any]:
    turn = np.arange(spec.clock.day) / spec.clock.day
    angle = 2 * np.pi * turn
    columns = [np.sin(angle), np.cos(angle)] if clock_encoding(spec) == "sincos" else [turn]
    random = spec.clock.start == "random"
    return {
        "clock": _floats(np.stack(columns, axis=1)),
        "day": spec.clock.day,
        "start_hour": 0 if spec.clock.start == "random" else spec.clock.start,
        "random_hour": int(random),
        "shuffled": int(spec.map.kind == "grid" and spec.map.layout == "shuffled"),
        "max_steps": spec.max_steps,
        "age_share": 1.0 / spec.max_steps,
    }


def _reward(spec: WorldSpec, default: R) -> R:
    """The settings of one reward; its defaults when the world does not use it."""
    return next((r for r in spec.rewards if isinstance(r, type(default))), default)


def _rewards(spec: WorldSpec) -> dict[str, Any]:
    index = {m.name: i for i, m in enumerate(spec.meters)}
    milestone = _reward(spec, Milestone(name="milestone"))
    potential = _reward(spec, Potential(name="potential"))
    vitality = _reward(spec, Vitality(name="vitality")).meters or spec.lethal
    bonus = [m.bonus or Bonus() for m in spec.meters]
    return {
        "reward_kind": _ints([REWARD_KIND[r.name] for r in spec.rewards]),
        "reward_weight": _floats([r.weight for r in spec.rewards]),
        "vitality": _ints([index[name] for name in vitality]),
        "bonus_above": _floats([b.above for b in bonus]),
        "bonus_reward": _floats([b.reward for b in bonus]),
        "bonus_below": _floats([b.below for b in bonus]),
        "bonus_penalty": _floats([b.penalty for b in bonus]),
        "uses_potential": int(any(r.name == "potential" for r in spec.rewards)),
        "milestone_every": milestone.every,
        "milestone_big_every": milestone.big_every,
        "milestone_bonus": milestone.bonus,
        "milestone_big_bonus": milestone.big_bonus,
        "milestone_death": milestone.death,
        "potential_gamma": potential.gamma,
        **_survival(spec),
        **_proximity(spec),
    }


def _survival(spec: WorldSpec) -> dict[str, float]:
    """Decay and move cost of the baseline; harmless figures when the reward is not used."""
    if not any(r.name == "survival" for r in spec.rewards):
        return {"survival_decay": 1.0, "survival_move": 0.0}
    name = _reward(spec, Survival(name="survival")).meter or spec.lethal[0]
    meter = next(m for m in spec.meters if m.name == name)
    return {"survival_decay": meter.decay, "survival_move": meter.move}


def _proximity(spec: WorldSpec) -> dict[str, Any]:
    used = any(r.name == "proximity" for r in spec.rewards)
    steps = steps_between(spec.map.size, spec.map.boundary) if used else np.zeros((1, 1), dtype=np.int32)
    raises = np.zeros((len(spec.meters), len(spec.affordances)))
    for i, meter in enumerate(spec.meters):
        raises[i, cures(spec, meter.name)] = 1
    proximity = _reward(spec, Proximity(name="proximity"))
    return {
        "restores": _ints(raises),
        "distance": steps,
        "proximity_below": proximity.below,
        "proximity_scale": proximity.scale,
        "proximity_reach": 1.0 / max(1, int(steps.max())),
    }


def _observation(spec: WorldSpec, seen: ObservationLayout) -> dict[str, Any]:
    return {
        "block_kind": _ints([BLOCK_KIND[b.name] for b in blocks(spec)]),
        "block_start": _ints([b.start for b in seen]),
    }
