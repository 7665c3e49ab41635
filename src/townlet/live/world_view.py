"""Worlds for the page: JSON to draw a world, and validation of world texts edited in the browser."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from townlet.config.yaml import parse
from townlet.errors import ConfigError, Diagnostic
from townlet.town.world.load import from_node, shipped
from townlet.town.world.tables import World

EDITED_FILE: Final = "edited.yaml"  # file name in messages about an edited text


def world_json(world: World) -> dict[str, Any]:
    """Everything the page draws of a world: map, affordances, meters, actions and rewards."""
    spec, t = world.spec, world.tables
    lethal = {int(meter) for meter in t.lethal}
    return {
        "name": world.name,
        "description": spec.description,
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


def parse_world(text: str) -> World:
    """Parse and validate an edited world, which may extend shipped worlds but no other file."""
    node = parse(text, EDITED_FILE)
    parent = node.child("extends") if isinstance(node.value, dict) else None
    if parent is not None and parent.value not in shipped():
        what, fix = "a world edited in the page can extend only shipped worlds", f"known: {', '.join(shipped())}"
        raise ConfigError([Diagnostic(what, fix, parent.location)])
    return from_node(node, EDITED_FILE)


def error_json(error: Diagnostic) -> dict[str, Any]:
    """An error with its line and column; 0 where unknown."""
    where = error.where
    line, column = (where.line, where.column) if where else (None, None)
    return {"line": line or 0, "column": column or 0, "what": error.what, "fix": error.fix}
