"""Whether agents can survive in a world, measured by simulation.

The passive player shows how long an idle agent survives, the planner how long survival is possible. With a raised step
limit, the planner also shows what an agent earns and spends per day.
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

RAISED_LIMIT: Final = 1500  # steps; long enough that income and spending become steady


@dataclass(frozen=True)
class SurvivalStats:
    """How long a player survived, one episode per row."""

    player: str
    limit: int  # age at which an episode was stopped
    ages: NDArray[np.int64]  # [N] at the end of each episode
    causes: tuple[str, ...]  # [N] the meter that was empty at death; "" if the episode reached the limit

    @property
    def mean(self) -> float:
        return float(self.ages.mean())

    @property
    def median(self) -> float:
        return float(np.median(self.ages))

    @property
    def reached(self) -> float:
        """The fraction of episodes that reached the limit."""
        return self.causes.count("") / len(self.causes)

    @property
    def deaths(self) -> dict[str, int]:
        """The number of deaths by cause, the most frequent first."""
        return dict(Counter(cause for cause in self.causes if cause).most_common())

    def until(self, limit: int) -> SurvivalStats:
        """The same episodes, stopped at an earlier limit."""
        ended = zip(self.ages.tolist(), self.causes, strict=True)
        causes = tuple(cause if age <= limit else "" for age, cause in ended)
        return SurvivalStats(self.player, limit, np.minimum(self.ages, limit), causes)


@dataclass(frozen=True)
class Feasibility:
    """Results of playing a world. Money is in the unit of the currency meter, a day is `clock.day` steps."""

    world: World
    passive: SurvivalStats
    planner: SurvivalStats
    long: SurvivalStats  # the planner with the raised limit
    income: float  # per day
    spending: float  # per day
    sustainable: bool  # half of the planner's episodes reach the raised limit, and income covers spending

    @property
    def livable(self) -> bool:
        """Whether any episode reaches max_steps, or the raised limit if that is lower."""
        return self.planner.reached > 0 or self.passive.reached > 0


class MoneyLog:
    """Records what all rows earn and spend in each step."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._before = self._money()
        self._steps: list[tuple[float, float, int]] = []  # earned, spent, rows alive

    def _money(self) -> NDArray[np.float32]:
        return np.array(self._engine.peek("meters")["meters"][:, self._engine.world.tables.currency])

    def update(self, alive: NDArray[np.bool_]) -> None:
        """Add the last step, which was played by the rows `alive`."""
        money = self._money()
        change = (money - self._before) * alive
        self._before = money
        earned, spent = float(np.maximum(change, 0).sum()), float(np.maximum(-change, 0).sum())
        self._steps.append((earned, spent, int(alive.sum())))

    def per_day(self) -> tuple[float, float, float]:
        """(income per day, spending per day, days) over the second half of the steps, when both are steady."""
        later, day = self._steps[len(self._steps) // 2 :], int(self._engine.world.tables.day)
        earned, spent, alive = (sum(step[i] for step in later) for i in range(3))
        return day * earned / max(alive, 1), day * spent / max(alive, 1), len(later) / day


def measure_survival(world: World, player: Player, rows: int, key: int, limit: int | None = None) -> SurvivalStats:
    """Simulate one episode per row, each until death or the limit (by default the world's max_steps)."""
    return _play(world, player, rows, key, limit or int(world.tables.max_steps))[0]


def _play(world: World, player: Player, rows: int, key: int, limit: int) -> tuple[SurvivalStats, MoneyLog]:
    tables = world.tables._replace(max_steps=limit, age_share=1 / limit)
    engine = make_engine(replace(world, tables=tables), rows, autoreset=False)
    engine.reset(key)
    money = MoneyLog(engine)
    for _ in range(limit):
        alive = ~to_numpy(engine.terminated)
        if not alive.any():
            break
        engine.step(player.act(engine))
        money.update(alive)
    names = (*cause_names(world)[:-1], "")
    causes = tuple(names[code] for code in cause_codes(world, engine.peek("meters")["meters"]).tolist())
    stats = SurvivalStats(player.name, limit, engine.peek()["age"].astype(np.int64), causes)
    engine.close()
    return stats, money


def assess(world: World, rows: int = 64) -> Feasibility:
    """Simulate a world with the passive player and, with the raised step limit, with the planner."""
    limit = min(int(world.tables.max_steps), RAISED_LIMIT)
    passive = measure_survival(world, PassivePlayer(world), rows, 0, limit)
    long, money = _play(world, PlannerPlayer(world), rows, 0, RAISED_LIMIT)
    income, spending, days = money.per_day() if world.spec.currency is not None else (0.0, 0.0, 0.0)
    # Income may fall short by one day's spending: the measured steps may begin in the evening, when an agent owns more,
    # and end in the morning.
    covered = income * days + spending >= spending * days
    sustainable = bool(long.reached >= 0.5 and covered)
    return Feasibility(world, passive, long.until(limit), long, income, spending, sustainable)


def feasibility_report(result: Feasibility) -> RenderableType:
    """The results as a table and a few sentences."""
    from rich.console import Group
    from rich.text import Text

    survival, *money = survival_sentences(result)
    lines = [Text(survival, style="" if result.livable else "red")]
    lines += [Text(text, style="" if result.sustainable else "yellow") for text in money]
    long = replace(result.long, player=f"{result.long.player}, limit {RAISED_LIMIT}")
    return Group(survival_table(result.world.name, (result.passive, result.planner, long)), *lines)


def survival_table(title: str, players: Sequence[SurvivalStats]) -> Table:
    """One line per player: length of its episodes, fraction that reached the limit, causes of death."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("player")
    for heading in ("episodes", "mean length", "median length", "reached the limit"):
        table.add_column(heading, justify="right")
    table.add_column("died of")
    for s in players:
        deaths = ", ".join(f"{name} {n}" for name, n in s.deaths.items()) or "–"
        reached = f"{s.reached:.0%} of {s.limit}"
        table.add_row(s.player, str(len(s.ages)), f"{s.mean:.0f}", f"{s.median:.0f}", reached, deaths)
    return table


def survival_sentences(result: Feasibility) -> list[str]:
    """How long scripted agents survive and, in a world with money, whether income covers spending."""
    money = [] if result.world.spec.currency is None else [_money_text(result)]
    return [_survival_text(result), *money]


def _survival_text(result: Feasibility) -> str:
    planned, limit = result.planner, result.planner.limit
    if result.passive.reached == 1:
        return f"An agent that only waits reaches {limit} steps: there is nothing to learn here."
    waiting = f"An agent that only waits survives {result.passive.median:.0f} steps"
    if not result.livable:
        return f"{waiting}. No episode reached {limit} steps: even the planner survives only {planned.median:.0f}."
    return f"{waiting}; with the planner, {planned.reached:.0%} of episodes reach {limit} steps."


def _money_text(result: Feasibility) -> str:
    dollars = result.world.spec.dollars
    income, spending = f"${result.income * dollars:.2f}", f"${result.spending * dollars:.2f}"
    day = f"A day of {int(result.world.tables.day)} steps earns {income} and costs {spending}"
    if result.sustainable:
        if result.income < result.spending:
            return f"{day}. The two are about even, so income is sustainable."
        return f"{day}: income is sustainable."
    if result.long.reached >= 0.5:
        return f"{day}: income is not sustainable."
    return f"{day}; with the limit raised to {RAISED_LIMIT}, the planner dies after {result.long.median:.0f} steps."
