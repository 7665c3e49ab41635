"""The map tables: moves, windows, distances, starts, and the world without a map."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from townlet.town.world import compile as grid
from townlet.town.world.load import from_text, load
from townlet.town.world.tables import Ints

BOUNDARIES = ("clamp", "wrap", "bounce")
SIZES = ((1,), (2,), (5,), (1, 1), (3, 4), (4, 1), (2, 3, 4), (3, 3, 1))


def test_moves_of_the_standard_map() -> None:
    tables = load("town").tables
    cell = 3 * 8 + 5  # x 5, y 3
    assert list(tables.next_cell[:, cell]) == [cell - 8, cell + 8, cell - 1, cell + 1, cell, cell]
    corner = list(tables.next_cell[:, 0]), list(tables.passable[:, 0])
    assert corner == ([0, 8, 0, 1, 0, 0], [0, 1, 0, 1, 1, 1])


def test_moves_through_floors_come_first() -> None:
    tables = load("town-house").tables
    cell = 1 + 8 * (2 + 8 * 1)
    assert list(tables.next_cell[:3, cell]) == [cell - 64, cell + 64, cell - 8]
    assert list(tables.passable[:2, 5]) == [0, 1]


@pytest.mark.parametrize(("boundary", "left_of_0", "right_of_3"), [("clamp", 0, 3), ("wrap", 3, 0), ("bounce", 1, 2)])
def test_moves_off_the_edge(boundary: str, left_of_0: int, right_of_3: int) -> None:
    leads, passable = grid.moves((4,), boundary)
    assert (leads[0, 0], leads[1, 3]) == (left_of_0, right_of_3)
    assert passable.all() == (boundary != "clamp")


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_single_cell_cannot_be_left(boundary: str) -> None:
    assert not grid.moves((1, 1), boundary)[0].any()


def _walked(leads: Ints, start: int) -> list[int]:
    """Fewest moves from a cell to every cell, by walking."""
    found, queue = {start: 0}, deque([start])
    while queue:
        cell = queue.popleft()
        for after in map(int, leads[:, cell]):
            if after not in found:
                found[after] = found[cell] + 1
                queue.append(after)
    return [found[cell] for cell in range(leads.shape[1])]


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("size", SIZES)
def test_distances_are_the_fewest_moves(size: tuple[int, ...], boundary: str) -> None:
    leads, _ = grid.moves(size, boundary)
    walked = [_walked(leads, cell) for cell in range(leads.shape[1])]
    np.testing.assert_array_equal(grid.distances(size, boundary), walked)


def test_window_runs_row_by_row_and_ends_at_the_edge() -> None:
    seen = grid.windows((4, 3), "clamp", 3)
    assert list(seen[0]) == [12, 12, 12, 12, 0, 1, 12, 4, 5]
    assert list(seen[5]) == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert list(grid.windows((4, 3), "bounce", 3)[0]) == list(seen[0])


def test_window_wraps_with_the_map() -> None:
    assert list(grid.windows((4, 3), "wrap", 3)[0]) == [11, 8, 9, 3, 0, 1, 7, 4, 5]


def test_window_of_a_line_is_a_line_and_of_a_house_one_floor() -> None:
    assert list(grid.windows((4,), "clamp", 3)[3]) == [2, 3, 4]
    assert list(grid.windows((3, 3, 2), "clamp", 3)[9 + 4]) == list(range(9, 18))


def test_cell_numbers_and_coordinates_are_inverse() -> None:
    for size in SIZES:
        for number, cell in enumerate(grid.coordinates(size)):
            assert grid.cell_number(tuple(map(int, cell)), size) == number


def test_position_is_scaled_by_the_size() -> None:
    np.testing.assert_allclose(grid.positions((3, 1))[:, 0], [0, 0.5, 1])
    assert not grid.positions((3, 1))[:, 1].any()


def test_fixed_layout_marks_cells_and_the_outside() -> None:
    tables = load("town").tables
    assert tables.kind_at[0, 9] == 0
    assert tables.kind_at[0, 0] == 15
    assert tables.kind_at[0, 64] == 16
    assert list(tables.kind_at[0, tables.cell_of[0]]) == list(range(15))


def test_start_is_random_or_a_cell() -> None:
    assert list(load("town").tables.start_cells) == list(range(64))
    assert list(load("town", ["map.start=[3, 2]"]).tables.start_cells) == [19]


def test_world_without_map_has_one_cell_per_affordance() -> None:
    tables = load("town-aspatial").tables
    assert list(tables.next_cell[4]) == [4] * 16
    assert list(tables.next_cell[15]) == list(range(16))
    assert list(tables.start_cells) == [15]
    assert list(tables.kind_at[0]) == list(range(17))
    assert tables.window_cell.shape == tables.position.shape == (16, 0)
    assert (tables.first_interact, tables.wait) == (0, 15)


def test_moves_and_waiting_cost_and_interacting_does_not() -> None:
    tables = load("town").tables
    np.testing.assert_array_equal(tables.action_cost[:4, 0], np.full(4, 0.005, dtype=np.float32))
    assert not tables.action_cost[4].any()
    assert tables.action_cost[5, 0] == np.float32(0.001)


def test_line_world_has_two_moves(small: str) -> None:
    text = small.replace("[4, 3]", "[6]").replace("[0, 0]", "[0]").replace("[3, 2]", "[5]")
    world = from_text(text.replace("  - meters", "  - meters\n  - window_typed\n").replace(", size: 3", ""))
    assert world.actions == ("LEFT", "RIGHT", "INTERACT", "WAIT")
    assert world.layout.block("window").shape == (5,)
    assert world.layout.block("window_typed").shape == (5, 3)


def test_clock_as_hour_or_on_a_circle() -> None:
    hour = load("town-l3")
    np.testing.assert_allclose(hour.tables.clock[:, 0], np.arange(24) / 24, atol=1e-7)
    circle = load("town-l3", ["observation=[meters, {name: clock, encoding: sincos}]"])
    np.testing.assert_allclose(circle.tables.clock[6], [1, 0], atol=1e-6)
    assert (circle.layout.block("clock").low, circle.layout.block("clock").size) == (-1.0, 2)


def test_restorers_and_distances_for_proximity() -> None:
    world = load("town", ["rewards=[proximity]"])
    restorers = {
        m: [world.affordances[a] for a in np.flatnonzero(row)]
        for m, row in zip(world.meters, world.tables.restores, strict=True)
    }
    assert restorers["energy"] == ["LuxuryBed"]
    assert restorers["money"] == ["Labor"]
    assert restorers["satiation"] == ["HomeMeal", "FastFood"]
    assert world.tables.distance_scale == pytest.approx(1 / 14)
    assert load("town").tables.distance.shape == (1, 1)


def test_survival_takes_the_first_lethal_meter_or_the_named_one() -> None:
    first = load("town", ["rewards=[survival]"]).tables
    assert (first.survival_decay, first.survival_move) == (0.005, 0.005)
    named = load("town", ["rewards=[{name: survival, meter: social}]"]).tables
    assert (named.survival_decay, named.survival_move) == (0.006, 0.0)
