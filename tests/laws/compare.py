"""Compare an engine with the reference implementation, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from reference import Town
from townlet.town.engines.engine import Engine
from townlet.town.state import to_numpy

METERS_WITHIN = 1e-5
WITHIN = 1e-4
WHOLE = ("cell", "age", "hour", "progress", "using", "here")


def plain(values: Any) -> NDArray[Any]:
    """A copy as a numpy array, from either engine and any device."""
    return to_numpy(values).copy()


def shadow(doc: dict[str, Any], state: dict[str, Any], row: int) -> Town:
    """The reference in the state of one row."""
    bits = int(state["active"][row])
    layout = state["cell_of"][row if len(state["cell_of"]) > 1 else 0]
    town = Town(
        doc,
        cell=int(state["cell"][row]),
        hour=int(state["hour"][row]),
        meters=[float(v) for v in state["meters"][row]],
        layout=[int(c) for c in layout],
        multiplier=float(state["multiplier"][row]),
        active=[bool(bits >> m & 1) for m in range(state["meters"].shape[1])],
        mix=[float(v) for v in state["reward_mix"][row]],
    )
    town.age, town.progress, town.using = (int(state[k][row]) for k in ("age", "progress", "using"))
    return town


def shadows(doc: dict[str, Any], engine: Engine) -> list[Town]:
    """One reference for every row."""
    state = engine.state()
    return [shadow(doc, state, row) for row in range(engine.rows)]


def scatter(engine: Engine, chance: np.random.Generator) -> None:
    """Put every row in a random state with random settings."""
    rows, state = engine.rows, engine.state()
    meters, cells = state["meters"].shape[1], state["kind_at"].shape[1] - 1
    engine.restore(
        {
            "meters": (chance.integers(20, 1001, (rows, meters)) / 1000).astype(np.float32),
            "cell": chance.integers(0, cells, rows).astype(np.int32),
            "hour": chance.integers(0, engine.world.spec.clock.day, rows).astype(np.int32),
            "multiplier": chance.choice([0.0, 0.25, 0.5, 1.0, 2.0, 4.0], rows).astype(np.float32),
            "active": np.where(chance.random(rows) < 0.5, (1 << meters) - 1, chance.integers(0, 1 << meters, rows)),
            "reward_mix": chance.choice([0.0, 0.5, 1.0, 2.0], state["reward_mix"].shape).astype(np.float32),
        }
    )


def any_actions(engine: Engine, steps: int, chance: np.random.Generator) -> NDArray[np.int64]:
    """Random actions [steps, rows], valid or not, half of them INTERACT."""
    shape = (steps, engine.rows)
    using = [k for k, name in enumerate(engine.world.actions) if name.startswith("INTERACT")]
    return np.where(
        chance.random(shape) < 0.5, chance.choice(using, shape), chance.integers(0, len(engine.world.actions), shape)
    )


def check_start(doc: dict[str, Any], town: Town) -> None:
    """A new episode starts as the world specifies."""
    filled = town.doc
    assert (town.age, town.progress, town.using) == (0, 0, town.none)
    assert_allclose(town.meters, [m["start"] for m in filled["meters"]], atol=1e-7)
    assert 0 <= town.hour < town.day
    if filled["clock"]["start"] != "random":
        assert town.hour == filled["clock"]["start"]
    if town.grid is None:
        assert town.cell == town.none
        return
    assert 0 <= town.cell < town.grid.cells
    if filled["map"]["start"] != "random":
        assert town.cell == town.grid.flat(list(filled["map"]["start"]))
    assert len(set(town.layout)) == len(town.layout)
    assert all(0 <= c < town.grid.cells for c in town.layout)
    if filled["map"]["layout"] == "fixed":
        assert town.layout == Town(doc, hour=0).layout


def check_observation(towns: list[Town], obs: Any, mask: Any, why: str) -> None:
    """Observations [N, D] and masks [N, K]."""
    assert len(obs) == len(mask) == len(towns), why
    if towns:
        assert_allclose(plain(obs), [t.observe() for t in towns], rtol=WITHIN, atol=WITHIN, err_msg=f"obs {why}")
        assert plain(mask).tolist() == [t.mask() for t in towns], f"mask {why}"


def check_state(towns: list[Town], engine: Engine, why: str) -> None:
    """The full state of all rows."""
    state = engine.peek()
    for name in WHOLE:
        assert state[name].tolist() == [getattr(t, name) for t in towns], f"{name} {why}"
    meters = plain(state["meters"])
    assert_allclose(meters, [t.meters for t in towns], rtol=0, atol=METERS_WITHIN, err_msg=f"meters {why}")


def step_both(engine: Engine, towns: list[Town], chosen: NDArray[np.int64], why: str) -> None:
    """One step on both sides; rewards and endings must be equal."""
    engine.step(chosen)
    results = [town.step(int(action)) for town, action in zip(towns, chosen, strict=True)]
    assert plain(engine.terminated).tolist() == [r.terminated for r in results], f"terminated {why}"
    assert plain(engine.truncated).tolist() == [r.truncated for r in results], f"truncated {why}"
    parts = [r.components for r in results]
    assert_allclose(plain(engine.components), parts, rtol=WITHIN, atol=WITHIN, err_msg=f"components {why}")
    paid = [r.reward for r in results]
    assert_allclose(plain(engine.reward), paid, rtol=WITHIN, atol=2 * WITHIN, err_msg=f"reward {why}")


def follow(engine: Engine, doc: dict[str, Any], actions: NDArray[np.int64]) -> int:
    """Play actions [T, N] on an autoreset engine and on one reference per row; returns the number of ended episodes."""
    towns = shadows(doc, engine)
    check_observation(towns, engine.obs, engine.mask, "at the start")
    ended = 0
    for t, chosen in enumerate(actions):
        step_both(engine, towns, chosen, f"at step {t}")
        over = [row for row, town in enumerate(towns) if town.terminated or town.truncated]
        check_observation([towns[row] for row in over], *engine.final_obs(), f"before the reset of step {t}")
        if over:
            state = engine.state()
            for row in over:
                towns[row] = shadow(doc, state, row)
                check_start(doc, towns[row])
        check_state(towns, engine, f"after step {t}")
        check_observation(towns, engine.obs, engine.mask, f"after step {t}")
        ended += len(over)
    return ended
