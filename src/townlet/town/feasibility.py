"""Can one live here? Found by playing the compiled rules, not by reasoning about them.

A passive agent shows how long a life lasts by itself; the planner how long it can last, and, with the
limit of an episode lifted, what a day earns and costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from townlet.town.engines.engine import Engine, make_engine
from townlet.town.planner import PassivePlayer, PlannerPlayer, Player
from townlet.town.state import cause_codes, cause_names, to_numpy
from townlet.town.world.tables import World

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

LONG: Final = 1500  # steps of a long life, with the limit lifted


@dataclass(frozen=True)
class SurvivalStats:
    """How long a player's lives were, one life per row."""

    player: str
    limit: int  # age at which a life was stopped
    ages: NDArray[np.int64]  # [N] at the end of each life
    causes: tuple[str, ...]  # [N] the meter that was empty at death; "" for a life that reached the limit

    @property
    def mean(self) -> float:
        return float(self.ages.mean())

    @property
    def median(self) -> float:
        return float(np.median(self.ages))

    @property
    def reached(self) -> float:
        """The share of lives that reached the limit."""
        return self.causes.count("") / len(self.causes)

    @property
    def deaths(self) -> dict[str, int]:
        """How often each cause ended a life, the most frequent first."""
        return dict(Counter(cause for cause in self.causes if cause).most_common())

    def until(self, limit: int) -> SurvivalStats:
        """The same lives, stopped at an earlier limit."""
        causes = tuple(
            cause if age <= limit else "" for age, cause in zip(self.ages.tolist(), self.causes, strict=True)
        )
        return SurvivalStats(self.player, limit, np.minimum(self.ages, limit), causes)


@dataclass(frozen=True)
class Feasibility:
    """What playing tells about a world. Money is in the unit of the currency meter, a day is `clock.day` steps."""

    world: World
    passive: SurvivalStats
    planner: SurvivalStats
    long: SurvivalStats  # the planner with the limit lifted
    income: float  # earned in a day
    price: float  # spent in a day
    pays_for_ever: bool  # long lives go on, and income covers the price

    @property
    def livable(self) -> bool:
        """Whether some life reaches the limit."""
        return self.planner.reached > 0 or self.passive.reached > 0


@dataclass
class MoneyLog:
    """Keeps account of what rows earn and spend, step by step."""

    engine: Engine
    earned: list[float]
    spent: list[float]
    living: list[int]

    @classmethod
    def of(cls, engine: Engine) -> MoneyLog:
        return cls(engine, [], [], [])

    def content(self) -> NDArray[np.float32]:
        """What each row owns [N]."""
        return np.array(self.engine.peek("meters")["meters"][:, self.engine.world.tables.currency])

    def book(self, before: NDArray[np.float32], alive: NDArray[np.bool_]) -> None:
        """Note one step: what was owned before it, and which rows it was played by."""
        change = (self.content() - before) * alive
        self.earned.append(float(np.maximum(change, 0).sum()))
        self.spent.append(float(np.maximum(-change, 0).sum()))
        self.living.append(int(alive.sum()))

    def per_day(self) -> tuple[float, float, float]:
        """(income, price, days played by a row) in the later half, when life has found its rhythm."""
        start, day = len(self.living) // 2, int(self.engine.world.tables.day)
        steps = max(sum(self.living[start:]), 1)
        earned, spent = sum(self.earned[start:]), sum(self.spent[start:])
        return day * earned / steps, day * spent / steps, (len(self.living) - start) / day


def with_max_steps(world: World, steps: int) -> World:
    """The same world with another limit of an episode."""
    return replace(world, tables=world.tables._replace(max_steps=steps, age_share=1 / steps))


def measure_survival(world: World, player: Player, rows: int, key: int, limit: int | None = None) -> SurvivalStats:
    """One life in each row, each until death or the limit (by default the world's max_steps)."""
    return _play(world, player, rows, key, limit or int(world.tables.max_steps))[0]


def _play(world: World, player: Player, rows: int, key: int, limit: int) -> tuple[SurvivalStats, MoneyLog]:
    engine = make_engine(with_max_steps(world, limit), rows, autoreset=False)
    engine.reset(key)
    purse = MoneyLog.of(engine)
    for _ in range(limit):
        alive = ~to_numpy(engine.terminated)
        if not alive.any():
            break
        before = purse.content()
        engine.step(player.act(engine))
        purse.book(before, alive)
    ages = engine.peek()["age"].astype(np.int64)
    survival = SurvivalStats(player.name, limit, ages, _causes(engine))
    engine.close()
    return survival, purse


def _causes(engine: Engine) -> tuple[str, ...]:
    """The empty meter of each dead row, the first where several are; "" for the living."""
    names = (*cause_names(engine.world)[:-1], "")
    return tuple(names[code] for code in cause_codes(engine.world, engine.peek("meters")["meters"]).tolist())


def assess(world: World, rows: int = 64, seed: int = 0) -> Feasibility:
    """Play the world: a passive agent to its end, the planner through long lives."""
    limit = min(int(world.tables.max_steps), LONG)
    passive = measure_survival(world, PassivePlayer(world), rows, seed, limit)
    long, purse = _play(world, PlannerPlayer(world), rows, seed, LONG)
    income, price, days = purse.per_day() if world.spec.currency is not None else (0.0, 0.0, 0.0)
    # Over the days measured the purse may lose what one day costs: it is fuller in the evening than in the morning.
    covered = income * days + price >= price * days
    return Feasibility(
        world=world,
        passive=passive,
        planner=long.until(limit),
        long=long,
        income=income,
        price=price,
        pays_for_ever=bool(long.reached >= 0.5 and covered),
    )


def report(world: World) -> RenderableType:
    """How long one lives in a world and what a day costs, for a person."""
    return feasibility_report(assess(world))


def feasibility_report(found: Feasibility) -> RenderableType:
    """A study as a table and a few sentences."""
    from rich.console import Group
    from rich.text import Text

    lines = [Text(_living(found), style="" if found.livable else "red")]
    if found.world.spec.currency is not None:
        lines.append(Text(_money(found), style="" if found.pays_for_ever else "yellow"))
    long = replace(found.long, player=f"{found.long.player}, limit lifted")
    return Group(survival_table(found.world.name, (found.passive, found.planner, long)), *lines)


def survival_table(title: str, lives: Sequence[SurvivalStats]) -> Table:
    """One line for each player: how long it lives, how often to the limit, what kills it."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("player")
    for heading in ("lives", "mean", "median", "reached the limit"):
        table.add_column(heading, justify="right")
    table.add_column("died of")
    for s in lives:
        deaths = ", ".join(f"{name} {n}" for name, n in s.deaths.items()) or "–"
        reached = f"{s.reached:.0%} of {s.limit}"
        table.add_row(s.player, str(len(s.ages)), f"{s.mean:.0f}", f"{s.median:.0f}", reached, deaths)
    return table


def _living(found: Feasibility) -> str:
    alone, planned, limit = found.passive.median, found.planner, found.planner.limit
    begin = f"An agent that only waits lives {alone:.0f} steps"
    if not found.livable:
        return f"{begin}. No life reached {limit} steps: even the planner lives only {planned.median:.0f}."
    if found.passive.reached == 1:
        return f"An agent that only waits reaches {limit} steps: nothing needs to be learned here."
    return f"{begin}; planning, {planned.reached:.0%} of lives reach {limit}."


def _money(found: Feasibility) -> str:
    dollars = found.world.spec.dollars
    income, price = f"${found.income * dollars:.2f}", f"${found.price * dollars:.2f}"
    day = f"A day of {int(found.world.tables.day)} steps earns {income} and costs {price}"
    if found.pays_for_ever:
        return f"{day}: {'that is about even, and ' if found.income < found.price else ''}income can pay for ever."
    if found.long.reached >= 0.5:
        return f"{day}: income does not pay for ever."
    return f"{day}; the planner's lives end after {found.long.median:.0f} steps when the limit is lifted."
