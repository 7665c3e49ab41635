"""Keypoints: positions relative to the agent."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nets.layouts import law, make
from townlet.errors import TownletError
from townlet.interfaces.layout import ObservationLayout
from townlet.nets.keypoints import Keypoints
from townlet.nets.spec import KeypointsSpec
from townlet.town.env import Town
from townlet.town.world.load import load

SIDE, KINDS = 8, 4  # the last kind is "none"
Cell = tuple[int, int]

cells = st.tuples(st.integers(0, SIDE - 1), st.integers(0, SIDE - 1))


def on_map(own: Cell, places: dict[int, Cell], position: str = "position_onehot") -> tuple[ObservationLayout, Tensor]:
    """Layout of a fully observable town of 8×8."""
    size = SIDE * SIDE if position == "position_onehot" else 2
    layout = ObservationLayout.of(
        (position, (size,), 0.0, 1.0), ("meters", (2,), 0.0, 1.0), ("map_typed", (SIDE, SIDE, KINDS), 0.0, 1.0)
    )
    obs = torch.zeros(1, layout.size)
    if position == "position_onehot":
        layout.view(obs, position)[0, own[1] * SIDE + own[0]] = 1
    else:
        layout.view(obs, position)[0] = torch.tensor(own) / (SIDE - 1)
    layout.view(obs, "meters")[0] = torch.tensor([0.25, 0.75])
    kind_at = {cell: kind for kind, cell in places.items()}
    for y in range(SIDE):
        for x in range(SIDE):
            layout.view(obs, "map_typed")[0, y, x, kind_at.get((x, y), KINDS - 1)] = 1
    return layout, obs


def read(layout: ObservationLayout, obs: Tensor) -> Tensor:
    """Keypoints of the one typed block, at the end of the features: [dx, dy, seen] by kind."""
    kinds = layout.blocks[-1].shape[-1] - 1
    features: Tensor = Keypoints(KeypointsSpec(), layout)(obs)
    return features[0, -3 * kinds :].reshape(3, kinds)


def test_offsets_by_hand() -> None:
    layout, obs = on_map((2, 5), {0: (4, 5), 1: (0, 7), 2: (2, 5)})
    features = Keypoints(KeypointsSpec(), layout)(obs)[0]
    assert features[:2].tolist() == [0.25, 0.75]  # meters as they are
    assert features[2:4].tolist() == pytest.approx([2 / 7, 5 / 7])  # own place
    assert features[4:].tolist() == [2 / 8, -2 / 8, 0, 0, 2 / 8, 0, 1, 1, 1]
    assert features.shape == (4 + 9,)


def test_things_not_on_the_map_have_no_offset() -> None:
    assert read(*on_map((2, 5), {0: (4, 5), 2: (2, 6)})).t().tolist() == [[2 / 8, 0, 1], [0, 0, 0], [0, 1 / 8, 1]]


@law
@given(st.lists(cells, min_size=4, max_size=4, unique=True), cells)
def test_moving_one_thing_moves_only_its_keypoint(places: list[Cell], own: Cell) -> None:
    *stay, new = places
    before = read(*on_map(own, dict(enumerate(stay))))
    after = read(*on_map(own, {0: stay[0], 1: new, 2: stay[2]}))
    assert torch.equal(before[:, [0, 2]], after[:, [0, 2]])
    assert not torch.equal(before[:, 1], after[:, 1])


@law
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=3, unique=True),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.sampled_from(("position_onehot", "position")),
)
def test_same_situation_elsewhere_gives_the_same_offsets(places: list[Cell], by: Cell, position: str) -> None:
    moved = [(x + by[0], y + by[1]) for x, y in places]
    here = read(*on_map((1, 2), dict(enumerate(places)), position))
    there = read(*on_map((1 + by[0], 2 + by[1]), dict(enumerate(moved)), position))
    torch.testing.assert_close(here, there, atol=1e-6, rtol=0)
    if position == "position_onehot":
        assert torch.equal(here, there)


def test_window_shows_only_nearby_things() -> None:
    layout = ObservationLayout.of(("position", (2,), 0.0, 1.0), ("window_typed", (5, 5, 3), 0.0, 1.0))
    obs = torch.zeros(1, layout.size)
    layout.view(obs, "window_typed")[0, 3, 4, 0] = 1  # two to the right, one down
    obs[0, :2] = torch.tensor([0.5, 1.0])
    features = Keypoints(KeypointsSpec(), layout)(obs)[0]
    assert features.tolist() == pytest.approx([0.5, 1.0, 2 / 5, 0, 1 / 5, 0, 1, 0])


def test_one_and_three_dimensional_maps_have_as_many_offsets() -> None:
    corridor = ObservationLayout.of(("position_onehot", (4,), 0.0, 1.0), ("map_typed", (4, 2), 0.0, 1.0))
    obs = torch.zeros(1, corridor.size)
    obs[0, 3] = corridor.view(obs, "map_typed")[0, 1, 0] = 1
    assert Keypoints(KeypointsSpec(), corridor)(obs)[0].tolist() == pytest.approx([1.0, -2 / 4, 1])
    tower = ObservationLayout.of(("position", (3,), 0.0, 1.0), ("map_typed", (2, 3, 4, 2), 0.0, 1.0))  # 4 × 3 × 2
    obs = torch.zeros(1, tower.size)
    layout_cell = tower.view(obs, "map_typed")
    layout_cell[0, 1, 2, 0, 0] = 1
    obs[0, :3] = torch.tensor([1.0, 0.5, 0.0])  # x 3, y 1, z 0
    assert Keypoints(KeypointsSpec(), tower)(obs)[0, 3:].tolist() == pytest.approx([-3 / 4, 1 / 3, 1 / 2, 1])


def test_keypoints_follow_the_agent_through_a_town() -> None:
    world = load("town-shuffled")
    town = Town(world, 6, engine="torch")
    seen = town.reset(4)
    right = torch.full((6,), world.actions.index("RIGHT"))
    body = Keypoints(KeypointsSpec(), world.layout)
    kinds = len(world.affordances)
    before, can = body(seen.obs.clone())[:, -3 * kinds :].unflatten(1, (3, kinds)), seen.mask[:, right[0]].clone()
    after = body(town.step(right).obs)[:, -3 * kinds :].unflatten(1, (3, kinds))
    assert can.any()
    assert torch.equal(after[:, 0], before[:, 0] - can[:, None] / 8)
    assert torch.equal(after[:, 1:], before[:, 1:])
    assert (after[:, 2] == 1).all()
    for row, cell in enumerate(town.engine.state()["cell"].tolist()):
        there = world.layout.view(seen.obs, "map_typed")[row].flatten(0, 1)[cell].argmax()
        if there < kinds:  # the distance to an affordance at the agent's own cell is 0
            assert not after[row, :2, there].any()
    town.close()


def test_town_without_kinds_is_rejected() -> None:
    with pytest.raises(TownletError, match=r"needs a block window_typed or map_typed.*use mlp"):
        make(KeypointsSpec(), load("town").layout)
