"""Exploring starts: a fraction of episodes starts in the given ranges, equally on both engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import townlet
from townlet.errors import TownletError
from townlet.interfaces import conformance
from townlet.town.engines.engine import Engine, cpp_compiler, make_engine
from townlet.town.env import Town
from townlet.town.state import StartsSpec, start_table, to_numpy
from townlet.town.world.load import load

KINDS = ("numba", "torch")
POOR = StartsSpec(fraction=0.5, meters=(0.15, 0.9), money=(0.0, 0.4))
EVERY = POOR.model_copy(update={"fraction": 1.0})
SHORT = load("town", ["max_steps=2"])
MONEY = 3  # index of the currency in the standard town
CHECKS = {check.__name__: check for check in conformance.CHECKS}


def hash32(x: int) -> int:
    x = ((x ^ (x >> 16)) * 0x7FEB352D) % 2**32
    x = ((x ^ (x >> 15)) * 0x846CA68B) % 2**32
    return x ^ (x >> 16)


def chance(key: int, row: int, episode: int, draw: int) -> np.float32:
    """The random number in plain Python: 24 bits in [0, 1)."""
    x = hash32((key % 2**32) ^ hash32(key >> 32))
    x = hash32((x + row) % 2**32)
    x = hash32((x + episode * 0x9E3779B9) % 2**32)
    return np.float32((hash32((x + draw * 0x85EBCA6B) % 2**32) >> 8) / 2**24)


def expected(engine: Engine, key: int, row: int, episode: int) -> np.ndarray:
    """The first meters of an episode under POOR."""
    start = np.array([1, 1, 1, 0.5, 1, 1, 1, 1], np.float32)
    if chance(key, row, episode, 2) >= np.float32(0.5):
        return start
    low = np.array([0.15, 0.15, 0.15, 0.0, 0.15, 0.15, 0.15, 0.15], np.float32)
    span = np.array([0.75, 0.75, 0.75, 0.4, 0.75, 0.75, 0.75, 0.75], np.float32)
    return low + span * np.array([chance(key, row, episode, 4096 + m) for m in range(8)], np.float32)


@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(key=st.integers(0, 2**62 - 1), kind=st.sampled_from(KINDS))
def test_starts_follow_from_the_counters(key: int, kind: str) -> None:
    engine = make_engine(SHORT, 9, kind, starts=POOR)
    engine.reset(key)
    for episode in range(3):
        wanted = [expected(engine, key, row, episode) for row in range(9)]
        np.testing.assert_allclose(to_numpy(engine.peek()["meters"]), wanted, rtol=0, atol=1e-6)
        shown = engine.world.layout.view(np.asarray(engine.obs), "meters")
        np.testing.assert_array_equal(shown, engine.peek()["meters"])
        for _ in range(2):
            engine.step(np.full(9, 5))


def random_episodes(engine: Engine, steps: int) -> None:
    draws = np.random.default_rng(0)
    for _ in range(steps):
        engine.step(draws.integers(0, len(engine.world.actions), engine.rows))


def test_without_exploring_starts_nothing_changes() -> None:
    """Compared with values recorded before exploring starts existed."""
    plain = make_engine(load("town-shuffled"), 6, "numba")
    plain.reset(2024)
    assert plain.peek()["cell"].tolist() == [34, 31, 59, 12, 21, 33]
    assert plain.peek()["cell_of"][5].tolist() == [49, 33, 38, 7, 57, 10, 46, 40, 17, 51, 62, 4, 6, 18, 8]
    random_episodes(plain, 400)
    assert plain.peek()["age"].tolist() == [69, 86, 0, 27, 90, 0]
    assert plain.peek()["episode"].tolist() == [3, 3, 4, 3, 3, 3]
    assert plain.peek()["cell"].tolist() == [2, 31, 7, 24, 47, 36]
    off = make_engine(plain.world, 6, "numba", starts=StartsSpec(fraction=0, meters=(0.1, 0.2)))
    off.reset(2024)
    random_episodes(off, 400)
    for name, values in plain.state().items():
        np.testing.assert_array_equal(values, off.state()[name], err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_exploring_starts_change_only_the_meters(kind: str) -> None:
    world = load("town-shuffled", ["clock.start=random"])
    plain, other = make_engine(world, 400, kind), make_engine(world, 400, kind, starts=POOR)
    plain.reset(5)
    other.reset(5)
    a, b = plain.state(), other.state()
    moved = (a["meters"] != b["meters"]).all(axis=1)
    assert 160 < moved.sum() < 240
    np.testing.assert_array_equal(a["meters"][~moved], b["meters"][~moved])
    for name in a.keys() - {"meters"}:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    meters = np.delete(b["meters"][moved], MONEY, axis=1)
    money = b["meters"][moved, MONEY]
    assert 0.15 <= meters.min() < 0.17
    assert 0.88 < meters.max() <= 0.9
    assert abs(meters.mean() - 0.525) < 0.02
    assert 0 <= money.min() < 0.02
    assert 0.38 < money.max() <= 0.4
    assert np.abs(np.corrcoef(b["meters"][moved].T) - np.eye(8)).max() < 0.3, "each meter has a separate draw"


def check_equal_episodes(world: str, kinds: tuple[str, ...]) -> None:
    engines = [make_engine(load(world, ["max_steps=15"]), 24, kind, starts=POOR) for kind in kinds]
    draws = np.random.default_rng(1)
    for engine in engines:
        engine.reset(77)
    for _ in range(40):
        actions = draws.integers(0, len(engines[0].world.actions), 24)
        for engine in engines:
            engine.step(actions)
        one, two = (engine.peek() for engine in engines)
        np.testing.assert_array_equal(one["episode"], two["episode"])
        np.testing.assert_array_equal(one["cell"], two["cell"])
        np.testing.assert_allclose(to_numpy(one["meters"]), to_numpy(two["meters"]), rtol=0, atol=1e-5)
        np.testing.assert_allclose(np.asarray(engines[0].obs), np.asarray(engines[1].obs), rtol=0, atol=1e-4)
        np.testing.assert_array_equal(np.asarray(engines[0].mask), np.asarray(engines[1].mask))
    assert engines[0].peek()["episode"].sum() > 24, "the comparison must include new episodes"


@pytest.mark.parametrize("world", ["town-foggy", "town-l3"])
def test_both_engines_have_equal_episodes(world: str) -> None:
    check_equal_episodes(world, KINDS)


@pytest.mark.long
@pytest.mark.skipif(cpp_compiler() is None, reason="torch.compile needs a C++ compiler, and there is none here")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own, when its compiler is imported
def test_compiled_engine_has_equal_episodes() -> None:
    check_equal_episodes("town-shuffled", ("numba", "compiled"))


@pytest.mark.parametrize("kind", KINDS)
def test_final_state_is_not_changed_by_the_next_start(kind: str) -> None:
    world = load("town", ["max_steps=4"])
    town, stays = Town(world, 8, engine=kind, starts=EVERY), make_engine(world, 8, kind, autoreset=False, starts=EVERY)
    town.reset(3)
    stays.reset(townlet.rng.Streams(3).key("town"))
    for _ in range(4):
        town.step(torch.full((8,), 5))
        stays.step(np.full(8, 5))
    ended = town.final_obs()
    assert len(ended.rows) == 8
    np.testing.assert_array_equal(ended.obs.numpy(), np.asarray(stays.obs))
    np.testing.assert_array_equal(town.final_meters(ended).numpy(), stays.peek()["meters"])
    assert (town.final_meters(ended).numpy() != town.engine.peek()["meters"]).any(axis=1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_meters_keep_their_start(kind: str) -> None:
    """A curriculum sets rows that have just been reset, which also affects their draws."""
    town = Town(load("town", ["max_steps=3"]), 6, engine=kind, starts=EVERY)
    town.reset(8)
    drawn = town.engine.state()["meters"]
    frozen = 255 & ~(1 << 0) & ~(1 << MONEY)
    seen = town.set(rows=[1, 4], active=np.array([frozen, frozen]))
    meters = town.engine.state()["meters"]
    np.testing.assert_array_equal(meters[[0, 2, 3, 5]], drawn[[0, 2, 3, 5]])
    np.testing.assert_array_equal(meters[[1, 4]][:, [0, MONEY]], [[1.0, 0.5]] * 2)
    np.testing.assert_array_equal(np.delete(meters[1], [0, MONEY]), np.delete(drawn[1], [0, MONEY]))
    np.testing.assert_array_equal(town.layout.view(seen.obs, "meters").numpy(), meters)
    town.set(rows=[1], active=np.array([255]))
    np.testing.assert_array_equal(town.engine.state()["meters"][1], drawn[1])
    town.step(torch.full((6,), 5))
    before = town.engine.state()["meters"]
    town.set(active=np.full(6, frozen))
    np.testing.assert_array_equal(town.engine.state()["meters"], before)
    for _ in range(2):
        town.step(torch.full((6,), 5))
    np.testing.assert_array_equal(town.engine.state()["meters"][:, [0, MONEY]], [[1.0, 0.5]] * 6)


def test_threads_give_the_same_starts() -> None:
    one, two = (make_engine(load("town"), 8192, "numba", threads=n, starts=POOR) for n in (1, 2))
    for engine in (one, two):
        engine.reset(6)
        random_episodes(engine, 130)
    np.testing.assert_array_equal(one.peek()["meters"], two.peek()["meters"])
    np.testing.assert_array_equal(one.obs, two.obs)
    assert one.peek()["episode"].max() > 0
    two.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("promise", CHECKS)
def test_town_with_exploring_starts_conforms(promise: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "STEPS", 30)
    world = load("town-shuffled" if kind == "numba" else "town", ["max_steps=12"])
    CHECKS[promise](lambda rows: Town(world, rows, engine=kind, starts=POOR))


def test_currency_without_a_range_starts_as_usual() -> None:
    town = townlet.make("town", 50, starts=StartsSpec(fraction=1, meters=(0.2, 0.3)))
    meters = town.layout.view(town.reset(1).obs, "meters")
    assert (meters[:, MONEY] == 0.5).all()
    assert (np.delete(meters.numpy(), MONEY, axis=1) <= 0.3 + 1e-6).all()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fraction": 1.5, "meters": (0.1, 1)}, "less than or equal to 1"),
        ({"fraction": 0.5, "meters": (0.5, 0.1)}, "lower number first"),
        ({"fraction": 0.5, "meters": (0.1, 1), "money": (-1, 0.2)}, "greater than or equal to 0"),
        ({"fraction": 0.5, "meters": (0.1, 1), "cells": (0, 1)}, "cells"),
    ],
)
def test_wrong_settings_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        StartsSpec(**values)


def test_lethal_starts_are_refused_and_money_is_ignored_without_currency() -> None:
    with pytest.raises(TownletError, match=r"`starts.meters` begins at 0, at which an agent dies: energy is lethal"):
        townlet.make("town", 1, starts=StartsSpec(fraction=1, meters=(0, 1), money=(0, 1)))
    penniless = load("town-l0", ["currency=null", "affordances.Bed.price=0"])
    without = StartsSpec(fraction=POOR.fraction, meters=POOR.meters)
    assert np.array_equal(start_table(penniless, POOR), start_table(penniless, without))
    broke = load("town", ["lethal=[energy, money]"])
    with pytest.raises(TownletError, match=r"`starts.money` begins at 0, at which an agent dies: money is lethal"):
        make_engine(broke, 1, starts=POOR)
