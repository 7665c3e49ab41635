"""Every key of a world, found in the models, with one change each that must have an effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic import BaseModel

from townlet.town.world.schema import WorldSpec

Document = dict[str, Any]

# A small world in which every rule has an effect.
WORLD: Document = {
    "format": 1,
    "description": "A place to turn every screw.",
    "max_steps": 15,
    "map": {"kind": "grid", "size": [3, 3], "boundary": "clamp", "layout": "fixed", "start": [1, 1]},
    "clock": {"temporal": True, "day": 6, "start": 0},
    "meters": [
        {"name": "life", "start": 0.5, "decay": 0.01, "move": 0.004, "wait": 0.002, "group": "primary"},
        {"name": "coin", "start": 0.5, "group": "resource"},
        {
            "name": "joy", "start": 0.35, "decay": 0.01, "move": 0.001,
            "bonus": {"above": 0.33, "reward": 0.4, "below": 0.3, "penalty": 0.7},
        },
    ],
    "currency": "coin",
    "dollars": 100,
    "lethal": ["life"],
    "modulations": [{"name": "sadness", "source": "joy", "target": "life", "base": 0.001, "range": 0.01}],
    "cascades": [{"name": "gloom", "source": "joy", "target": "life", "threshold": 0.3, "strength": 0.01}],
    "affordances": [
        {
            "name": "Inn", "icon": "I", "cell": [1, 1], "ticks": 2, "price": 0.2, "hours": [0, 4],
            "each_tick": {"life": 0.05}, "at_end": {"life": 0.1},
        },
        {"name": "Mill", "icon": "M", "cell": [2, 1], "each_tick": {"coin": 0.1, "joy": -0.01}},
        {"name": "Fair", "icon": "F", "cell": [0, 1], "at_end": {"joy": 0.2}},
    ],
    "mask_unaffordable": False,
    "observation": [
        "position_onehot", "position", {"name": "window", "size": 3}, {"name": "window_typed", "size": 3}, "map_typed",
        "meters", "affordance_here", {"name": "clock", "encoding": "hour"}, "progress", "age",
    ],
    "rewards": [
        {"name": "milestone", "weight": 1, "every": 3, "bonus": 0.5, "big_every": 5, "big_bonus": 2, "death": -10},
        {"name": "survival", "weight": 1, "meter": "life"},
        {"name": "vitality", "weight": 1, "meters": ["life"]},
        {"name": "potential", "weight": 1, "gamma": 0.9},
        {"name": "meter_bonus", "weight": 1},
        {"name": "proximity", "weight": 1, "below": 0.5, "scale": 0.5},
    ],
}  # fmt: skip

PLAIN: Document = {"observation": "full", "rewards": ["milestone"]}
SHUFFLED: Document = {"map.layout": "shuffled", "observation": "full"}


@dataclass(frozen=True)
class Turn:
    """Change one key; `given` is applied first, to both sides of the comparison."""

    path: str
    value: Any
    given: Document = field(default_factory=dict)
    noticed: Literal["played", "shown", "refused", "by name"] = "played"


TURNS: dict[str, Turn] = {
    "WorldSpec.format": Turn("format", 2, noticed="refused"),
    "WorldSpec.description": Turn("description", "Another place.", noticed="shown"),
    "WorldSpec.max_steps": Turn("max_steps", 12),
    "WorldSpec.map": Turn("map", {"size": [4, 4]}),
    "WorldSpec.clock": Turn("clock", {"temporal": True}),
    "WorldSpec.meters": Turn("meters.2.decay", 0.02),
    "WorldSpec.currency": Turn("currency", "joy"),
    "WorldSpec.dollars": Turn("dollars", 7, noticed="shown"),
    "WorldSpec.lethal": Turn("lethal", ["joy"]),
    "WorldSpec.modulations": Turn("modulations", []),
    "WorldSpec.cascades": Turn("cascades", []),
    "WorldSpec.affordances": Turn("affordances.1", {"name": "Mill", "cell": [2, 1], "each_tick": {"joy": 0.1}}),
    "WorldSpec.mask_unaffordable": Turn("mask_unaffordable", True),
    "WorldSpec.observation": Turn("observation", "partial"),
    "WorldSpec.rewards": Turn("rewards", ["milestone"]),
    "Map.kind": Turn("map", {"kind": "aspatial"}, PLAIN),
    "Map.size": Turn("map.size", [3, 4]),
    "Map.boundary": Turn("map.boundary", "wrap"),
    "Map.layout": Turn("map.layout", "shuffled"),
    "Map.start": Turn("map.start", [0, 2]),
    "Map.allow_hidden_layout": Turn(
        "map.allow_hidden_layout", False, SHUFFLED | {"map.allow_hidden_layout": True}, "refused"
    ),
    "Clock.temporal": Turn("clock.temporal", False, PLAIN),
    "Clock.day": Turn("clock.day", 5),
    "Clock.start": Turn("clock.start", 3),
    "Meter.name": Turn("meters.2.name", "mirth", {"modulations": [], "cascades": []}, "by name"),
    "Meter.start": Turn("meters.2.start", 0.4),
    "Meter.decay": Turn("meters.0.decay", 0.02),
    "Meter.move": Turn("meters.0.move", 0.006),
    "Meter.wait": Turn("meters.0.wait", 0.003),
    "Meter.group": Turn("meters.0.group", "tertiary", noticed="shown"),
    "Meter.bonus": Turn("meters.0.bonus", {"reward": 1.0, "penalty": 1.0}),
    "Bonus.above": Turn("meters.2.bonus.above", 0.4),
    "Bonus.reward": Turn("meters.2.bonus.reward", 0.5),
    "Bonus.below": Turn("meters.2.bonus.below", 0.2),
    "Bonus.penalty": Turn("meters.2.bonus.penalty", 0.5),
    "Modulation.name": Turn("modulations.0.name", "sorrow", noticed="by name"),
    "Modulation.source": Turn("modulations.0.source", "coin"),
    "Modulation.target": Turn("modulations.0.target", "coin"),
    "Modulation.base": Turn("modulations.0.base", 0.002),
    "Modulation.range": Turn("modulations.0.range", 0.02),
    "Cascade.name": Turn("cascades.0.name", "grief", noticed="by name"),
    "Cascade.source": Turn("cascades.0.source", "coin"),
    "Cascade.target": Turn("cascades.0.target", "coin"),
    "Cascade.threshold": Turn("cascades.0.threshold", 0.4),
    "Cascade.strength": Turn("cascades.0.strength", 0.02),
    "Affordance.name": Turn("affordances.1.name", "Market", noticed="by name"),
    "Affordance.icon": Turn("affordances.1.icon", "W", noticed="shown"),
    "Affordance.cell": Turn("affordances.1.cell", [2, 2]),
    "Affordance.ticks": Turn("affordances.0.ticks", 3),
    "Affordance.price": Turn("affordances.0.price", 0.1),
    "Affordance.hours": Turn("affordances.0.hours", [1, 3]),
    "Affordance.each_tick": Turn("affordances.0.each_tick", {"life": 0.04}),
    "Affordance.at_end": Turn("affordances.0.at_end", {"life": 0.2}),
    "ObservationBlock.name": Turn("observation", ["meters", "age"], {"observation": ["meters", "progress"]}),
    "ObservationBlock.size": Turn(
        "observation.0.size", 3, {"observation": [{"name": "window", "size": 1}, "meters"], "map.boundary": "wrap"}
    ),
    "ObservationBlock.encoding": Turn("observation.7.encoding", "sincos"),
    "Milestone.name": Turn("rewards", ["vitality"], {"rewards": ["milestone"]}),
    "Milestone.weight": Turn("rewards.0.weight", 2),
    "Milestone.every": Turn("rewards.0.every", 4),
    "Milestone.bonus": Turn("rewards.0.bonus", 0.25),
    "Milestone.big_every": Turn("rewards.0.big_every", 6),
    "Milestone.big_bonus": Turn("rewards.0.big_bonus", 3),
    "Milestone.death": Turn("rewards.0.death", -20),
    "Milestone.pay_first_step": Turn("rewards.0.pay_first_step", True),
    "Survival.name": Turn("rewards", ["vitality"], {"rewards": ["survival"]}),
    "Survival.weight": Turn("rewards.1.weight", 2),
    "Survival.meter": Turn("rewards.1.meter", "joy"),
    "Survival.baseline": Turn("rewards", [{"name": "survival", "baseline": 7}], {"rewards": ["survival"]}),
    "Vitality.name": Turn("rewards", ["potential"], {"rewards": ["vitality"]}),
    "Vitality.weight": Turn("rewards.2.weight", 2),
    "Vitality.meters": Turn("rewards.2.meters", ["life", "joy"]),
    "Potential.name": Turn("rewards", ["vitality"], {"rewards": ["potential"]}),
    "Potential.weight": Turn("rewards.3.weight", 2),
    "Potential.gamma": Turn("rewards.3.gamma", 0.95),
    "MeterBonus.name": Turn("rewards", ["vitality"], {"rewards": ["meter_bonus"]}),
    "MeterBonus.weight": Turn("rewards.4.weight", 2),
    "Proximity.name": Turn("rewards", ["vitality"], {"rewards": ["proximity"]}),
    "Proximity.weight": Turn("rewards.5.weight", 2),
    "Proximity.below": Turn("rewards.5.below", 0.2),
    "Proximity.scale": Turn("rewards.5.scale", 0.25),
}


def all_keys() -> list[str]:
    """ "Model.key" of every model that a world's file is made of."""
    return [f"{model.__name__}.{key}" for model in _models(WorldSpec, set()) for key in model.model_fields]


def _models(kind: Any, seen: set[Any]) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind not in seen:
            seen.add(kind)
            yield kind
            for info in kind.model_fields.values():
                yield from _models(info.annotation, seen)
    else:
        for part in get_args(kind):
            yield from _models(part, seen)
