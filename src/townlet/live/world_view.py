"""A world as a page draws it: what never changes while one looks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from townlet.config.yaml import parse
from townlet.errors import ConfigError, Diagnostic
from townlet.town.world.load import FOLDER, from_node, shipped
from townlet.town.world.tables import World

# How needs are grouped on the page; a meter of a world of one's own is where its nature puts it.
SURVIVAL: Final = "survival"


def world_json(world: World) -> dict[str, Any]:
    """Map, places, needs, actions and rewards."""
    spec, t = world.spec, world.tables
    lethal = {int(m) for m in t.lethal}
    pulls = {int(s) for s, target in zip(t.cascade_source, t.cascade_target, strict=True) if int(target) in lethal}
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
            {
                "name": name,
                "group": SURVIVAL if m in lethal else "modifiers" if m in pulls else "quality of life",
                "lethal": m in lethal,
                "decay": round(float(t.decay[m]), 5),
            }
            for m, name in enumerate(world.meters)
        ],
        "affordances": [
            {
                "name": a.name,
                "cell": int(np.asarray(t.cell_of)[0][k]) if not t.shuffled else None,
                "hours": list(a.hours) if a.hours else None,
                "open_at": [bool(v) for v in np.asarray(t.open_at)[k]],
                "ticks": int(t.ticks[k]),
                "price": round(float(t.price[k]) * int(t.ticks[k]) * float(spec.dollars or 0), 2),
                "effects": {
                    world.meters[m]: round(float(v), 4)
                    for m, v in enumerate(session_effect(world, k))
                    if abs(float(v)) > 1e-6
                },
            }
            for k, a in enumerate(spec.affordances)
        ],
    }  # fmt: skip


def session_effect(world: World, place: int) -> Any:
    """What a whole session does to every meter [M]."""
    effect, ticks = np.asarray(world.tables.effect), int(world.tables.ticks[place])
    return effect[2 * place] * (ticks - 1) + effect[2 * place + 1]


SOURCE: Final = "edited.yaml"


def parse_world(text: str) -> World:
    """The world of a text; it may extend shipped worlds and nothing else."""
    node = parse(text, SOURCE)
    below = node.child("extends") if isinstance(node.value, dict) else None
    if below is not None and below.value not in shipped():
        fix = f"known: {', '.join(shipped())}"
        raise ConfigError([Diagnostic("a world of this page can extend shipped worlds alone", fix, below.location)])
    return from_node(node, SOURCE)


def check_world(text: str) -> World | list[Diagnostic]:
    """The world of a text, or all that is wrong with it."""
    try:
        return parse_world(text)
    except ConfigError as error:
        return list(error.diagnostics)


def shipped_source(name: str) -> str:
    """A shipped world as it is written."""
    return (FOLDER / f"{name}.yaml").read_text("utf-8")


def mistake_json(mistake: Diagnostic) -> dict[str, Any]:
    """A mistake with its line, for the margin of an editor; 0 where it has none."""
    where = mistake.where
    place = {"line": where.line or 0, "column": where.column or 0} if where else {"line": 0, "column": 0}
    return {**place, "what": mistake.what, "fix": mistake.fix}
