"""Feasibility of a world: how long players survive, and whether a day pays for itself."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from rich.console import Console

from townlet.town.feasibility import RAISED_LIMIT, Feasibility, SurvivalStats, assess, feasibility_report
from townlet.town.world.load import load


@cache
def assessed(world: str, *overrides: str) -> Feasibility:
    return assess(load(world, overrides), rows=16)


def rendered(renderable: object) -> str:
    """The printed text in one line."""
    console = Console(width=200)
    with console.capture() as capture:
        console.print(renderable)
    return " ".join(capture.get().split())


def test_town_is_sustainable() -> None:
    found = assessed("town")
    assert found.passive.median == 164
    assert found.passive.deaths == {"energy": 16}
    assert found.planner.limit == 500
    assert found.planner.reached == 1
    assert found.long.median == RAISED_LIMIT
    assert found.livable
    assert found.sustainable
    assert 0.1 < found.spending < 0.3
    assert found.income == pytest.approx(found.spending, rel=0.1)


def test_town_without_work_is_not_sustainable() -> None:
    found = assessed("town-l0")
    assert found.livable
    assert found.planner.reached == 1
    assert found.income == 0
    assert found.spending > 0
    assert not found.sustainable
    assert found.long.deaths == {"energy": 16}


def test_too_hard_town_is_reported() -> None:
    found = assessed("town", "meters.energy.decay=.08")
    assert not found.livable
    text = rendered(feasibility_report(found))
    assert "No episode reached 500 steps" in text
    assert f"even the planner survives only {found.planner.median:.0f}" in text


def test_higher_bed_price_raises_the_price_of_a_day() -> None:
    assert assessed("town-l0-dual", "affordances.Bed.price=.016").spending > assessed("town-l0-dual").spending


def test_assessment_is_deterministic() -> None:
    first, second = assessed("town-l0"), assess(load("town-l0"), rows=16)
    assert (first.long.ages == second.long.ages).all()
    assert (first.income, first.spending) == (second.income, second.spending)


def test_world_without_currency_reports_no_money() -> None:
    found = assessed("town-l0", "currency=null", "affordances.Bed.price=0")
    assert (found.planner.reached, found.passive.reached) == (1, 0)
    assert (found.income, found.spending) == (0, 0)
    assert "$" not in rendered(feasibility_report(found))


def test_report_shows_survival_and_money() -> None:
    text = rendered(feasibility_report(assessed("town-l0-dual")))
    assert "An agent that only waits survives 164 steps; with the planner, 100% of episodes reach 500 steps." in text
    assert "A day of 24 steps earns $" in text
    assert "income is sustainable" in text


def test_world_without_challenge_is_reported() -> None:
    assert "reaches 100 steps: there is nothing to learn here" in rendered(
        feasibility_report(assessed("town", "max_steps=100"))
    )


def test_earlier_limit_drops_later_deaths() -> None:
    stats = SurvivalStats("player", 100, np.array([30, 50, 80, 100]), ("energy", "health", "energy", ""))
    assert stats.reached == 0.25
    assert stats.deaths == {"energy": 2, "health": 1}
    early = stats.until(50)
    assert early.ages.tolist() == [30, 50, 50, 50]
    assert early.deaths == {"energy": 1, "health": 1}  # a death in the last step is not reaching the limit
    assert early.reached == 0.5
