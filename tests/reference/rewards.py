"""Rewards: one rule per strategy, before weight and mix."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reference.town import Town

NEAR = 5e-5


def component(town: Town, reward: dict[str, Any], before: float) -> float:
    """Reward of one strategy for the last step; `before` is the potential before it."""
    name = reward["name"]
    if name == "milestone":
        return _milestone(town, reward)
    if name == "survival":
        return _survival(town, reward)
    if name == "vitality":
        listed = reward["meters"] or town.doc["lethal"]
        return prod(town.meters[town.names.index(m)] for m in listed)
    if name == "potential":
        return float(reward["gamma"]) * (0.0 if town.terminated else potential(town)) - before
    if name == "meter_bonus":
        return _meter_bonus(town)
    return _proximity(town, reward)


def potential(town: Town) -> float:
    """The mean of the active meters."""
    values = [v for v, on in zip(town.meters, town.active, strict=True) if on]
    return sum(values) / len(values) if values else 0.0


def _milestone(town: Town, reward: dict[str, Any]) -> float:
    if town.terminated:
        return float(reward["death"])
    counted = town.age - 1 if reward["pay_first_step"] else town.age
    small = reward["bonus"] if counted % reward["every"] == 0 else 0.0
    big = reward["big_bonus"] if counted % reward["big_every"] == 0 else 0.0
    return float(small + big)


def _survival(town: Town, reward: dict[str, Any]) -> float:
    if not (town.terminated or town.truncated):
        return 0.0
    if reward["baseline"] is not None:
        return float(town.age - reward["baseline"])
    meter = town.doc["meters"][town.names.index(reward["meter"] or town.doc["lethal"][0])]
    rate = float(meter["decay"] * town.multiplier + meter["move"])
    return town.age - (1 / rate if rate else float(town.doc["max_steps"]))


def _meter_bonus(town: Town) -> float:
    total = 0.0
    for value, on, meter in zip(town.meters, town.active, town.doc["meters"], strict=True):
        pay = meter["bonus"]
        if on and value > pay["above"] + NEAR:
            total += pay["reward"]
        if on and value < pay["below"] - NEAR:
            total -= pay["penalty"]
    return total


def _proximity(town: Town, reward: dict[str, Any]) -> float:
    lowest = -1
    for i, on in enumerate(town.active):
        if on and (lowest < 0 or town.meters[i] < town.meters[lowest] - NEAR):
            lowest = i
    if lowest < 0 or town.grid is None or town.meters[lowest] >= reward["below"] - NEAR:
        return 0.0
    cures = _cures(town, town.names[lowest])
    if not cures:
        return 0.0
    nearest = min(town.grid.steps(town.cell, town.layout[a]) for a in cures)
    away = nearest / max(1, town.grid.longest())
    return float((1 - town.meters[lowest]) * (1 - away) * reward["scale"])


def _cures(town: Town, meter: str) -> list[int]:
    """The affordances whose full session raises the meter most."""
    gains = [a["ticks"] * a["each_tick"].get(meter, 0.0) + a["at_end"].get(meter, 0.0) for a in town.affordances]
    best = max(gains)
    return [a for a, gain in enumerate(gains) if gain > best - 1e-9] if best > 0 else []
