"""Sampling of actions, and the encoding of events as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from townlet.decide.decider import sample_actions
from townlet.decide.events import DecisionMade, OutcomeRecorded, decode, encode
from townlet.errors import TownletError

shares = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(2, 9)), elements=st.sampled_from((0.0, 0.1, 1.0)))


def normalize(shares: np.ndarray) -> np.ndarray:
    """Rows of probabilities; in an all-zero row the last action becomes certain."""
    shares = shares.copy()
    shares[shares.sum(1) == 0, -1] = 1.0
    return np.asarray(shares / shares.sum(1, keepdims=True))


@given(shares, st.integers(0, 2**32))
def test_only_possible_actions_are_sampled_and_entropy_is_normalized(shares: np.ndarray, seed: int) -> None:
    probabilities = normalize(shares)
    actions, entropies = sample_actions(probabilities, np.random.default_rng(seed))
    assert (probabilities[np.arange(len(probabilities)), actions] > 0).all()
    for row, entropy in zip(probabilities, entropies, strict=True):
        possible = row[row > 0]
        expected = -(possible * np.log(possible)).sum() / np.log(max(len(possible), 2))
        assert entropy == pytest.approx(expected, abs=1e-12)


def test_sampled_frequencies_match_probabilities() -> None:
    probabilities = np.tile([0.5, 0.0, 0.3, 0.2], (20_000, 1))
    actions, _ = sample_actions(probabilities, np.random.default_rng(0))
    assert np.bincount(actions, minlength=4) / 20_000 == pytest.approx(probabilities[0], abs=0.015)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"deep": [1, -float("inf")]}])
def test_non_finite_numbers_are_not_encoded(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        encode(OutcomeRecorded(1, value, "report"))


@pytest.mark.parametrize("value", ["NaN", {"Infinity": 1.5e300}, [0.1, -0.0, 1e16, 10**30, None, True, "é \u2028"]])
def test_encoded_values_are_decoded_unchanged(value: Any) -> None:
    message = {"value": value}
    made = DecisionMade(1, "a", 1.0, 2.0, message, 0, 0.5, 0.5, True, "ok", None, "gate", 1, message, "client")
    assert decode(encode(made)) == made


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "", "{", '"\\ud800"', "[" * 10_000, "{}x"])
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(TownletError, match="cannot read a record"):
        decode(text.encode())
