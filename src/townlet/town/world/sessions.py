"""Effects of affordances per tick and per session, and the bounds on survival that follow from them, in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from townlet.town.world.schema import Affordance, Meter, WorldSpec
from townlet.town.world.tables import TOLERANCE


@dataclass(frozen=True)
class Session:
    """Using one affordance, as the rules apply it; without time of day, one tick has the effect of a full session."""

    ticks: int
    price: float  # per tick
    before_last: dict[str, float]  # change of meters by a tick other than the last
    last: dict[str, float]  # change of meters by the last tick

    def best(self, meter: str) -> float:
        """The most that one tick can raise a meter; at least 0."""
        return max(0.0, self.before_last.get(meter, 0.0), self.last.get(meter, 0.0))


def session_total(affordance: Affordance) -> dict[str, float]:
    """Change of each meter by a full session, without the price; the same with and without time of day."""
    return _effect(affordance, affordance.ticks)


def make_session(affordance: Affordance, temporal: bool) -> Session:
    """The session as it is played with or without time of day."""
    if temporal:
        return Session(affordance.ticks, affordance.price, dict(affordance.each_tick), _effect(affordance, 1))
    total = session_total(affordance)
    return Session(1, affordance.price * affordance.ticks, total, total)


def _effect(affordance: Affordance, ticks: int) -> dict[str, float]:
    meters = dict.fromkeys((*affordance.each_tick, *affordance.at_end))
    return {m: ticks * affordance.each_tick.get(m, 0.0) + affordance.at_end.get(m, 0.0) for m in meters}


def net_income(affordance: Affordance, currency: str) -> float:
    """What a full session earns after its price."""
    return session_total(affordance).get(currency, 0.0) - affordance.price * affordance.ticks


def restorers(spec: WorldSpec, meter: str) -> list[int]:
    """Indices of the affordances whose session raises a meter most; empty if no session raises it."""
    gains = [session_total(a).get(meter, 0.0) for a in spec.affordances]
    most = max(gains)
    return [i for i, gain in enumerate(gains) if gain > 1e-9 and gain > most - 1e-9]


def is_open(affordance: Affordance, hour: int, day: int) -> bool:
    """Whether an affordance is open at an hour; after midnight it may still be open from the day before."""
    if affordance.hours is None:
        return True
    opens, closes = affordance.hours
    closes += day if closes < opens else 0
    return opens <= hour < closes or opens <= hour + day < closes


@dataclass(frozen=True)
class SurvivalBound:
    """Upper bound on survival set by one lethal meter; every number errs in the agent's favor."""

    meter: str
    loss: float  # per step, at least
    gain: float  # per step, at most
    dead_by: int | None  # the step by which every agent has died; None if there is no limit
    limited_by_money: bool = False  # money, not the best affordance, sets the bound


def survival_bound(spec: WorldSpec, meter: Meter) -> SurvivalBound:
    """The bound under the assumption that every step is the best tick of every restorer and every job at once."""
    loss = meter.decay + sum(m.base for m in spec.modulations if m.target == meter.name)
    # The most that one tick restores, that a free tick restores, that one unit of money buys, and that a tick earns.
    gain = free = per_money = income = 0.0
    for session in (make_session(a, spec.clock.temporal) for a in spec.affordances):
        price = max(0.0, session.price - TOLERANCE)
        if price > 1.0:
            continue  # more than an agent can own
        best = session.best(meter.name)
        gain = max(gain, best)
        income = max(income, session.best(spec.currency) if spec.currency else 0.0)
        if price:
            per_money = max(per_money, best / price)
        else:
            free = max(free, best)
    money = next((m.start for m in spec.meters if m.name == spec.currency), 0.0)
    by_gain = 1 if loss >= 1.0 else _first_step_below_zero(meter.start, loss - gain)
    by_money = _first_step_below_zero(meter.start + per_money * money, loss - free - per_money * income)
    ends = [step for step in (by_gain, by_money) if step is not None]
    dead_by = min(ends) if ends else None
    return SurvivalBound(meter.name, loss, gain, dead_by, limited_by_money=dead_by is not None and dead_by != by_gain)


def _first_step_below_zero(value: float, rate: float) -> int | None:
    """The first step at which a value that falls by `rate` per step is below 0; None if that never happens."""
    steps = value / rate if rate > 0 else math.inf
    return math.floor(steps) + 1 if steps < 1e9 else None


def warnings(spec: WorldSpec) -> Iterator[str]:
    """Warnings about settings that are allowed but probably mistakes."""
    for _, name in unused_meters(spec):
        yield f"nothing raises the meter '{name}', and it affects nothing else"
    if spec.currency is None:
        return
    for affordance in spec.affordances:
        price = make_session(affordance, spec.clock.temporal).price
        if price > 1.0 + TOLERANCE:
            cost = f"it costs ${price * spec.dollars:g} at once, and no agent owns more than ${spec.dollars:g}"
            yield f"'{affordance.name}' is never affordable: {cost}"
    if any(net_income(a, spec.currency) > 1e-9 for a in spec.affordances):
        return
    raises = {name: [a for a in spec.affordances if session_total(a).get(name, 0.0) > 1e-9] for name in spec.lethal}
    costly = [name for name, affordances in raises.items() if all(a.price > 0 for a in affordances)]
    if costly:
        yield (
            f"income cannot pay forever: everything that restores {' and '.join(costly)} costs {spec.currency}, "
            "and no affordance earns more than it costs"
        )


def unused_meters(spec: WorldSpec) -> Iterator[tuple[int, str]]:
    """Index and name of meters that nothing else refers to; often a misspelled name of an inherited meter."""
    names = [m.name for m in spec.meters]
    used = {*spec.lethal, spec.currency, *(name for a in spec.affordances for name in (*a.each_tick, *a.at_end))}
    used |= {name for m in spec.modulations for name in (m.source, m.target)}
    used |= {name for c in spec.cascades for name in (c.source, c.target)}
    yield from ((index, name) for index, name in enumerate(names) if name not in used)
