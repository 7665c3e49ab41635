"""What using an affordance does, by tick and by session, in float64 from the figures of the file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from townlet.errors import nearest
from townlet.town.world.schema import Affordance, Cascade, Meter, Modulation, WorldSpec
from townlet.town.world.tables import TOLERANCE


@dataclass(frozen=True)
class Session:
    """One affordance as the rules apply it: a single tick holds the whole session while time is off."""

    ticks: int
    price: float
    inner: dict[str, float]
    last: dict[str, float]

    def best(self, meter: str) -> float:
        """The most that one tick can raise a meter; 0 when none raises it."""
        return max(0.0, self.inner.get(meter, 0.0), self.last.get(meter, 0.0))


def session_total(affordance: Affordance) -> dict[str, float]:
    """Change of each meter by a whole session, the price left out; the same with time on and off."""
    return _sum(affordance, affordance.ticks)


def session(affordance: Affordance, temporal: bool) -> Session:
    """The session as it is played with time on or off."""
    if temporal:
        return Session(affordance.ticks, affordance.price, dict(affordance.each_tick), _sum(affordance, 1))
    whole = session_total(affordance)
    return Session(1, affordance.price * affordance.ticks, whole, whole)


def net_income(affordance: Affordance, currency: str) -> float:
    """What a whole session leaves in the purse."""
    return session_total(affordance).get(currency, 0.0) - affordance.price * affordance.ticks


def cures(spec: WorldSpec, meter: str) -> list[int]:
    """The affordances whose session raises a meter most; none when no session raises it."""
    gains = [session_total(a).get(meter, 0.0) for a in spec.affordances]
    most = max(gains)
    return [i for i, gain in enumerate(gains) if gain > 1e-9 and gain > most - 1e-9]


def is_open(affordance: Affordance, hour: int) -> bool:
    """Whether it is open at this hour of the day; closing may lie past midnight."""
    if affordance.hours is None:
        return True
    opens, closes = affordance.hours
    return opens <= hour < closes if opens < closes else hour >= opens or hour < closes


def _sum(affordance: Affordance, ticks: int) -> dict[str, float]:
    meters = dict.fromkeys((*affordance.each_tick, *affordance.at_end))
    return {m: ticks * affordance.each_tick.get(m, 0.0) + affordance.at_end.get(m, 0.0) for m in meters}


@dataclass(frozen=True)
class Bound:
    """The luckiest life one lethal meter allows; every figure errs on the agent's side."""

    meter: str
    loss: float  # per step, at least
    gain: float  # per step, at most
    dead_by: int | None  # the step by which every agent has died; None when the bound allows any age
    broke: bool = False  # the purse, not the best cure, sets the limit


def bound(spec: WorldSpec, meter: Meter) -> Bound:
    """Play the luckiest agent: every step is the best tick of every cure and the best tick of every job."""
    loss = meter.decay + sum(m.base for m in spec.modulations if m.target == meter.name)
    gain = free = worth = income = 0.0
    for used in (session(a, spec.clock.temporal) for a in spec.affordances):
        price = max(0.0, used.price - TOLERANCE)
        if price > 1.0:
            continue  # no purse ever holds that much
        best = used.best(meter.name)
        gain = max(gain, best)
        income = max(income, used.best(spec.currency) if spec.currency else 0.0)
        if price:
            worth = max(worth, best / price)
        else:
            free = max(free, best)
    purse = next((m.start for m in spec.meters if m.name == spec.currency), 0.0)
    by_gain = _falls(meter.start, loss - gain)
    by_purse = _falls(meter.start + worth * purse, loss - free - worth * income)
    if loss >= 1.0:
        by_gain = 1
    ends = [step for step in (by_gain, by_purse) if step is not None]
    dead_by = min(ends) if ends else None
    return Bound(meter.name, loss, gain, dead_by, broke=dead_by is not None and dead_by != by_gain)


def _falls(height: float, rate: float) -> int | None:
    """The first step after which `height`, falling by `rate` a step, is below 0."""
    steps = height / rate if rate > 0 else math.inf
    return math.floor(steps) + 1 if steps < 1e9 else None


def warnings(spec: WorldSpec) -> Iterator[str]:
    """What is allowed but probably not meant."""
    yield from _idle_meters(spec)
    if spec.currency is None:
        return
    for affordance in spec.affordances:
        price = session(affordance, spec.clock.temporal).price
        if price > 1.0 + TOLERANCE:
            cost = f"${price * spec.dollars:g} at once and no agent owns more than ${spec.dollars:g}"
            yield f"'{affordance.name}' can never be paid: it costs {cost}"
    if any(net_income(a, spec.currency) > 1e-9 for a in spec.affordances):
        return
    raises = {name: [a for a in spec.affordances if session_total(a).get(name, 0.0) > 1e-9] for name in spec.lethal}
    costly = [name for name, cures in raises.items() if all(a.price > 0 for a in cures)]
    if costly:
        yield (
            f"income cannot pay for ever: every cure of {' and '.join(costly)} costs {spec.currency} "
            "and no affordance leaves more of it than it takes"
        )


def _idle_meters(spec: WorldSpec) -> Iterator[str]:
    """Meters without any tie to the rest of the world, such as a misspelt change of an inherited one."""
    names = [m.name for m in spec.meters]
    tied = {*spec.lethal, spec.currency, *(name for a in spec.affordances for name in (*a.each_tick, *a.at_end))}
    links: tuple[Modulation | Cascade, ...] = (*spec.modulations, *spec.cascades)
    tied |= {name for link in links for name in (link.source, link.target)}
    for name in names:
        if name not in tied:
            near = nearest(name, [other for other in names if other != name])
            hint = f"; did you mean '{near}'?" if near else ""
            yield f"nothing raises the meter '{name}' and it touches no other{hint}"
