"""The engines agree with the slow reference and with each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from laws import brief, law
from laws.compare import any_actions, follow, plain, scatter
from laws.worlds import COMPILED, compiled, documents
from reference import shipped_document
from townlet.town.engines.engine import Engine, cpp_compiler, make_engine
from townlet.town.world.load import load, shipped

DISCRETE = ("cell", "age", "hour", "progress", "using", "here", "episode", "kind_at", "cell_of")


def follow_any(doc: dict[str, Any], seed: int, kind: str) -> None:
    engine = make_engine(compiled(doc), 4, kind)
    engine.reset(seed)
    chance = np.random.default_rng(seed)
    scatter(engine, chance)
    follow(engine, doc, any_actions(engine, 24, chance))


@settings(law, max_examples=examples(15, 60))
@given(documents(COMPILED), st.integers(0, 2**32 - 1))
def test_random_worlds_follow_the_reference(doc: dict[str, Any], seed: int) -> None:
    follow_any(doc, seed, "numba")


@brief
@given(documents(), st.integers(0, 2**32 - 1))
def test_random_worlds_of_tensors_follow_the_reference(doc: dict[str, Any], seed: int) -> None:
    follow_any(doc, seed, "torch")


@pytest.mark.long
@law
@given(documents(), st.integers(0, 2**32 - 1))
def test_more_random_worlds_of_tensors_follow_the_reference(doc: dict[str, Any], seed: int) -> None:
    follow_any(doc, seed, "torch")


# Rows, steps from the start, steps from random states, and the least number of ended episodes.
Length = tuple[int, int, int, int]
BRIEF: Length = (6, 5, 48, 1)
BRIEF_TENSORS: Length = (12, 3, 20, 2)
FULL: Length = (16, 150, 150, 17)


def follow_shipped(world: str, kind: str, length: Length) -> None:
    rows, first, then, ended = length
    engine = make_engine(load(world), rows, kind)
    engine.reset(3)
    chance = np.random.default_rng(3)
    doc = shipped_document(world)
    episodes = follow(engine, doc, any_actions(engine, first, chance))
    scatter(engine, chance)
    episodes += follow(engine, doc, any_actions(engine, then, chance))
    assert episodes >= ended, "some episodes must end"


@pytest.mark.parametrize(
    ("world", "kind"), [*((w, "numba") for w in shipped()), ("town-aspatial", "torch"), ("town-foggy", "torch")]
)
def test_shipped_worlds_follow_the_reference(world: str, kind: str) -> None:
    follow_shipped(world, kind, BRIEF if kind == "numba" else BRIEF_TENSORS)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["numba", "torch"])
@pytest.mark.parametrize("world", shipped())
def test_shipped_worlds_follow_the_reference_for_long(world: str, kind: str) -> None:
    follow_shipped(world, kind, FULL)


# The shipped worlds all use milestones and clamped edges; these variants cover the rest.
EVERYTHING: dict[str, Any] = {
    "max_steps": 12,
    "clock": {"temporal": True, "start": "random"},
    "mask_unaffordable": True,
    "rewards": ["milestone", "survival", "vitality", "potential", "meter_bonus", "proximity"],
    "observation": [
        "position_onehot", "position", {"name": "window", "size": 3}, {"name": "window_typed", "size": 3}, "map_typed",
        "meters", "affordance_here", {"name": "clock", "encoding": "sincos"}, "progress", "age",
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", ["numba", "torch"])
@pytest.mark.parametrize(
    "ground",
    [
        {"size": [16], "boundary": "bounce", "layout": "shuffled"},
        {"size": [8, 8], "boundary": "wrap", "layout": "fixed"},
        {"size": [4, 3, 2], "boundary": "clamp", "layout": "shuffled"},
    ],
    ids=["line", "grid", "cube"],
)
def test_every_reward_and_block_follows_the_reference(ground: dict[str, Any], kind: str) -> None:
    doc = shipped_document("town") | EVERYTHING | {"map": ground}
    rows, steps = 6, 16
    engine = make_engine(compiled(doc), rows, kind)
    engine.reset(13)
    chance = np.random.default_rng(13)
    scatter(engine, chance)
    assert follow(engine, doc, any_actions(engine, steps, chance)) > 4


@pytest.mark.parametrize("kind", ["numba", "torch"])
@pytest.mark.parametrize("hours", [[18, 28], [18, 4], [5, 29], [0, 24], [23, 25]])
def test_reward_options_and_hours_after_midnight_follow_the_reference(hours: list[int], kind: str) -> None:
    rewards = [
        {"name": "milestone", "every": 3, "big_every": 7, "pay_first_step": True},
        {"name": "survival", "baseline": 9},
    ]
    town = shipped_document("town")
    places = [place | {"hours": hours} for place in town["affordances"]]
    doc = town | EVERYTHING | {"rewards": rewards, "affordances": places}
    engine = make_engine(compiled(doc), 6, kind)
    engine.reset(5)
    chance = np.random.default_rng(5)
    scatter(engine, chance)
    assert follow(engine, doc, any_actions(engine, 30, chance)) > 4


@pytest.mark.skipif(cpp_compiler() is None, reason="torch.compile needs a C++ compiler, and there is none here")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own, when its compiler is imported
@pytest.mark.parametrize("world", shipped())
@pytest.mark.long
def test_compiled_engine_follows_the_reference(world: str) -> None:
    follow_shipped(world, "compiled", FULL)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", ["torch", "compiled"])
@pytest.mark.parametrize("world", shipped())
def test_cuda_follows_the_reference(world: str, kind: str) -> None:
    engine, chance = make_engine(load(world), 16, kind, device="cuda"), np.random.default_rng(3)
    engine.reset(3)
    for _ in range(5):  # each round starts from the engine's state: within 200 steps no sum drifts out of tolerance
        assert follow(engine, shipped_document(world), any_actions(engine, 200, chance))
        scatter(engine, chance)


def assert_same_towns(one: Engine, other: Engine) -> None:
    a, b = one.peek(), other.peek()
    for name in DISCRETE:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    np.testing.assert_allclose(plain(a["meters"]), plain(b["meters"]), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(plain(one.mask), plain(other.mask))
    np.testing.assert_allclose(plain(one.obs), plain(other.obs), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("limit", "steps"), [(5, 10), pytest.param(500, 500, marks=pytest.mark.long)])
@pytest.mark.parametrize("world", shipped())
def test_same_seed_same_towns_on_both_engines(world: str, limit: int, steps: int) -> None:
    engines = [make_engine(load(world, [f"max_steps={limit}"]), 32, kind) for kind in ("numba", "torch")]
    for engine in engines:
        engine.reset(2**40 + 17)
    assert_same_towns(*engines)
    for engine in engines:
        scatter(engine, np.random.default_rng(5))
    ended = 0
    for t, actions in enumerate(any_actions(engines[0], steps, np.random.default_rng(5))):
        for engine in engines:
            engine.step(actions)
        np.testing.assert_array_equal(plain(engines[0].terminated), plain(engines[1].terminated))
        np.testing.assert_array_equal(plain(engines[0].truncated), plain(engines[1].truncated))
        ended += int(plain(engines[0].terminated | engines[0].truncated).sum())
        np.testing.assert_allclose(plain(engines[0].reward), plain(engines[1].reward), rtol=1e-4, atol=1e-4)
        if t % 5 == 4:
            assert_same_towns(*engines)
    assert ended > 32, "resets must be among what is compared"


def test_another_seed_gives_another_town() -> None:
    engine = make_engine(load("town-shuffled"), 64, "numba")
    seen = []
    for key in (1, 2):
        engine.reset(key)
        seen.append(engine.state())
    assert (seen[0]["cell"] != seen[1]["cell"]).mean() > 0.8
    assert (seen[0]["cell_of"] != seen[1]["cell_of"]).mean() > 0.8


@pytest.mark.parametrize("field", ["cell", "first place", "last place"])
def test_starts_and_layouts_are_uniform(field: str) -> None:
    rows, cells = 64 * 400, 64
    engine = make_engine(load("town-shuffled"), rows, "numba")
    engine.reset(11)
    state = engine.peek()
    drawn = {"cell": state["cell"], "first place": state["cell_of"][:, 0], "last place": state["cell_of"][:, -1]}[field]
    counts = np.bincount(drawn, minlength=cells)
    chi_square = float(((counts - 400) ** 2 / 400).sum())
    assert 30 < chi_square < 110, "63 degrees of freedom: 63 in the mean, beyond 110 once in 5000"
