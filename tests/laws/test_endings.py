"""Endings: death terminates, the limit truncates, and the exact price suffices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from laws import brief, law
from laws.compare import any_actions, check_observation, check_state, plain, scatter, shadows, step_both
from laws.worlds import compiled, with_spare_meters
from reference import shipped_document
from townlet.town.engines.engine import make_engine
from townlet.town.world.load import load

KINDS = ("numba", "torch")
UP, DOWN, LEFT, RIGHT, INTERACT, WAIT = range(6)


@pytest.mark.parametrize(
    ("world", "kind"), [("town-l3", "numba"), ("town-shuffled", "numba"), ("town-shuffled", "torch")]
)
def test_without_autoreset_an_ended_row_does_not_change(world: str, kind: str) -> None:
    chance = np.random.default_rng(2)
    engine = make_engine(load(world), 8, kind, autoreset=False)
    engine.reset(2)
    scatter(engine, chance)
    towns = shadows(shipped_document(world), engine)
    for t, actions in enumerate(any_actions(engine, 80, chance)):
        step_both(engine, towns, actions, f"at step {t}")
        check_state(towns, engine, f"after step {t}")
        check_observation(towns, engine.obs, engine.mask, f"after step {t}")
    over = plain(engine.terminated)
    assert 1 < over.sum() < 8
    engine.reset_rows(over)
    assert not plain(engine.terminated).any()
    assert engine.peek()["age"][over].tolist() == [0] * int(over.sum())
    assert (engine.peek()["age"][~over] == 80).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("limit", "dies"), [(99, False), (100, True), (101, True)])
def test_death_in_the_last_step_is_termination(kind: str, limit: int, dies: bool) -> None:
    engine = make_engine(load("town", [f"max_steps={limit}"]), 2, kind, autoreset=False)
    engine.reset(0)
    for _ in range(min(limit, 100)):
        assert not plain(engine.terminated | engine.truncated).any()
        engine.step(np.full(2, LEFT))
    assert plain(engine.terminated).tolist() == [dies] * 2
    assert plain(engine.truncated).tolist() == [not dies] * 2


def earn_and_pay(price: int, earnings: int, first: int, kind: str) -> None:
    """Earn a price in equal parts: it can be paid after the last of them, and not before."""
    pay = price / 100 / earnings
    assume(pay > 2e-4)
    doc = {
        "map": {"size": [3]},
        "currency": "money",
        "lethal": ["life"],
        "meters": [{"name": "life", "move": 0.001}, {"name": "money", "start": first / 100}],
        "affordances": [
            {"name": "Job", "cell": [0], "each_tick": {"money": pay}},
            {"name": "Shop", "cell": [1], "price": first / 100 + price / 100, "at_end": {"life": 0.5}},
        ],
        "mask_unaffordable": True,
    }
    engine = make_engine(compiled(with_spare_meters(doc)), 1, kind)
    engine.reset(0)
    interact = engine.world.actions.index("INTERACT")
    for done in range(earnings + 1):
        engine.restore({"cell": np.array([1], np.int32)})
        assert bool(engine.mask[0, interact]) == (done == earnings), f"after {done} of {earnings} earnings"
        engine.restore({"cell": np.array([0], np.int32)})
        if done < earnings:
            engine.step(np.array([interact]))
    meters = plain(engine.peek()["meters"])
    meters[0, 0] = 0.2
    engine.restore({"cell": np.array([1], np.int32), "meters": meters})
    engine.step(np.array([interact]))
    assert engine.peek()["meters"][0, :2].tolist() == pytest.approx([0.7, 0.0], abs=5e-5)


prices = given(price=st.integers(1, 90), earnings=st.integers(1, 60), first=st.integers(0, 5))


@law
@prices
def test_exact_price_suffices_after_many_sums(price: int, earnings: int, first: int) -> None:
    earn_and_pay(price, earnings, first, "numba")


@brief
@prices
def test_exact_price_suffices_after_many_sums_of_tensors(price: int, earnings: int, first: int) -> None:
    earn_and_pay(price, earnings, first, "torch")


@pytest.mark.parametrize("kind", KINDS)
def test_autoreset_starts_the_next_episode_and_keeps_the_final_observation(kind: str) -> None:
    engine = make_engine(load("town"), 3, kind)
    engine.reset(8)
    for _ in range(99):
        engine.step(np.full(3, LEFT))
    energy = engine.world.layout.block("meters").start
    assert (plain(engine.obs)[:, energy] > 5e-5).all()
    engine.step(np.full(3, LEFT))
    assert plain(engine.terminated).all()
    assert plain(engine.reward).tolist() == [-100.0] * 3
    assert plain(engine.obs)[:, energy] == pytest.approx(1.0)
    final_obs, final_mask = engine.final_obs()
    assert plain(final_obs)[:, energy] == pytest.approx(0.0, abs=5e-5)
    assert not plain(final_mask)[:, LEFT].any(), "three agents who walked left stand at the wall"
    assert engine.peek()["episode"].tolist() == [1] * 3
    assert plain(engine.final_obs(np.array([1]))[0]).shape == (1, engine.world.layout.size)
