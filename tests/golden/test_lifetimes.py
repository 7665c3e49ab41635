"""Lifetimes of simple policies: exact for three of them, a mean for random actions."""

from __future__ import annotations

import numpy as np
import pytest

from reference import Town, shipped_document
from townlet.town.engines.engine import make_engine
from townlet.town.world.load import load

UP, DOWN, LEFT, RIGHT, INTERACT, WAIT = range(6)
EMPTY = 27


SURVIVAL: dict[tuple[int, ...], int] = {(LEFT,): 100, (UP, DOWN, LEFT, RIGHT): 100, (INTERACT,): 191, (WAIT,): 164}


@pytest.mark.parametrize("kind", ["numba", "torch", "reference"])
def test_simple_policies_survive_the_known_number_of_steps(kind: str) -> None:
    assert survival(kind) == SURVIVAL


def survival(kind: str) -> dict[tuple[int, ...], int]:
    """Steps until death with each habit, from an empty cell; an engine plays each in a separate row."""
    if kind == "reference":
        return {habit: reference_survival(habit) for habit in SURVIVAL}
    engine = make_engine(load("town"), len(SURVIVAL), kind, autoreset=False)
    engine.reset(0)
    engine.restore({"cell": np.full(len(SURVIVAL), EMPTY)})
    ages: dict[tuple[int, ...], int] = {}
    for step in range(500):
        engine.step(np.array([habit[step % len(habit)] for habit in SURVIVAL]))
        for row, habit in enumerate(SURVIVAL):
            if bool(engine.terminated[row]):
                ages.setdefault(habit, int(engine.peek()["age"][row]))
        if len(ages) == len(SURVIVAL):
            break
    return ages


def reference_survival(habit: tuple[int, ...]) -> int:
    town = Town(shipped_document("town"), cell=EMPTY)
    while not town.step(habit[town.age % len(habit)]).terminated:
        pass
    return town.age


@pytest.mark.parametrize(("world", "expected"), [("town", 116), ("town-l0", 137), ("town-l0-dual", 117)])
def test_random_agent_survives_the_expected_mean(world: str, expected: float) -> None:
    rows = 4096
    engine = make_engine(load(world), rows, "numba", autoreset=False)
    engine.reset(7)
    chance = np.random.default_rng(7)
    while not (engine.terminated | engine.truncated).all():
        engine.step(np.where(engine.mask, chance.random(engine.mask.shape), -1.0).argmax(axis=1))
    assert engine.peek()["age"].mean() == pytest.approx(expected, abs=6)
