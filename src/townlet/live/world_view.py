"""Worlds as JSON, from which the page draws them."""

from __future__ import annotations

from typing import Any

import numpy as np

from townlet.town.world.tables import World
from townlet.town.world.text import describe


def world_json(world: World) -> dict[str, Any]:
    """Everything the page draws of a world: map, affordances, meters, actions and rewards."""
    spec, t = world.spec, world.tables
    lethal = {int(meter) for meter in t.lethal}
    return {
        "name": world.name,
        "description": describe(world),
        "size": list(world.size),
        "max_steps": int(t.max_steps),
        "day": int(t.day),
        "temporal": bool(spec.clock.temporal),
        "shuffled": bool(t.shuffled),
        "dollars": float(spec.dollars) if spec.currency else 0.0,
        "currency": spec.currency,
        "actions": list(world.actions),
        "rewards": list(world.rewards),
        "meters": [
            {"name": meter.name, "group": meter.group, "lethal": m in lethal, "decay": round(float(t.decay[m]), 5)}
            for m, meter in enumerate(spec.meters)
        ],
        "affordances": [_affordance_json(world, k) for k in range(len(spec.affordances))],
    }


def _affordance_json(world: World, k: int) -> dict[str, Any]:
    """One affordance; `price` and `effects` are totals of a complete session."""
    spec, t = world.spec.affordances[k], world.tables
    effect, ticks = np.asarray(t.effect), int(t.ticks[k])
    each_tick, last_tick = effect[2 * k], effect[2 * k + 1]
    totals = each_tick * (ticks - 1) + last_tick
    return {
        "name": spec.name,
        "icon": spec.icon,
        "cell": None if t.shuffled else int(np.asarray(t.cell_of)[0][k]),
        "hours": list(spec.hours) if spec.hours else None,
        "open_at": [bool(v) for v in np.asarray(t.open_at)[k]],
        "ticks": ticks,
        "price": round(float(t.price[k]) * ticks * float(world.spec.dollars), 2),
        "effects": {world.meters[m]: round(float(v), 4) for m, v in enumerate(totals) if abs(float(v)) > 1e-6},
    }
