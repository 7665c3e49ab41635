"""The shipped worlds, and the numbers that the specification states."""

from __future__ import annotations

import numpy as np
import pytest

from townlet.town.world.load import load, shipped
from townlet.town.world.tables import World

# name: (size, actions, values of an observation, max_steps)
WORLDS = {
    "town": ((8, 8), 6, 88, 500),
    "town-l0": ((5, 5), 6, 35, 300),
    "town-l0-dual": ((7, 7), 6, 62, 500),
    "town-l1": ((8, 8), 6, 88, 500),
    "town-l2": ((8, 8), 6, 51, 500),
    "town-l3": ((8, 8), 6, 53, 500),
    "town-shuffled": ((8, 8), 6, 64 + 8 + 16 + 64 * 16, 500),
    "town-foggy": ((8, 8), 6, 25 * 16 + 2 + 8 + 16, 500),
    "town-dark": ((4, 4), 6, 16 + 2 + 3, 300),
    "town-house": ((8, 8, 3), 8, 192 + 8 + 16, 500),
    "town-aspatial": ((), 16, 8 + 16, 500),
    "cascades-weak": ((8, 8), 6, 88, 500),
    "cascades-strong": ((8, 8), 6, 88, 500),
}
# affordance: (price of the session in dollars, change of meters)
SESSIONS = {
    "Bed": (5, {"energy": 0.5, "health": 0.02}),
    "LuxuryBed": (11, {"energy": 0.75, "health": 0.05}),
    "Shower": (3, {"hygiene": 0.4}),
    "HomeMeal": (3, {"satiation": 0.45, "health": 0.03}),
    "FastFood": (10, {"satiation": 0.45, "energy": 0.15, "social": 0.01, "fitness": -0.03, "health": -0.02}),
    "Job": (0, {"money": 0.225, "energy": -0.15, "social": 0.02, "health": -0.03}),
    "Labor": (0, {"money": 0.30, "energy": -0.2, "social": 0.01, "fitness": -0.05, "health": -0.05}),
    "Gym": (8, {"fitness": 0.3, "energy": -0.08}),
    "Bar": (15, {"social": 0.5, "mood": 0.25, "satiation": 0.3, "energy": -0.2, "hygiene": -0.15, "health": -0.05}),
    "Park": (0, {"fitness": 0.2, "social": 0.15, "mood": 0.15, "energy": -0.15}),
    "Recreation": (6, {"mood": 0.25, "social": 0.12}),
    "Therapist": (15, {"mood": 0.4}),
    "Doctor": (8, {"health": 0.25}),
    "Hospital": (15, {"health": 0.4}),
    "CoffeeShop": (2, {"energy": 0.15, "mood": 0.05, "social": 0.06}),
}


def test_every_world_of_the_specification_is_shipped() -> None:
    assert set(shipped()) == set(WORLDS)


@pytest.mark.parametrize("name", WORLDS)
def test_shipped_worlds_have_their_size_actions_and_observation(name: str) -> None:
    world = load(name)
    assert (world.size, len(world.actions), world.layout.size, world.spec.max_steps) == WORLDS[name]
    assert world.spec.description


def test_observation_sizes_with_time() -> None:
    assert load("town", ["clock.temporal=true"]).layout.size == 90
    assert load("town-aspatial", ["clock.temporal=true"]).layout.names == (
        "meters",
        "affordance_here",
        "clock",
        "progress",
    )


def test_actions_come_last_axis_first() -> None:
    assert load("town").actions == ("UP", "DOWN", "LEFT", "RIGHT", "INTERACT", "WAIT")
    assert load("town-house").actions[:3] == ("BELOW", "ABOVE", "UP")
    assert load("town-aspatial").actions[:2] == ("INTERACT Bed", "INTERACT LuxuryBed")


@pytest.mark.parametrize("name", SESSIONS)
def test_instant_totals_are_those_of_the_specification(name: str) -> None:
    world = load("town")
    a = world.affordances.index(name)
    dollars, changes = SESSIONS[name]
    expected = np.array([changes.get(m, 0.0) for m in world.meters], dtype=np.float32)
    for row in (2 * a, 2 * a + 1):
        np.testing.assert_array_equal(world.tables.effect[row], expected)
    assert world.tables.price[a] == np.float32(dollars / 100)
    assert world.tables.ticks[a] == 1
    assert world.tables.open_at[a].all()


def test_sessions_of_a_temporal_town_sum_to_the_same() -> None:
    instant, temporal = load("town-l2").tables, load("town-l3").tables
    n = (temporal.ticks[:-1] - 1)[:, None].astype(np.float64)
    np.testing.assert_allclose(n * temporal.effect[:-2:2] + temporal.effect[1:-2:2], instant.effect[:-2:2], atol=1e-6)
    np.testing.assert_allclose(temporal.price * temporal.ticks, instant.price, atol=1e-6)


def test_opening_hours_may_wrap_past_midnight() -> None:
    world = load("town-l3")
    opens = {name: list(np.flatnonzero(world.tables.open_at[i])) for i, name in enumerate(world.affordances)}
    assert opens["Bar"] == [0, 1, 2, 3, 18, 19, 20, 21, 22, 23]
    assert opens["Job"] == list(range(8, 18))
    assert opens["Bed"] == list(range(24))
    assert not world.tables.open_at[-1].any()


def test_cascades_are_halved_and_doubled() -> None:
    town, weak, strong = (load(name).tables for name in ("town", "cascades-weak", "cascades-strong"))
    np.testing.assert_allclose(weak.cascade_slope * 2, town.cascade_slope, rtol=1e-6)
    np.testing.assert_allclose(strong.cascade_slope, town.cascade_slope * 2, rtol=1e-6)
    np.testing.assert_allclose(town.cascade_slope[0], 0.004 / 0.3, rtol=1e-6)


def test_first_levels_have_their_affordances() -> None:
    def places(world: World) -> dict[str, int]:
        return dict(zip(world.affordances, map(int, world.tables.cell_of[0]), strict=True))

    assert places(load("town-l0")) == {"Bed": 2 + 5 * 2}
    assert places(load("town-l0-dual")) == {"Bed": 8, "HomeMeal": 36, "Job": 40, "Hospital": 12}


@pytest.mark.parametrize("name", WORLDS)
def test_tables_are_plain_contiguous_arrays_and_numbers(name: str) -> None:
    for field, value in load(name).tables._asdict().items():
        if isinstance(value, np.ndarray):
            assert value.dtype in (np.int32, np.float32), field
            assert value.flags.c_contiguous, field
            assert np.isfinite(value).all(), field
        else:
            assert type(value) in (int, float), field
