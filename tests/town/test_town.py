"""The town beyond the VecEnv interface: causes of endings, settings of some rows, shuffled layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import townlet
from townlet.errors import TownletError
from townlet.town.env import Town
from townlet.town.feasibility import measure_survival
from townlet.town.planner import PassivePlayer
from townlet.town.world.load import load, shipped

KINDS = ("numba", "torch")
WAIT = 5


@pytest.mark.parametrize("kind", KINDS)
def test_causes_name_the_empty_meter_or_time(kind: str) -> None:
    town = Town(load("town", ["max_steps=9"]), 5, engine=kind)
    assert town.cause_names == ("energy", "health", "time")
    town.reset(0)
    meters = np.tile(town.world.tables.start, (5, 1))
    meters[0, 0] = meters[1, 6] = meters[2, 0] = meters[2, 6] = 1e-4
    age = np.array([0, 0, 8, 8, 0])
    town.restore(dict(town.state()) | {"meters": meters, "age": age})
    town.step(torch.full((5,), WAIT))
    ended = town.final_obs()
    assert ended.rows.tolist() == [0, 1, 2, 3]
    # A death of both meters, or in the last step, counts as the first.
    assert [town.cause_names[code] for code in town.causes(ended)] == ["energy", "health", "energy", "time"]
    assert town.final_meters(ended)[:3, [0, 6]].min(dim=1).values.tolist() == [0, 0, 0]
    town.step(torch.full((5,), WAIT))
    assert town.causes(town.final_obs()).tolist() == []


def test_survival_stats_have_the_same_causes() -> None:
    found = measure_survival(load("town"), PassivePlayer(load("town")), 3, key=1)
    assert found.causes == ("energy",) * 3
    assert measure_survival(load("town"), PassivePlayer(load("town")), 3, key=1, limit=20).causes == ("",) * 3


def play(town: Town, steps: int = 3) -> dict[str, Any]:
    for _ in range(steps):
        step = town.step(torch.full((town.rows,), WAIT))
    return dict(town.state()) | {name: values.clone() for name, values in step._asdict().items() if values is not None}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("choice", [np.array([5, 2]), torch.tensor([5, 2]), [5, 2]])
def test_settings_of_some_rows_equal_settings_of_all(kind: str, choice: Any) -> None:
    some = {
        "multiplier": torch.tensor([0.2, 3.0]),
        "active": torch.tensor([0b11000001, 0b11110111]),
        "reward_mix": torch.tensor([[1.0, 0.0], [0.5, 2.0]]),
    }
    world = load("town", ["rewards=[milestone, vitality]"])
    one, two = Town(world, 6, engine=kind), Town(world, 6, engine=kind)
    one.reset(1)
    two.reset(1)
    play(one, 5)
    play(two, 5)
    one.set(rows=choice, **some)
    whole = {name: np.array(one.engine.state()[name]) for name in some}
    assert whole["multiplier"].tolist() == pytest.approx([1, 1, 3, 1, 1, 0.2])
    assert whole["active"].tolist() == [255, 255, 0b11110111, 255, 255, 0b11000001]
    two.set(**whole)
    a, b = play(one), play(two)
    for name, values in a.items():
        np.testing.assert_array_equal(values, b[name], err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_settings_do_not_change_the_last_step(kind: str) -> None:
    """A curriculum changes rows that have just ended; which ones ended must stay known."""
    town = Town(load("town", ["max_steps=2"]), 3, engine=kind)
    town.reset(2)
    for _ in range(2):
        step = town.step(torch.full((3,), WAIT))
    town.set(rows=[0], multiplier=np.array([0.5]))
    town.set(multiplier=np.ones(3))
    assert step.truncated.all()
    assert town.final_obs().rows.tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [None, [1]])
def test_mask_depends_on_the_active_meters(kind: str, rows: list[int] | None) -> None:
    """An agent without money cannot buy; with the currency frozen everything is free."""
    town = Town(load("town-aspatial", ["mask_unaffordable=true"]), 2, engine=kind)
    town.reset(3)
    town.restore(dict(town.state()) | {"meters": np.zeros((2, 8)) + 0.5 * (np.arange(8) != 3)})
    bed = town.actions.names.index("INTERACT Bed")
    assert not town.engine.mask[:, bed].any()
    without_money = 255 & ~(1 << 3)
    seen = town.set(rows=rows, active=np.array([255, without_money][rows is not None :]))
    assert seen.mask[:, bed].tolist() == [False, True]
    assert torch.equal(seen.mask, torch.as_tensor(town.engine.mask))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ([0, 4], {"multiplier": np.ones(2)}, "the chosen rows are invalid; give integers from 0 to 3, or 4 booleans"),
        ([-1], {"multiplier": np.ones(1)}, "the chosen rows are invalid"),
        ([0.5], {"multiplier": np.ones(1)}, "the chosen rows are invalid"),
        ([True, False], {"multiplier": np.ones(1)}, "the chosen rows are invalid"),
        ([0, 1], {"multiplier": np.ones(3)}, r"'multiplier' has shape \(3,\), but this town needs \(2,\)"),
        ([0], {"multiplier": np.array([-1.0])}, "'multiplier' is out of range"),
        ([0], {"meters": np.ones((1, 8))}, "no setting 'meters'; known: multiplier, active, reward_mix"),
    ],
)
def test_wrong_settings_are_refused(kind: str, rows: Any, settings: dict[str, Any], message: str) -> None:
    town = Town(load("town"), 4, engine=kind)
    town.reset(4)
    before = town.state()
    with pytest.raises(TownletError, match=message):
        town.set(rows=rows, **settings)
    for name, values in town.state().items():
        np.testing.assert_array_equal(values, before[name], err_msg=name)


def test_rows_can_be_chosen_by_a_mask_and_may_be_none() -> None:
    town = Town(load("town"), 3)
    town.reset(5)
    town.set(rows=torch.tensor([True, False, True]), multiplier=[2.0, 3.0])
    town.set(rows=[], multiplier=[])
    assert town.engine.peek()["multiplier"].tolist() == [2, 1, 3]


GRIDS = [name for name in shipped() if load(name).size]
SHUFFLED = ["map.layout=shuffled", "map.allow_hidden_layout=true"]


@pytest.mark.parametrize("name", GRIDS)
def test_shuffling_a_map_keeps_the_interface(name: str) -> None:
    plain, moved = townlet.load_world(name), townlet.load_world(name, SHUFFLED)
    assert moved.interface_hash == plain.interface_hash
    town = townlet.make(moved, 64)
    seen = town.reset(6)
    assert seen.obs.shape == (64, plain.layout.size)
    layouts = town.engine.state()["cell_of"]
    assert len({tuple(row) for row in layouts.tolist()}) > 10
    for _ in range(5):
        town.step(torch.full((64,), town.actions.n - 2))
    state = town.engine.state()
    for places, cell, here in zip(layouts.tolist(), state["cell"].tolist(), state["here"].tolist(), strict=True):
        assert here == (places.index(cell) if cell in places else len(places))
