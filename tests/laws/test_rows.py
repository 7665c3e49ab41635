"""Rows are independent: their order does not affect them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from laws.compare import any_actions, plain, scatter
from townlet.town.engines.engine import Engine, make_engine
from townlet.town.world.load import load

STEPS = {"numba": 200, "torch": 28}  # of episodes that end after 20
SHOWN = ("obs", "mask", "reward", "components", "terminated", "truncated")


def permuted(engine: Engine, order: NDArray[np.int64]) -> Engine:
    """A second engine whose rows are those of the first in another order."""
    other = make_engine(engine.world, engine.rows, engine.name)
    state = engine.state()
    rows = {k: v[order] if v.shape[:1] == (engine.rows,) else v for k, v in state.items()}
    other.restore(rows)
    return other


@pytest.mark.parametrize(
    ("world", "kind"),
    [("town-l3", "numba"), ("town-shuffled", "numba"), ("town-aspatial", "numba"), ("town-shuffled", "torch")],
)
def test_permuting_rows_permutes_results(world: str, kind: str) -> None:
    chance = np.random.default_rng(9)
    engine = make_engine(load(world, ["max_steps=20"]), 24, kind)
    engine.reset(9)
    scatter(engine, chance)
    order = chance.permutation(engine.rows)
    other = permuted(engine, order)
    ended = 0
    for actions in any_actions(engine, STEPS[kind], chance):
        engine.step(actions)
        other.step(actions[order])
        for name in SHOWN:
            np.testing.assert_array_equal(
                plain(getattr(engine, name))[order], plain(getattr(other, name)), err_msg=name
            )
        ended += int(plain(engine.terminated | engine.truncated).sum())
    assert ended > 24, "resets must be among what is compared"


@pytest.mark.parametrize("kind", ["numba", "torch"])
def test_a_single_row_equals_a_row_of_many(kind: str) -> None:
    chance = np.random.default_rng(4)
    world = load("town-foggy", ["max_steps=20"])
    crowd, alone = make_engine(world, 9, kind), make_engine(world, 1, kind)
    crowd.reset(4)
    alone.reset(4)
    for actions in any_actions(crowd, STEPS[kind], chance):
        crowd.step(actions)
        alone.step(actions[:1])
        for name in SHOWN:
            np.testing.assert_array_equal(plain(getattr(crowd, name))[:1], plain(getattr(alone, name)), err_msg=name)


@pytest.mark.parametrize("kind", ["numba", "torch"])
def test_restored_state_continues_bit_for_bit(kind: str) -> None:
    chance = np.random.default_rng(6)
    first, second = (make_engine(load("town-shuffled", ["max_steps=20"]), 8, kind) for _ in range(2))
    first.reset(6)
    scatter(first, chance)
    for actions in any_actions(first, 10, chance):
        first.step(actions)
    second.restore(first.state())
    for actions in any_actions(first, STEPS[kind], chance):
        first.step(actions)
        second.step(actions)
        for name in SHOWN:
            np.testing.assert_array_equal(plain(getattr(first, name)), plain(getattr(second, name)), err_msg=name)
