"""Actions are drawn by their probabilities, and how open a choice was is told with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from townlet.decide.decider import sample_actions
from townlet.decide.json import parsed, written

shares = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(2, 9)), elements=st.sampled_from((0.0, 0.1, 1.0)))


def likely(shares: np.ndarray) -> np.ndarray:
    """As probabilities; a line of nothing becomes one of which the last is certain."""
    shares = shares.copy()
    shares[shares.sum(1) == 0, -1] = 1.0
    return shares / shares.sum(1, keepdims=True)


@given(shares, st.integers(0, 2**32))
def test_only_what_is_possible_is_drawn_and_entropy_is_a_share(shares: np.ndarray, seed: int) -> None:
    chances = likely(shares)
    actions, spread = sample_actions(chances, np.random.default_rng(seed))
    assert (chances[np.arange(len(chances)), actions] > 0).all()
    for line, found in zip(chances, spread, strict=True):
        possible = line[line > 0]
        assert found == pytest.approx(-(possible * np.log(possible)).sum() / np.log(max(len(possible), 2)), abs=1e-12)


def test_actions_come_as_often_as_they_are_likely() -> None:
    chances = np.tile([0.5, 0.0, 0.3, 0.2], (20_000, 1))
    actions, _ = sample_actions(chances, np.random.default_rng(0))
    assert np.bincount(actions, minlength=4) / 20_000 == pytest.approx(chances[0], abs=0.015)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"deep": [1, -float("inf")]}])
def test_what_json_cannot_say_is_not_written(value: object) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        written(value)


@pytest.mark.parametrize("value", ["NaN", {"Infinity": 1.5e300}, [0.1, -0.0, 1e16, 10**30, None, True, "é \u2028"]])
def test_what_json_can_say_comes_back(value: object) -> None:
    assert parsed(written(value)) == value


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "", "{", '"\\ud800"', "[" * 10_000, "{}x"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(text)
