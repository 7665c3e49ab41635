"""The reference implementation: figures that can be checked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from reference import Town, shipped_document
from reference.grid import Grid

UP, DOWN, LEFT, RIGHT, INTERACT, WAIT = range(6)
EMPTY = 27  # x 3, y 3: an empty cell


def lifetime(town: Town, *actions: int) -> int:
    """Steps until the agent dies, repeating the actions."""
    while True:
        if town.step(actions[town.age % len(actions)]).terminated:
            return town.age


@pytest.fixture(scope="module")
def town_doc() -> dict[str, Any]:
    return shipped_document("town")


@pytest.mark.parametrize(("actions", "steps"), [((UP, DOWN), 100), ((LEFT,), 100), ((INTERACT,), 191), ((WAIT,), 164)])
def test_simple_policies_survive_the_known_number_of_steps(
    town_doc: dict[str, Any], actions: tuple[int, ...], steps: int
) -> None:
    assert lifetime(Town(town_doc, cell=EMPTY), *actions) == steps


def test_survival_of_the_last_step_is_truncated_and_death_is_terminated(town_doc: dict[str, Any]) -> None:
    for limit, terminated in ((100, True), (99, False)):
        town = Town(town_doc | {"max_steps": limit}, cell=EMPTY)
        for _ in range(limit):
            result = town.step(LEFT)
        assert (result.terminated, result.truncated) == (terminated, not terminated)


def test_milestones_from_age_zero_are_paid_for_the_first_step(town_doc: dict[str, Any]) -> None:
    town = Town(town_doc | {"rewards": [{"name": "milestone", "pay_first_step": True}]})
    assert [town.step(WAIT).reward for _ in range(12)] == [5.5, *[0.0] * 9, 0.5, 0.0]


def test_a_fixed_baseline_is_subtracted_from_the_age_at_the_end(town_doc: dict[str, Any]) -> None:
    town = Town(town_doc | {"max_steps": 3, "rewards": [{"name": "survival", "baseline": 100}]})
    assert [town.step(WAIT).reward for _ in range(3)] == [0.0, 0.0, -97.0]


def test_milestones_are_not_paid_after_death(town_doc: dict[str, Any]) -> None:
    town = Town(town_doc, cell=EMPTY)
    paid = [town.step(INTERACT).reward for _ in range(191)]
    assert {i + 1: p for i, p in enumerate(paid) if p} == {
        **dict.fromkeys(range(10, 191, 10), 0.5),
        100: 5.5,
        191: -100.0,
    }
    assert town.step(INTERACT).reward == 0


def test_instant_and_temporal_sessions_in_bed(town_doc: dict[str, Any]) -> None:
    instant = Town(town_doc, cell=9, meters=[0.3] + [0.5] * 7, multiplier=0)
    instant.step(INTERACT)
    slow = Town(town_doc | {"clock": {"temporal": True}}, cell=9, meters=[0.3] + [0.5] * 7, multiplier=0)
    seen = []
    for _ in range(5):
        slow.step(INTERACT)
        seen.append((slow.progress, slow.using))
    assert seen == [(1, 0), (2, 0), (3, 0), (4, 0), (0, 15)]
    assert slow.meters == pytest.approx(instant.meters)
    assert instant.meters[0] == pytest.approx(0.8)
    assert instant.meters[3] == pytest.approx(0.45)


@pytest.mark.parametrize("action", [LEFT, WAIT])
def test_anything_else_interrupts_a_session(town_doc: dict[str, Any], action: int) -> None:
    town = Town(town_doc | {"clock": {"temporal": True}}, cell=9)
    town.step(INTERACT)
    town.step(action)
    assert (town.progress, town.using) == (0, 15)


def test_observation_presets_have_the_known_sizes(town_doc: dict[str, Any]) -> None:
    sizes = {}
    for preset in ("full", "partial", "shuffled", "foggy"):
        for temporal in (False, True):
            doc = town_doc | {"observation": preset, "clock": {"temporal": temporal}}
            sizes[preset, temporal] = len(Town(doc, cell=0).observe())
    assert [sizes[p, t] for p in ("full", "partial") for t in (False, True)] == [88, 90, 51, 53]
    assert sizes["shuffled", False] == 88 + 64 * 16
    assert sizes["foggy", True] == 25 * 16 + 2 + 8 + 16 + 2


@pytest.mark.parametrize(("boundary", "minus", "plus"), [("clamp", 0, 3), ("wrap", 3, 0), ("bounce", 1, 2)])
def test_moves_off_the_edge(boundary: str, minus: int, plus: int) -> None:
    line = Grid((4,), boundary)
    assert (line.moved(0, 0, -1), line.moved(3, 0, 1)) == (minus, plus)


def test_moves_come_last_axis_first() -> None:
    cube = Grid((3, 4, 5), "clamp")
    middle = cube.flat([1, 1, 1])
    ends = [cube.coordinates(cube.moved(middle, axis, by)) for axis, by in cube.moves()]
    assert ends == [[1, 1, 0], [1, 1, 2], [1, 0, 1], [1, 2, 1], [0, 1, 1], [2, 1, 1]]


def test_windows_wrap_only_where_moves_do() -> None:
    assert Grid((4, 3), "clamp").window(0, 3) == [None, None, None, None, 0, 1, None, 4, 5]
    assert Grid((4, 3), "wrap").window(0, 3) == [11, 8, 9, 3, 0, 1, 7, 4, 5]
    assert Grid((4, 3, 2), "bounce").window(12, 3) == [None, None, None, None, 12, 13, None, 16, 17]
    assert Grid((4,), "clamp").window(3, 3) == [2, 3, None]
