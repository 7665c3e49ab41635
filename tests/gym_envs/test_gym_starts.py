"""Episodes of the Gymnasium environments that start in a given state."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from townlet.errors import TownletError
from townlet.town.gymnasium import TownEnv, TownVectorEnv

WAIT = 5


def state(env: TownEnv | TownVectorEnv, row: int = 0) -> dict[str, Any]:
    """Meters by name, coordinates and hour, as renderers show them."""
    scene = env.scene() if isinstance(env, TownEnv) else env.scene(row)
    meters = dict(zip(env.world.meters, scene.meters, strict=True))
    x, y = scene.coordinates(scene.cell)
    return meters | {"x": x, "y": y, "hour": scene.hour}


def test_an_episode_starts_from_the_given_state() -> None:
    env = TownEnv("town-l3")
    env.reset(seed=1)
    usual = state(env)
    options = {"meters": {"energy": 0.3, "mood": 0.7}, "money": 0.05, "cell": [6, 1], "hour": 7}
    obs, info = env.reset(seed=1, options=options)
    expected = {"energy": 0.3, "mood": 0.7, "money": 0.05, "x": 6, "y": 1, "hour": 7}
    assert state(env) == pytest.approx(usual | expected)
    layout = env.world.layout
    assert layout.view(obs, "meters")[env.world.meters.index("energy")] == pytest.approx(0.3)
    assert layout.view(obs, "clock") == pytest.approx(7 / 24)
    assert info["action_mask"].tolist()[:4] == [1, 1, 1, 1]
    env.step(WAIT)
    assert state(env)["hour"] == 8
    env.reset(seed=1)
    assert state(env) == usual


def test_a_start_changes_nothing_else() -> None:
    plain, given = TownEnv("town-shuffled"), TownEnv("town-shuffled")
    first, _ = plain.reset(seed=5)
    scene = plain.scene()
    same, _ = given.reset(seed=5, options={"cell": scene.coordinates(scene.cell)})
    assert (first == same).all()
    for action in (0, 1, 2, 3, WAIT, 4):
        assert (plain.step(action)[0] == given.step(action)[0]).all()


def test_the_mask_follows_the_given_cell() -> None:
    env = gym.make("Townlet/Town-L0-v0")
    corner = env.reset(seed=0, options={"cell": [0, 0]})[1]["action_mask"]
    assert corner.tolist()[:4].count(0) == 2


@pytest.mark.parametrize("mode", AutoresetMode)
def test_rows_start_from_one_state_or_from_their_own(mode: AutoresetMode) -> None:
    env = TownVectorEnv(3, "town-l3", autoreset_mode=mode)
    env.reset(seed=0, options={"meters": {"energy": [0.2, 0.4, 0.6]}, "cell": [[0, 0], [1, 0], [2, 3]], "hour": 5})
    rows = [state(env, row) for row in range(3)]
    assert [row["energy"] for row in rows] == pytest.approx([0.2, 0.4, 0.6])
    assert [(row["x"], row["y"], row["hour"]) for row in rows] == [(0, 0, 5), (1, 0, 5), (2, 3, 5)]
    env.step([WAIT] * 3)
    before = [state(env, row) for row in range(3)]
    env.reset(options={"reset_mask": np.array([False, True, False]), "meters": {"energy": 0.9}})
    after = [state(env, row) for row in range(3)]
    assert after[1]["energy"] == pytest.approx(0.9)
    assert (after[0], after[2]) == (before[0], before[2])


@pytest.mark.parametrize(
    ("world", "options", "message"),
    [
        ("town", {"meter": {}}, "did you mean 'meters'"),
        ("town", {"meters": {"enery": 0.3}}, "did you mean 'energy'"),
        ("town", {"meters": 0.3}, "not a mapping"),
        ("town", {"meters": {"energy": 1.3}}, "0 to 1"),
        ("town", {"meters": {"energy": "much"}}, "give a number"),
        ("town", {"meters": {"energy": [0.3, 0.4]}}, "give a number"),
        ("town", {"meters": {"energy": 0.0}}, "dies"),
        ("town", {"meters": {"money": 0.3}, "money": 0.2}, "leave out one"),
        ("town", {"cell": [8, 0]}, "x from 0 to 7, y from 0 to 7"),
        ("town", {"cell": [0.5, 0]}, "integers"),
        ("town", {"cell": 3}, "2 coordinates"),
        ("town", {"hour": 7}, "no time of day"),
        ("town-l3", {"hour": 24}, "0 to 23"),
        ("town-aspatial", {"cell": [0, 0]}, "no map"),
        ("town", {"reset_mask": np.ones(1, np.bool_)}, "no option 'reset_mask'"),
    ],
)
def test_wrong_options_are_explained(world: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TownletError, match=message):
        TownEnv(world).reset(seed=0, options=options)


def test_money_needs_a_currency() -> None:
    with pytest.raises(TownletError, match="no currency"):
        TownEnv("town-l0", ["currency=null", "affordances.Bed.price=0"]).reset(seed=0, options={"money": 0.5})


def test_seeds_of_any_size_are_accepted() -> None:
    env = TownEnv("town-shuffled")
    first = env.reset(seed=2**64 - 3)[0]
    assert (env.reset(seed=2**64 - 3)[0] == first).all()
    assert (env.reset(seed=2**64 - 4)[0] != first).any()
