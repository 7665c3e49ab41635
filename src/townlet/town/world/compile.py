"""Compilation of a validated world into tables: every number the rules read, rounded once to float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from townlet.town.world import schema, tables
from townlet.town.world.schema import Milestone, Potential, Proximity, Survival, Vitality, WorldSpec
from townlet.town.world.sessions import is_open, make_session, restorers
from townlet.town.world.tables import Floats, Ints, World

# Moves in three dimensions, last axis first, −1 before +1; a map with fewer dimensions uses the last 2 or 4 of these.
MOVES: Final = ("BELOW", "ABOVE", "UP", "DOWN", "LEFT", "RIGHT")
R = TypeVar("R", Milestone, Survival, Vitality, Potential, Proximity)


def compile_world(name: str, spec: WorldSpec, warnings: Sequence[str] = ()) -> World:
    """Compile a spec that has passed validation."""
    layout, actions = schema.observation_layout(spec), action_names(spec)
    compiled = tables.Tables(
        **_map(spec),
        **_meters(spec),
        **_affordances(spec),
        **_time(spec),
        **_rewards(spec),
        block_kind=_ints([tables.BLOCK_KIND[b.name] for b in schema.blocks(spec)]),
        block_start=_ints([b.start for b in layout]),
        tolerance=tables.TOLERANCE,
    )
    hashes = tables.content_hash(spec), tables.interface_hash(spec, actions, layout)
    return World(name, spec, compiled, layout, actions, *hashes, tuple(warnings))


def action_names(spec: WorldSpec) -> tuple[str, ...]:
    """Names of the actions in order: moves, INTERACT, WAIT; without a map one INTERACT per affordance."""
    if spec.map.kind == "aspatial":
        return (*(f"INTERACT {a.name}" for a in spec.affordances), "WAIT")
    return (*MOVES[-2 * len(spec.map.size) :], "INTERACT", "WAIT")


def cell_number(coords: Sequence[Any], size: Sequence[int]) -> Any:
    """The number of the cell x, y, z: x + X·(y + Y·z)."""
    return np.ravel_multi_index(tuple(coords), tuple(size), order="F")


def coordinates(size: Sequence[int]) -> Ints:
    """x, y, z of every cell: int [C, dimensions]."""
    coords = np.unravel_index(np.arange(int(np.prod(size))), tuple(size), order="F")
    return np.ascontiguousarray(np.stack(coords, axis=1), dtype=np.int32)


def _apply_boundary(at: Ints, n: int, boundary: str) -> Ints:
    """The coordinate that a move to `at` (−1 to n) reaches on an axis of n cells."""
    if boundary == "wrap":
        return at % n
    if boundary == "bounce":
        at = np.where(at < 0, 1, np.where(at >= n, n - 2, at)).astype(np.int32)
    return np.clip(at, 0, n - 1)


def moves(size: Sequence[int], boundary: str) -> tuple[Ints, Ints]:
    """Next cell and passability of each move: two int arrays [2 · dimensions, C]."""
    cells = coordinates(size)
    next_cell, passable = [], []
    for axis in reversed(range(len(size))):
        for step in (-1, 1):
            target = cells[:, axis] + np.int32(step)
            coords = [cells[:, i] for i in range(len(size))]
            coords[axis] = _apply_boundary(target, size[axis], boundary)
            next_cell.append(cell_number(coords, size))
            inside = (target >= 0) & (target < size[axis])
            passable.append(inside if boundary == "clamp" else np.ones_like(inside))
    return _ints(np.stack(next_cell)), _ints(np.stack(passable))


def windows(size: Sequence[int], boundary: str, side: int) -> Ints:
    """Numbers of the cells around each cell, row by row: int [C, side or side²]. Cells off the map get the number C."""
    cells = coordinates(size)
    dimensions = min(len(size), 2)
    offsets = np.arange(side, dtype=np.int32) - side // 2
    shape = (len(cells),) + (side,) * dimensions
    inside = np.ones(shape, dtype=bool)
    coords = []
    for axis, n in enumerate(size):
        at = cells[:, axis].reshape(-1, *[1] * dimensions)
        if axis < dimensions:
            # x runs along the last axis of the window, y along the one before.
            at = at + offsets.reshape([side if i == dimensions - 1 - axis else 1 for i in range(dimensions)])
            if boundary != "wrap":
                inside &= (at >= 0) & (at < n)
            at = at % n
        coords.append(np.broadcast_to(at, shape))
    numbers = np.where(inside, cell_number(coords, size), len(cells))
    return _ints(numbers.reshape(len(cells), -1))


def positions(size: Sequence[int]) -> Floats:
    """Coordinates / (size − 1): float [C, dimensions]; 0 along an axis of one cell."""
    return _floats(coordinates(size) / np.maximum(np.asarray(size) - 1, 1))


def distances(size: Sequence[int], boundary: str) -> Ints:
    """Fewest moves between cells: int [C, C]. Bouncing off an edge equals a move away from it, so it is no shortcut."""
    cells = coordinates(size)
    total = np.zeros((len(cells), len(cells)), dtype=np.int32)
    for axis, n in enumerate(size):
        apart = np.abs(cells[:, None, axis] - cells[None, :, axis])
        total += np.minimum(apart, n - apart) if boundary == "wrap" else apart
    return total


def _ints(values: ArrayLike) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int32)


def _floats(values: ArrayLike) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float32)


def _map(spec: WorldSpec) -> dict[str, Any]:
    names = action_names(spec)
    cost = np.zeros((len(names), len(spec.meters)))
    for k, action in enumerate(names):
        if action == "WAIT":
            cost[k] = [m.wait for m in spec.meters]
        elif not action.startswith("INTERACT"):
            cost[k] = [m.move for m in spec.meters]
    first_interact = next(k for k, action in enumerate(names) if action.startswith("INTERACT"))
    cell_tables = _no_cells(spec) if spec.map.kind == "aspatial" else _cells(spec)
    return cell_tables | {"first_interact": first_interact, "wait": len(names) - 1, "action_cost": _floats(cost)}


def _cells(spec: WorldSpec) -> dict[str, Any]:
    size, boundary, n = spec.map.size, spec.map.boundary, len(spec.affordances)
    next_cell, passable = moves(size, boundary)
    n_cells = next_cell.shape[1]
    all_cells = np.arange(n_cells, dtype=np.int32)
    if spec.map.layout == "fixed":
        cell_of = _ints([[cell_number(a.cell or (), size) for a in spec.affordances]])
    else:
        cell_of = _ints([range(n)])  # a placeholder: every episode draws its layout
    none, outside = n, n + 1
    kind_at = np.full((1, n_cells + 1), none, dtype=np.int32)
    kind_at[0, cell_of[0]] = np.arange(n)
    kind_at[0, n_cells] = outside
    side = schema.window_side(spec)
    return {
        "next_cell": _ints(np.vstack([next_cell, all_cells, all_cells])),  # INTERACT and WAIT stay
        "passable": _ints(np.vstack([passable, np.ones((2, n_cells))])),
        "start_cells": all_cells if spec.map.start == "random" else _ints([cell_number(spec.map.start, size)]),
        "kind_at": kind_at,
        "cell_of": cell_of,
        "window_cell": windows(size, boundary, side) if side else np.zeros((n_cells, 0), dtype=np.int32),
        "position": positions(size),
    }


def _no_cells(spec: WorldSpec) -> dict[str, Any]:
    """Tables of a world without a map: cell a is affordance a, reached by its INTERACT; the last cell has none."""
    n = len(spec.affordances)
    n_actions, n_cells = n + 1, n + 1
    next_cell = np.tile(np.arange(n_cells), (n_actions, 1))  # WAIT, the last action, stays
    next_cell[:n] = np.arange(n)[:, None]
    return {
        "next_cell": _ints(next_cell),
        "passable": np.ones((n_actions, n_cells), dtype=np.int32),
        "start_cells": _ints([n]),
        "kind_at": _ints([range(n + 2)]),
        "cell_of": _ints([range(n)]),
        "window_cell": np.zeros((n_cells, 0), dtype=np.int32),
        "position": np.zeros((n_cells, 0), dtype=np.float32),
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
        # Without a currency all prices are 0, so any meter can "pay" them.
        "currency": index[spec.currency] if spec.currency is not None else 0,
    }


def _affordances(spec: WorldSpec) -> dict[str, Any]:
    temporal, day, n = spec.clock.temporal, spec.clock.day, len(spec.affordances)
    sessions = [make_session(a, temporal) for a in spec.affordances]  # a session is one complete use
    ticks = np.array([s.ticks for s in sessions] + [1])
    open_at = np.zeros((n + 1, day))
    effect = np.zeros((2 * (n + 1), len(spec.meters)))
    for a, (affordance, session) in enumerate(zip(spec.affordances, sessions, strict=True)):
        open_at[a] = [not temporal or is_open(affordance, hour, day) for hour in range(day)]
        effect[2 * a] = [session.before_last.get(m.name, 0.0) for m in spec.meters]
        effect[2 * a + 1] = [session.last.get(m.name, 0.0) for m in spec.meters]
    return {
        "ticks": _ints(ticks),
        "tick_share": _floats(1.0 / ticks),
        "price": _floats([s.price for s in sessions] + [0.0]),
        "open_at": _ints(open_at),
        "effect": _floats(effect),
        "n_affordances": n,
        "mask_unaffordable": int(spec.mask_unaffordable),
    }


def _time(spec: WorldSpec) -> dict[str, Any]:
    day_fraction = np.arange(spec.clock.day) / spec.clock.day
    angle = 2 * np.pi * day_fraction
    columns = [np.sin(angle), np.cos(angle)] if schema.clock_encoding(spec) == "sincos" else [day_fraction]
    return {
        "clock": _floats(np.stack(columns, axis=1)),
        "day": spec.clock.day,
        "start_hour": 0 if spec.clock.start == "random" else spec.clock.start,
        "random_hour": int(spec.clock.start == "random"),
        "shuffled": int(spec.map.kind == "grid" and spec.map.layout == "shuffled"),
        "max_steps": spec.max_steps,
        "age_share": 1.0 / spec.max_steps,
    }


def _reward(spec: WorldSpec, default: R) -> R:
    """The world's reward of the same type as `default`, or `default` if the world has none."""
    return next((r for r in spec.rewards if isinstance(r, type(default))), default)


def _rewards(spec: WorldSpec) -> dict[str, Any]:
    names = {r.name for r in spec.rewards}
    index = {m.name: i for i, m in enumerate(spec.meters)}
    milestone = _reward(spec, Milestone(name="milestone"))
    vitality_meters = _reward(spec, Vitality(name="vitality")).meters or spec.lethal
    survival = _reward(spec, Survival(name="survival"))
    walked = spec.meters[index[survival.meter or spec.lethal[0]]] if survival.baseline is None else None
    proximity = _reward(spec, Proximity(name="proximity"))
    bonus = [m.bonus or schema.Bonus() for m in spec.meters]
    distance = distances(spec.map.size, spec.map.boundary) if "proximity" in names else np.zeros((1, 1), np.int32)
    restores = np.zeros((len(spec.meters), len(spec.affordances)))
    for i, meter in enumerate(spec.meters):
        restores[i, restorers(spec, meter.name)] = 1
    return {
        "reward_kind": _ints([tables.REWARD_KIND[r.name] for r in spec.rewards]),
        "reward_weight": _floats([r.weight for r in spec.rewards]),
        "vitality": _ints([index[name] for name in vitality_meters]),
        "bonus_above": _floats([b.above for b in bonus]),
        "bonus_reward": _floats([b.reward for b in bonus]),
        "bonus_below": _floats([b.below for b in bonus]),
        "bonus_penalty": _floats([b.penalty for b in bonus]),
        "uses_potential": int("potential" in names),
        "milestone_shift": int(milestone.pay_first_step),
        "milestone_every": milestone.every,
        "milestone_big_every": milestone.big_every,
        "milestone_bonus": milestone.bonus,
        "milestone_big_bonus": milestone.big_bonus,
        "milestone_death": milestone.death,
        "potential_gamma": _reward(spec, Potential(name="potential")).gamma,
        "survival_decay": walked.decay if walked else 0.0,
        "survival_move": walked.move if walked else 0.0,
        "survival_baseline": spec.max_steps if survival.baseline is None else survival.baseline,
        "restores": _ints(restores),
        "distance": distance,
        "proximity_below": proximity.below,
        "proximity_scale": proximity.scale,
        "distance_scale": 1.0 / max(1, int(distance.max())),
    }
