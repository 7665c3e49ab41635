"""Lifetimes of simple policies: exact for three of them, a mean for random actions."""

from __future__ import annotations

import numpy as np
import pytest

from reference import Town, shipped_document
from townlet.town.engines.engine import make_engine
from townlet.town.world.load import load

UP, DOWN, LEFT, RIGHT, INTERACT, WAIT = range(6)
EMPTY = 27


@pytest.mark.parametrize("kind", ["numba", "torch", "reference"])
@pytest.mark.parametrize(
    ("habit", "steps"), [((LEFT,), 100), ((UP, DOWN, LEFT, RIGHT), 100), ((INTERACT,), 191), ((WAIT,), 164)]
)
def test_simple_policies_survive_the_known_number_of_steps(kind: str, habit: tuple[int, ...], steps: int) -> None:
    assert survival(kind, habit) == steps


def survival(kind: str, habit: tuple[int, ...]) -> int:
    """Steps until death, from an empty cell."""
    if kind == "reference":
        town = Town(shipped_document("town"), cell=EMPTY)
        while not town.step(habit[town.age % len(habit)]).terminated:
            pass
        return town.age
    engine = make_engine(load("town"), 1, kind, autoreset=False)
    engine.reset(0)
    engine.restore({"cell": np.array([EMPTY])})
    for age in range(500):
        engine.step(np.array([habit[age % len(habit)]]))
        if bool(engine.terminated[0]):
            break
    return int(engine.peek()["age"][0])


@pytest.mark.parametrize(("world", "expected"), [("town", 116), ("town-l0", 137), ("town-l0-dual", 117)])
def test_random_agent_survives_the_expected_mean(world: str, expected: float) -> None:
    rows = 4096
    engine = make_engine(load(world), rows, "numba", autoreset=False)
    engine.reset(7)
    chance = np.random.default_rng(7)
    while not (engine.terminated | engine.truncated).all():
        engine.step(np.where(engine.mask, chance.random(engine.mask.shape), -1.0).argmax(axis=1))
    assert engine.peek()["age"].mean() == pytest.approx(expected, abs=6)
