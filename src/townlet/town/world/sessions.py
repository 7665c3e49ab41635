"""What using an affordance does, by tick and by session, in float64 from the figures of the file."""

from __future__ import annotations

from dataclasses import dataclass

from townlet.town.world.schema import Affordance, WorldSpec


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


def total(affordance: Affordance) -> dict[str, float]:
    """Change of each meter by a whole session, the price left out; the same with time on and off."""
    return _sum(affordance, affordance.ticks)


def session(affordance: Affordance, temporal: bool) -> Session:
    """The session as it is played with time on or off."""
    if temporal:
        return Session(affordance.ticks, affordance.price, dict(affordance.each_tick), _sum(affordance, 1))
    whole = total(affordance)
    return Session(1, affordance.price * affordance.ticks, whole, whole)


def net_income(affordance: Affordance, currency: str) -> float:
    """What a whole session leaves in the purse."""
    return total(affordance).get(currency, 0.0) - affordance.price * affordance.ticks


def cures(spec: WorldSpec, meter: str) -> list[int]:
    """The affordances whose session raises a meter most; none when no session raises it."""
    gains = [total(a).get(meter, 0.0) for a in spec.affordances]
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
