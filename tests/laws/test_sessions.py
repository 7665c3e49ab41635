"""A session has the same total, played tick by tick or at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import brief, law
from laws.worlds import compiled, with_spare_meters
from reference import shipped_document
from townlet.town.engines.engine import Engine, make_engine

KINDS = ("numba", "torch")


def quiet(doc: dict[str, Any], temporal: bool) -> dict[str, Any]:
    """The same world with only the effects of affordances, always open."""
    places = [{k: v for k, v in a.items() if k != "hours"} for a in doc["affordances"]]
    return doc | {"clock": {"temporal": temporal}, "cascades": [], "modulations": [], "affordances": places}


def engine_of(doc: dict[str, Any], temporal: bool, kind: str) -> Engine:
    return make_engine(compiled(quiet(doc, temporal)), 1, kind, autoreset=False)


def use(engine: Engine, place: int, meters: list[float], times: int) -> list[float]:
    """The meters after a number of INTERACTs, without decay."""
    cell = engine.peek()["cell_of"][0, place]
    engine.reset(0)
    engine.restore(
        {
            "meters": np.array([meters], np.float32),
            "cell": np.array([cell], np.int32),
            "multiplier": np.zeros(1, np.float32),
        }
    )
    interact = engine.world.actions.index("INTERACT")
    for _ in range(times):
        engine.step(np.array([interact]))
    seen = engine.peek()
    assert int(seen["progress"][0]) == 0, "the session is over"
    return [float(v) for v in seen["meters"][0]]


def levels(place: dict[str, Any], names: list[str]) -> list[float]:
    """Meters that no session takes out of [0, 1]."""
    rises = {m for m in names if place.get("each_tick", {}).get(m, 0.0) + place.get("at_end", {}).get(m, 0.0) > 0}
    return [0.05 if m in rises else 0.95 for m in names]


@pytest.mark.parametrize("kind", KINDS)
def test_totals_agree_for_every_affordance_of_the_town(kind: str) -> None:
    doc = shipped_document("town")
    names = [m["name"] for m in doc["meters"]]
    slow, fast = engine_of(doc, True, kind), engine_of(doc, False, kind)
    for number, place in enumerate(doc["affordances"]):
        start = levels(place, names)
        by_ticks = use(slow, number, start, place["ticks"])
        at_once = use(fast, number, start, 1)
        np.testing.assert_allclose(by_ticks, at_once, rtol=0, atol=1e-5, err_msg=place["name"])
        assert by_ticks != pytest.approx(start, abs=1e-3), place["name"]


def effects(names: list[str]) -> st.SearchStrategy[dict[str, float]]:
    return st.dictionaries(st.sampled_from(names), st.integers(-40, 40).map(lambda n: n / 1000), max_size=4)


def use_any(each: dict[str, float], end: dict[str, float], ticks: int, price: int, kind: str) -> None:
    """Use an affordance tick by tick and at once, and compare both with the sum of its effects."""
    small = {
        "map": {"size": [3]},
        "currency": "c",
        "lethal": ["a"],
        "meters": [{"name": "a", "move": 0.001}, {"name": "b"}, {"name": "c"}],
        "affordances": [
            {"name": "Place", "cell": [0], "ticks": ticks, "price": price / 1000, "each_tick": each, "at_end": end},
            {"name": "Cure", "cell": [2], "at_end": {"a": 0.5}},
        ],
        "observation": ["meters"],
    }
    doc = with_spare_meters(small)
    start = [0.5] * len(doc["meters"])  # eight ticks of .04 + .01 and an end of .04 stay inside [0, 1]
    by_ticks = use(engine_of(doc, True, kind), 0, start, ticks)
    at_once = use(engine_of(doc, False, kind), 0, start, 1)
    np.testing.assert_allclose(by_ticks, at_once, rtol=0, atol=1e-5)
    for name, value, before in zip("abc", by_ticks, start, strict=False):
        cost = ticks * price / 1000 if name == "c" else 0.0
        assert value - before == pytest.approx(ticks * each.get(name, 0.0) + end.get(name, 0.0) - cost, abs=1e-5)


affordances = given(
    each=effects(["a", "b", "c"]), end=effects(["a", "b", "c"]), ticks=st.integers(1, 8), price=st.integers(0, 10)
)


@law
@affordances
def test_totals_agree_for_any_affordance(each: dict[str, float], end: dict[str, float], ticks: int, price: int) -> None:
    use_any(each, end, ticks, price, "numba")


@brief
@affordances
def test_totals_of_tensors_agree_for_any_affordance(
    each: dict[str, float], end: dict[str, float], ticks: int, price: int
) -> None:
    use_any(each, end, ticks, price, "torch")
