"""Every world that compiles can be stepped with any actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from laws import brief, law
from laws.compare import any_actions, plain, scatter
from laws.worlds import COMPILED, compiled, documents
from townlet.town.engines.engine import Engine, make_engine


def check_limits(engine: Engine) -> None:
    meters = plain(engine.peek()["meters"])
    assert np.isfinite(meters).all()
    assert (meters >= 0).all()
    assert (meters <= 1).all()
    obs = plain(engine.obs)
    for block in engine.world.layout:
        part = obs[:, block.slice]
        assert part.shape[1] == block.size
        assert (part >= block.low).all(), block.name
        assert (part <= block.high).all(), block.name
    assert plain(engine.mask).any(axis=1).all()
    assert plain(engine.mask)[:, -1].all(), "WAIT is always allowed"
    assert np.isfinite(plain(engine.components)).all()
    np.testing.assert_allclose(plain(engine.components).sum(axis=1), plain(engine.reward), rtol=1e-5, atol=1e-4)


def step_any(doc: dict[str, Any], seed: int, kind: str) -> None:
    engine = make_engine(compiled(doc), 16, kind)
    engine.reset(seed)
    check_limits(engine)
    chance = np.random.default_rng(seed)
    scatter(engine, chance)
    for actions in any_actions(engine, 40, chance):
        engine.step(actions)
        check_limits(engine)
    assert engine.obs.shape == (16, engine.world.layout.size)
    assert engine.mask.shape == (16, len(engine.world.actions))


@settings(law, max_examples=examples(15, 60))
@given(documents(COMPILED), st.integers(0, 2**32 - 1))
def test_every_world_can_be_stepped(doc: dict[str, Any], seed: int) -> None:
    step_any(doc, seed, "numba")


@brief
@given(documents(), st.integers(0, 2**32 - 1))
def test_every_world_of_tensors_can_be_stepped(doc: dict[str, Any], seed: int) -> None:
    step_any(doc, seed, "torch")


@pytest.mark.long
@law
@given(documents(), st.integers(0, 2**32 - 1))
def test_more_worlds_of_tensors_can_be_stepped(doc: dict[str, Any], seed: int) -> None:
    step_any(doc, seed, "torch")
