"""Every line of the affordance, decay and cascade tables, checked by playing it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from golden.figures import CASCADES, LOSSES, METERS, PLACES, SESSIONS, Place
from golden.players import DOWN, INTERACT, LEFT, NONE, RIGHT, UP, WAIT, After, Moment, by_engine, by_reference

Player = Callable[[Moment, int], After]

pytestmark = pytest.mark.parametrize("play", [by_engine, by_reference])
each_place = pytest.mark.parametrize("place", PLACES, ids=lambda p: p.name)


def summed(*parts: Mapping[str, float]) -> dict[str, float]:
    return {m: sum(p.get(m, 0.0) for p in parts) for m in METERS}


def cell(place: Place) -> int:
    return place.y * 8 + place.x


def is_open(place: Place, hour: int) -> bool:
    first, last = place.hours
    return first <= hour < last if first < last else not last <= hour < first


def happened(after: After) -> bool:
    return any(abs(v) > 1e-6 for v in after.change.values())


@each_place
def test_each_tick_has_the_effects_of_the_table(play: Player, place: Place) -> None:
    number = PLACES.index(place)
    for done in range(place.ticks):
        using = number if done else NONE
        moment = Moment(cell(place), temporal=True, hour=place.hours[0], progress=done, using=using)
        after = play(moment, INTERACT)
        last = done + 1 == place.ticks
        expected = summed(place.each_tick, {"money": -place.price}, place.at_end if last else {})
        assert after.change == pytest.approx(expected, abs=1e-6)
        assert (after.progress, after.using) == ((0, NONE) if last else (done + 1, number))


@each_place
def test_untimed_session_has_the_total_effects(play: Player, place: Place) -> None:
    # A session in the LuxuryBed gives .75 energy, Labor takes .2.
    after = play(Moment(cell(place), meters={"energy": 0.24}), INTERACT)
    ticks = {m: v * place.ticks for m, v in place.each_tick.items()}
    assert after.change == pytest.approx(summed(ticks, place.at_end, {"money": -place.price * place.ticks}), abs=1e-6)
    assert (after.progress, after.using) == (0, NONE)
    for meter, total in SESSIONS.get(place.name, {}).items():
        assert after.change[meter] == pytest.approx(total, abs=1e-6)


@each_place
def test_affordances_are_open_at_their_hours(play: Player, place: Place) -> None:
    for hour in range(24):
        after = play(Moment(cell(place), temporal=True, hour=hour), INTERACT)
        assert after.allowed == is_open(place, hour)
        assert happened(after) == is_open(place, hour)
        assert play(Moment(cell(place), hour=hour), INTERACT).allowed, "hours matter only in time"


@each_place
def test_exact_price_suffices_and_less_does_not(play: Player, place: Place) -> None:
    if not place.price:
        assert happened(play(Moment(cell(place), meters={"money": 0.0}), INTERACT))
        return
    price = place.price * place.ticks
    for short, works in ((0.0, True), (4e-5, True), (6e-5, False)):
        after = play(Moment(cell(place), meters={"money": price - short}), INTERACT)
        assert happened(after) == works
        assert after.allowed, "being broke is not masked"


@pytest.mark.parametrize("meter", METERS)
def test_step_drains_meters_as_in_the_table(play: Player, meter: str) -> None:
    _, decay, move, wait = LOSSES[meter]
    if meter == "health":
        decay = 0.001 * (0.5 + 2.5 * 0.5)
    # Fitness decays first; the loss of health follows from the result.
    near = 6e-6 if meter == "health" else 1e-6
    for scale in (1.0, 0.5):
        moment = Moment(multiplier=scale)
        assert play(moment, INTERACT).change[meter] == pytest.approx(-decay * scale, abs=near)
        assert play(moment, WAIT).change[meter] == pytest.approx(-decay * scale - wait, abs=near)
        for action in (UP, DOWN, LEFT, RIGHT):
            assert play(moment, action).change[meter] == pytest.approx(-decay * scale - move, abs=near)


@pytest.mark.parametrize(("fitness", "loss"), [(1.0, 0.0005), (0.0, 0.003)])
def test_health_decays_by_fitness(play: Player, fitness: float, loss: float) -> None:
    after = play(Moment(multiplier=1.0, meters={"fitness": fitness}), INTERACT)
    assert after.change["health"] == pytest.approx(-loss, abs=6e-6)


@pytest.mark.parametrize(("source", "target", "strength"), CASCADES, ids=lambda v: str(v))
def test_cascades_drain_meters_as_in_the_table(play: Player, source: str, target: str, strength: float) -> None:
    for level in (0.0, 0.1, 0.29, 0.3, 0.4):
        after = play(Moment(meters={source: level}), INTERACT)
        assert after.change[target] == pytest.approx(-strength * max(0.0, 0.3 - level) / 0.3, abs=1e-6)


def test_cascades_read_the_results_of_earlier_ones(play: Player) -> None:
    # Hygiene pulls mood below its threshold, but the cascade from mood to energy has already run.
    after = play(Moment(meters={"hygiene": 0.0, "mood": 0.3}), INTERACT)
    assert after.change["mood"] == pytest.approx(-0.003, abs=1e-6)
    assert after.change["energy"] == pytest.approx(-0.0005, abs=1e-6)
    # Decay comes before cascades: satiation falls below its threshold within the step.
    after = play(Moment(multiplier=1.0, meters={"satiation": 0.3, "fitness": 1.0}), INTERACT)
    assert after.change["energy"] == pytest.approx(-0.005 - 0.005 * 0.004 / 0.3, abs=1e-6)


def test_meters_stay_in_range(play: Player) -> None:
    # The Bar takes more energy than is left and gives more social than fits.
    bar = PLACES[8]
    after = play(Moment(cell(bar), meters={"energy": 0.1, "social": 0.9}), INTERACT)
    assert after.change["energy"] == pytest.approx(-0.1, abs=1e-6)
    assert after.change["social"] == pytest.approx(0.1, abs=1e-6)
